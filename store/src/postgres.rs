//! Postgres: a database server that several processes share.

#[cfg(test)]
mod functions;
pub(crate) mod hot;
pub(crate) mod literal;
pub(crate) mod look;
pub(crate) mod notify;
pub(crate) mod open;
