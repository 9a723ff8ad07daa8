//! Full-text search over the texts of runs: FTS5 on SQLite, a text search vector on Postgres. On both, a word is a
//! sequence of letters and digits.

pub(crate) mod excerpt;
pub(crate) mod find;
pub(crate) mod words;
