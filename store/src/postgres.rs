//! Postgres: a database server that several processes share.

pub(crate) mod failure;
#[cfg(test)]
mod functions;
pub(crate) mod hot;
pub(crate) mod literal;
pub(crate) mod look;
pub(crate) mod notify;
pub(crate) mod open;
pub(crate) mod redo;
pub(crate) mod run_reads;
pub(crate) mod source;
