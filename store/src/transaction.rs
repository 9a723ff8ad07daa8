//! An open transaction, as operations see it.

use std::collections::HashSet;

use nightshift_engine::store::Notice;

use crate::connection::Connection;
use crate::created::Created;
use crate::process_cache::ProcessCache;
use crate::surroundings::Surroundings;

/// An open transaction. The code that opened it commits it, sends the notices and answers, or rolls it back and drops
/// the notices.
pub(crate) struct Transaction<'c> {
    /// The database connection.
    pub(crate) connection: &'c mut Connection,
    /// The cache of this process.
    pub(crate) memory: &'c ProcessCache,
    /// Notices to send after the commit.
    pub(crate) notices: HashSet<Notice>,
    /// Found and created routes, cached after the commit.
    pub(crate) routes: Vec<(String, i64)>,
    /// The highest claimed rank, which becomes the virtual time after the commit.
    pub(crate) claimed_rank: Option<i64>,
    /// Created runs, cached after the commit.
    pub(crate) created: Vec<Created>,
}

impl<'c> Transaction<'c> {
    /// Wraps a connection with an open transaction.
    pub(crate) fn new(connection: &'c mut Connection, memory: &'c ProcessCache) -> Self {
        Self {
            connection,
            memory,
            notices: HashSet::new(),
            routes: Vec::new(),
            claimed_rank: None,
            created: Vec::new(),
        }
    }

    /// Adds a notice, once.
    pub(crate) fn notice(&mut self, notice: Notice) {
        self.notices.insert(notice);
    }

    /// Publishes the effects of the commit, after it is done.
    pub(crate) fn publish(self, around: &Surroundings) {
        around.memory.remember(self.routes, self.claimed_rank);
        // Before the notices, because a receiver asks for the run at once.
        around.memory.created.keep(self.created);
        around.notices.send(self.notices);
    }

    /// Takes the effects so far, before an operation that may be rolled back.
    pub(crate) fn take_effects(&mut self) -> Effects {
        Effects {
            notices: std::mem::take(&mut self.notices),
            routes: std::mem::take(&mut self.routes),
            claimed_rank: self.claimed_rank.take(),
            created: std::mem::take(&mut self.created),
        }
    }

    /// Adds them back to the effects of the operation.
    pub(crate) fn add_effects(&mut self, effects: Effects) {
        self.notices.extend(effects.notices);
        self.routes.extend(effects.routes);
        self.claimed_rank = self.claimed_rank.max(effects.claimed_rank);
        self.created.extend(effects.created);
    }
}

/// The effects of a commit outside of the database.
pub(crate) struct Effects {
    notices: HashSet<Notice>,
    routes: Vec<(String, i64)>,
    claimed_rank: Option<i64>,
    created: Vec<Created>,
}
