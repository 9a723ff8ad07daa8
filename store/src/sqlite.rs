//! SQLite: one file, one process, one connection that writes.

pub(crate) mod lock;
pub(crate) mod open;
pub(crate) mod writer;

pub use self::lock::LOCK_FILE;
pub use self::open::DATABASE_FILE;
