//! Time-driven housekeeping: dead servers, expired leases, due timers.

use std::sync::Arc;

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use crate::clock::{Clock, Random};
use crate::retry::{AfterFailure, after_failure};
use crate::store::{LeaseStore, QueueStore, Reported, ServerStore, StoreError, TryEnd};

/// Maximum number of leases ended, and of timers fired, per round.
pub const MAX_PER_ROUND: u32 = 500;

/// Outcome of a round.
#[derive(Debug, Clone, Default)]
pub struct Swept {
    /// Freed leases of embedded workers of dead servers.
    pub reaped: u64,
    /// Expired leases that were ended.
    pub expired: u64,
    /// Whether a limit ended the round early. The next round should follow at once.
    pub more: bool,
    /// Steps that became ready.
    pub fired: u64,
    /// When the next timer is due.
    pub next_timer: Option<TimestampMs>,
    /// The first error of a server or lease that could not be read or ended. The other leases and the timers are
    /// unaffected.
    pub lease_error: Option<StoreError>,
}

/// Ends leases and fires timers. Several sweepers may run at once, because the store re-checks every lease.
#[derive(Clone)]
pub struct Sweeper {
    servers: Arc<dyn ServerStore>,
    leases: Arc<dyn LeaseStore>,
    queue: Arc<dyn QueueStore>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

impl Sweeper {
    /// Creates a sweeper over these ports.
    #[must_use]
    pub fn new(
        servers: Arc<dyn ServerStore>,
        leases: Arc<dyn LeaseStore>,
        queue: Arc<dyn QueueStore>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self { servers, leases, queue, clock, random }
    }

    /// Runs one round.
    pub async fn sweep(&self) -> Result<Swept, StoreError> {
        let at = self.clock.now();
        // Dead servers come first: a try that ended with its server does not count, but a try with an expired lease
        // does.
        let mut swept = Swept::default();
        match self.servers.reap_servers(at).await {
            Ok(reaped) => swept.reaped = reaped,
            Err(error) => swept.lease_error = Some(error),
        }
        let leases = self.leases.expired_leases(at, MAX_PER_ROUND).await.unwrap_or_else(|error| {
            swept.lease_error.get_or_insert(error);
            Vec::new()
        });
        swept.more = leases.len() >= usize::try_from(MAX_PER_ROUND).unwrap_or(usize::MAX);
        for lease in leases {
            let lost = StepFailure::retriable(
                "worker.lost",
                format!("the worker of step `{}` sent no heartbeat until its lease expired", lease.step.key),
            )
            .after(lease.step.failure.as_ref());
            let end = match after_failure(&lease.step.retry, lease.step.tries, &lost, self.random.unit()) {
                // The lease time has passed already, so the next worker may begin at once.
                AfterFailure::Retry { .. } => TryEnd::Retry { failure: lost, at },
                AfterFailure::GiveUp { failure } => TryEnd::Failed { failure },
            };
            match self.leases.expire_lease(&lease.step.id, lease.epoch, end, at).await {
                Ok(Reported::Committed) => swept.expired += 1,
                Ok(Reported::LeaseLost) => {}
                Err(error) => {
                    swept.lease_error.get_or_insert(error);
                }
            }
        }
        // After an error, the next round follows later.
        swept.more &= swept.lease_error.is_none();
        let (fired, next_timer) = self.queue.fire_timers(at, MAX_PER_ROUND).await?;
        swept.fired = fired;
        swept.more |= fired >= u64::from(MAX_PER_ROUND);
        swept.next_timer = next_timer;
        Ok(swept)
    }
}
