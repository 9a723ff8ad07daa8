//! How many runs a server takes over at once. Pure.
//!
//! Runs that wait for a decision belong to whoever asks first; the store fences them. What is decided here is only how
//! greedy a server is: enough that its queue does not run dry, not so much that runs of a dead server all queue up behind
//! one of several living ones.

/// Runs that one look into the store takes at most.
pub const MAX_ACQUIRED_AT_ONCE: u32 = 1_000;
/// Runs that may wait here to be driven; beyond that they are better off in the store.
pub const MAX_QUEUED_RUNS: usize = 4_000;

/// What a server has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Runs that wait here to be driven, and those that are being driven.
    pub queued: usize,
    /// Servers that are alive, this one included.
    pub servers: usize,
}

/// How many runs to ask the store for; zero: not now.
#[must_use]
pub fn runs_to_acquire(load: Load) -> u32 {
    let room = MAX_QUEUED_RUNS.saturating_sub(load.queued);
    let most = usize::try_from(MAX_ACQUIRED_AT_ONCE).unwrap_or(usize::MAX) / load.servers.max(1);
    u32::try_from(room.min(most.max(1))).unwrap_or(MAX_ACQUIRED_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_alone_takes_as_much_as_one_look_gives() {
        assert_eq!(runs_to_acquire(Load { queued: 0, servers: 1 }), MAX_ACQUIRED_AT_ONCE);
        assert_eq!(runs_to_acquire(Load { queued: 0, servers: 0 }), MAX_ACQUIRED_AT_ONCE);
    }

    #[test]
    fn several_servers_share() {
        assert_eq!(runs_to_acquire(Load { queued: 0, servers: 4 }), MAX_ACQUIRED_AT_ONCE / 4);
        assert_eq!(runs_to_acquire(Load { queued: 0, servers: 100_000 }), 1);
    }

    #[test]
    fn a_full_queue_takes_nothing() {
        assert_eq!(runs_to_acquire(Load { queued: MAX_QUEUED_RUNS, servers: 1 }), 0);
        assert_eq!(runs_to_acquire(Load { queued: MAX_QUEUED_RUNS - 3, servers: 1 }), 3);
        assert_eq!(runs_to_acquire(Load { queued: usize::MAX, servers: 1 }), 0);
    }
}
