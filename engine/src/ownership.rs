//! Decides how many runs a server acquires at once. Pure.
//!
//! Runs that wait for a decision belong to the first server that asks, and the store fences them. A server takes enough
//! runs to keep its queue filled. It leaves runs of a dead server to the other living servers too.

/// Maximum number of runs per acquisition.
pub const MAX_ACQUIRED_AT_ONCE: u32 = 1_000;
/// Maximum number of runs in this server's queue. Further runs stay in the store for other servers.
pub const MAX_QUEUED_RUNS: usize = 4_000;

/// The load of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Runs that wait in the queue or are being driven.
    pub queued: usize,
    /// Servers that are alive, including this one.
    pub servers: usize,
}

/// Returns how many runs to acquire from the store. Zero means not now.
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
