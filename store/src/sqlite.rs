//! What is special to SQLite: one file, one process that has it, one connection that writes.

pub(crate) mod failure;
pub(crate) mod lock;
pub(crate) mod open;
pub(crate) mod own;
pub(crate) mod source;

pub use self::lock::LOCK_FILE;
pub use self::open::DATABASE_FILE;
