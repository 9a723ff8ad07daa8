//! An open transaction, as operations see it.

use std::collections::HashSet;

use nightshift_engine::store::Notice;

use crate::connection::Connection;
use crate::created::Created;
use crate::memory::Memory;
use crate::writer::Surroundings;

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
    /// Runs that were created: remembered after the commit.
    pub(crate) created: Vec<Created>,
}

impl<'c> Transaction<'c> {
    /// Over a connection on which a transaction is open.
    pub(crate) fn new(connection: &'c mut Connection, memory: &'c Memory) -> Self {
        Self {
            connection,
            memory,
            notices: HashSet::new(),
            routes: Vec::new(),
            claimed_rank: None,
            created: Vec::new(),
        }
    }

    /// Notes what the commit brings about; the same thing once.
    pub(crate) fn notice(&mut self, notice: Notice) {
        self.notices.insert(notice);
    }

    /// Tells what its commit brought about, which is done.
    pub(crate) fn tell(self, around: &Surroundings) {
        around.memory.remember(self.routes, self.claimed_rank);
        // Before the notices: whoever hears of a run asks for it at once.
        around.memory.created.keep(self.created);
        around.notices.send(self.notices);
    }

    /// Takes what the commit will bring about so far out of the way of an operation that may be undone.
    pub(crate) fn take_effects(&mut self) -> Effects {
        Effects {
            notices: std::mem::take(&mut self.notices),
            routes: std::mem::take(&mut self.routes),
            claimed_rank: self.claimed_rank.take(),
            created: std::mem::take(&mut self.created),
        }
    }

    /// Puts it back, beside what the operation brings about.
    pub(crate) fn add_effects(&mut self, effects: Effects) {
        self.notices.extend(effects.notices);
        self.routes.extend(effects.routes);
        self.claimed_rank = self.claimed_rank.max(effects.claimed_rank);
        self.created.extend(effects.created);
    }
}

/// What a commit will bring about.
pub(crate) struct Effects {
    notices: HashSet<Notice>,
    routes: Vec<(String, i64)>,
    claimed_rank: Option<i64>,
    created: Vec<Created>,
}
