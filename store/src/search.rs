//! Full-text search over what runs left behind: FTS5 on SQLite, a text search vector on Postgres. Words are letters and
//! digits in a row on both; everything else parts them.

pub(crate) mod document;
pub(crate) mod excerpt;
pub(crate) mod find;
pub(crate) mod words;
