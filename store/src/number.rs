//! Numbers between the engine's unsigned ones and the database's `i64`.

/// For the database. What does not fit is far beyond every limit, so the largest number stands for it.
pub(crate) fn to_stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// From the database, whose columns of this kind are never negative.
pub(crate) fn from_stored(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// From the database, for counts that fit 32 bits.
pub(crate) fn count_from_stored(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}
