//! Conversions between unsigned numbers of the engine and the database's `i64`.

/// Converts for the database. A number that does not fit is far beyond every limit, so the largest number replaces it.
pub(crate) fn to_stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts from the database. Columns of this kind are never negative.
pub(crate) fn from_stored(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Converts a count of at most 32 bits from the database.
pub(crate) fn count_from_stored(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}
