//! Macros for statements that differ between the two databases.

/// A statement with one list of ids or texts: `$before`, the list as the right side of a comparison, `$after`.
macro_rules! any_of {
    ($before:expr, $param:literal, $after:expr) => {
        $crate::connection::Sql {
            sqlite: concat!($before, " IN (SELECT value FROM json_each(", $param, "))", $after),
            postgres: concat!($before, " = ANY(", $param, ")", $after),
        }
    };
}
pub(crate) use any_of;

/// A statement with rows as its first parameter, a JSON list of lists: `d.value ->> 0` is the first column of a row, as
/// text on Postgres (to be cast), `d.key` its place.
macro_rules! from_rows {
    ($before:expr, $after:expr) => {
        $crate::connection::Sql {
            sqlite: concat!($before, "json_each($1) AS d", $after),
            postgres: concat!($before, "json_array_elements($1::json) WITH ORDINALITY AS d (value, key)", $after),
        }
    };
}
pub(crate) use from_rows;

/// A statement that reads rows to change them. On Postgres it locks them, in the order of the result. On SQLite there
/// is only one writer.
macro_rules! locked {
    ($before:expr, $table:literal) => {
        $crate::connection::Sql { sqlite: $before, postgres: concat!($before, " FOR UPDATE OF ", $table) }
    };
}
pub(crate) use locked;
