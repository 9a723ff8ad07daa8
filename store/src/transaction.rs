//! An open transaction, as operations see it.

use std::collections::HashSet;

use nightshift_engine::store::Notice;

use crate::connection::Connection;
use crate::memory::Memory;

/// Whoever opened it commits it, sends the notices and answers; or undoes it and forgets them.
pub(crate) struct Transaction<'c> {
    /// To the database.
    pub(crate) connection: &'c mut Connection,
    /// Of this process.
    pub(crate) memory: &'c Memory,
    /// What its commit brings about.
    pub(crate) notices: HashSet<Notice>,
    /// Routes that were found or made: remembered after the commit.
    pub(crate) routes: Vec<(String, i64)>,
    /// The highest rank that was claimed: the virtual time after the commit.
    pub(crate) claimed_rank: Option<i64>,
}

impl<'c> Transaction<'c> {
    /// Over a connection on which a transaction is open.
    pub(crate) fn new(connection: &'c mut Connection, memory: &'c Memory) -> Self {
        Self { connection, memory, notices: HashSet::new(), routes: Vec::new(), claimed_rank: None }
    }

    /// Notes what the commit brings about; the same thing once.
    pub(crate) fn notice(&mut self, notice: Notice) {
        self.notices.insert(notice);
    }
}
