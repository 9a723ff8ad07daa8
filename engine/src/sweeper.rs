//! Housekeeping that time brings about: servers that died, leases that ran out, timers that are due.

use std::sync::Arc;

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use crate::clock::{Clock, Random};
use crate::retry::{AfterFailure, after_failure};
use crate::store::{Reported, Store, StoreError, TryEnd};

/// Leases ended, or timers fired, in one round.
pub const MAX_PER_ROUND: u32 = 500;

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Leases of dead servers' own workers that were freed.
    pub reaped: u64,
    /// Leases that were ended because they ran out.
    pub expired: u64,
    /// Whether a limit ended the round early: the next one should follow at once.
    pub more: bool,
    /// Steps that became ready.
    pub fired: u64,
    /// When the next timer is due.
    pub next_timer: Option<TimestampMs>,
}

/// Ends leases and fires timers. Several may do so at once: the store re-checks every lease.
#[derive(Clone)]
pub struct Sweeper {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Sweeper {
    /// A sweeper over these ports.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { store, clock, random }
    }

    /// One round.
    pub async fn sweep(&self) -> Result<Swept, StoreError> {
        let at = self.clock.now();
        // First, because a try that ended with its server does not count, and one whose lease ran out does.
        let mut swept = Swept { reaped: self.store.reap_servers(at).await?, ..Swept::default() };
        let leases = self.store.expired_leases(at, MAX_PER_ROUND).await?;
        swept.more = leases.len() >= usize::try_from(MAX_PER_ROUND).unwrap_or(usize::MAX);
        for lease in leases {
            let lost = StepFailure::retriable(
                "worker.lost",
                format!("the worker of step `{}` was not heard of until its lease ran out", lease.step.key),
            );
            let end = match after_failure(&lease.step.retry, lease.step.tries, &lost, self.random.unit()) {
                // The lease time has passed already, and another worker is as good as a later moment.
                AfterFailure::Retry { .. } => TryEnd::Retry { failure: lost, at },
                AfterFailure::GiveUp { failure } => TryEnd::Failed { failure },
            };
            if self.store.expire_lease(&lease.step.id, lease.epoch, end, at).await? == Reported::Committed {
                swept.expired += 1;
            }
        }
        let (fired, next_timer) = self.store.fire_timers(at, MAX_PER_ROUND).await?;
        swept.fired = fired;
        swept.more |= fired >= u64::from(MAX_PER_ROUND);
        swept.next_timer = next_timer;
        Ok(swept)
    }
}
