//! Claims steps: one loop that states the free slots.
//!
//! A claim waits on the server until there is work for its slots. A claim cannot be changed or withdrawn, because its
//! answer may be leased already. So slots that become free meanwhile are stated by another claim. Later claims end with
//! the first one, so that one claim states all slots again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nightshift_protocol::api::{Claim, LeasedStep, TryOutcome};
use nightshift_protocol::step::StepFailure;

use super::backoff::Backoff;
use super::session::WorkerSession;
use super::slots::{Place, Statement};
use super::{CLAIM_WAIT, Work};
use crate::server_api::ServerApi;

/// Minimum interval of claims without a result, for servers that do not hold claims.
const MIN_CLAIM_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum hold time of a claim for shared slots of a busy device. When its steps end, the worker states the whole device,
/// but only after this claim.
const SHARED_CLAIM_WAIT: Duration = Duration::from_millis(250);

impl<P: ServerApi, W: Work> WorkerSession<P, W> {
    /// Claims steps for all free slots until the worker drains or this session is over.
    pub(super) async fn claim(self: Arc<Self>) {
        let mut together_until = Instant::now();
        loop {
            // Subscribe before reading the slots, so that no change is missed.
            let freed = self.slots.freed.notified();
            if let Some(statement) = self.slots.state_idle() {
                let now = Instant::now();
                if together_until < now + MIN_CLAIM_INTERVAL {
                    together_until = now + CLAIM_WAIT;
                }
                self.claims.spawn(Arc::clone(&self).ask(statement, together_until - now));
            }
            if let Some(statement) = self.slots.state_shared() {
                self.claims.spawn(Arc::clone(&self).ask(statement, SHARED_CLAIM_WAIT));
            }
            tokio::select! {
                biased;
                () = self.over.cancelled() => return,
                () = self.draining.cancelled() => return,
                () = freed => {}
            }
        }
    }

    /// Repeats the claim until there is an answer, and begins its steps. Slots without a step are free afterwards.
    async fn ask(self: Arc<Self>, statement: Statement, wait: Duration) {
        let claim = Claim { free: statement.free(), wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) };
        let mut backoff = Backoff::new();
        while !self.draining.is_cancelled() {
            let asked_at = Instant::now();
            let Some(answer) = self.unless_over(self.port.claim(&self.worker, &claim)).await else { return };
            match answer {
                Ok(claimed) => {
                    if self.claims_fail.swap(false, Ordering::Relaxed) {
                        tracing::info!("steps can be claimed again");
                    }
                    if claimed.draining {
                        self.draining_by_server.store(true, Ordering::Relaxed);
                        self.draining.cancel();
                    }
                    let nothing = claimed.steps.is_empty();
                    let leased_at = asked_at + Duration::from_millis(claimed.held_ms).min(asked_at.elapsed());
                    self.begin_all(claimed.steps, Some(statement), leased_at);
                    if nothing {
                        let pause = MIN_CLAIM_INTERVAL.min(wait).saturating_sub(asked_at.elapsed());
                        self.unless_over(tokio::time::sleep(pause)).await;
                    }
                    return;
                }
                Err(error) => {
                    if !self.may_repeat(&error) {
                        return;
                    }
                    if !self.claims_fail.swap(true, Ordering::Relaxed) {
                        tracing::warn!(error = %error, "a claim failed; it is repeated until the server answers");
                    }
                    if !backoff.wait(&self.over).await {
                        return;
                    }
                }
            }
        }
    }

    /// Registers the leases of an answer and begins the steps. `leased_at` must not be later than the server's leasing: a slow
    /// answer must not extend a lease.
    pub(super) fn begin_all(
        self: &Arc<Self>,
        steps: Vec<LeasedStep>,
        mut statement: Option<Statement>,
        leased_at: Instant,
    ) {
        for step in steps {
            let hold = self.held.add(&step.step, step.epoch, leased_at);
            if self.draining.is_cancelled() {
                // The step arrived after draining began: return it, so that another worker can lease it at once.
                self.steps.spawn(Arc::clone(self).give_back(step, hold));
                continue;
            }
            let Some(place) = Place::of(&step) else {
                let message = format!("its route `{}` is not understood, or lacks the device's number", step.route);
                let failure = StepFailure::retriable("worker.unsupported_step", message);
                self.steps.spawn(Arc::clone(self).refuse(step, hold, TryOutcome::Failed { failure }));
                continue;
            };
            if place.device().is_some_and(|device| self.slots.is_withdrawn(device)) {
                // The device failed after it was reported as free: return the step, so that another worker can lease it at once.
                self.steps.spawn(Arc::clone(self).give_back(step, hold));
                continue;
            }
            let slot = statement.as_mut().and_then(|statement| statement.take(place));
            self.steps.spawn(Arc::clone(self).carry(step, hold, place, slot));
        }
    }
}
