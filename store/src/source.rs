//! Sources of the connections with which the tasks commit.

pub(crate) mod postgres;
pub(crate) mod sqlite;
