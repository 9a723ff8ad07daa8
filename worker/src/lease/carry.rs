//! Carries out one leased step, from its thread to the acknowledged report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nightshift_protocol::api::{LeasedStep, Report, ReportResult, TryOutcome};
use nightshift_protocol::step::{StepFailure, StepOutput};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::backoff::Backoff;
use super::device::is_of_a_device;
use super::held::{HeldStep, StopCause};
use super::session::WorkerSession;
use super::slots::{Place, Slot, Statement};
use super::{KILL_GRACE, Work};
use crate::server_api::ServerApi;
use crate::trace::step_span;
use nightshift_sandbox::process::{Survivor, take_survivors};

/// Time limit for returning a step while the worker ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// The result of a step's thread; `None` when the thread did not end in time after a stop.
pub(super) type Ended = Option<Result<StepOutput, StepFailure>>;

impl<P: ServerApi, W: Work> WorkerSession<P, W> {
    /// Carries out a step and reports it. Its slot is free once its processes are gone. The report states that, and the
    /// answer can bring the next step.
    pub(super) async fn carry(
        self: Arc<Self>,
        step: LeasedStep,
        hold: Arc<HeldStep>,
        place: Place,
        slot: Option<Slot>,
    ) {
        let span = step_span(&step);
        async {
            let slot = match slot {
                Some(slot) => Some(slot),
                None => self.room(place, &hold).await,
            };
            tracing::debug!(step.id = %step.step, "a step begins");
            let ended = match &slot {
                Some(_) if hold.cause().is_none() => self.at_its_place(&step, &hold, place).await,
                Some(_) => None,
                None => Some(Err(StepFailure::retriable("worker.unsupported_step", "the worker has no such device"))),
            };
            let is_draining = self.draining.is_cancelled() || self.over.is_cancelled();
            let statement = slot.filter(|_| !is_draining).and_then(Slot::leave_and_state);
            if let Some(outcome) = self.outcome(&step, hold.cause(), ended) {
                self.report(&step, &hold, outcome, statement).await;
            }
        }
        .instrument(span)
        .await;
        self.held.remove(&step.step, step.epoch);
    }

    /// Reports a step that cannot begin.
    pub(super) async fn refuse(self: Arc<Self>, step: LeasedStep, hold: Arc<HeldStep>, outcome: TryOutcome) {
        self.report(&step, &hold, outcome, None).instrument(step_span(&step)).await;
        self.held.remove(&step.step, step.epoch);
    }

    /// Returns a step that was not begun to the server.
    pub(super) async fn give_back(self: Arc<Self>, step: LeasedStep, hold: Arc<HeldStep>) {
        if self.embedded {
            // The server ends too, and releases the leases of this session at its next start.
            self.held.remove(&step.step, step.epoch);
            return;
        }
        self.refuse(step, hold, TryOutcome::Cancelled).await;
    }

    /// Waits for a slot for a step beyond the reported capacity. Returns `None` when this machine has no such slot.
    async fn room(self: &Arc<Self>, place: Place, hold: &HeldStep) -> Option<Slot> {
        tracing::warn!("the server leased a step beyond what was stated to be free: it waits for its place");
        tokio::select! {
            slot = self.slots.wait_for(place) => slot,
            () = hold.stopped.cancelled() => None,
        }
    }

    /// Runs the step on its own thread. Children die with the thread that starts them, so a shared thread of the runtime does
    /// not fit.
    pub(super) async fn on_a_thread(&self, step: &LeasedStep, hold: &Arc<HeldStep>) -> (Ended, Vec<Survivor>) {
        let (sender, mut receiver) = oneshot::channel();
        let thread = {
            let (work, step, hold) = (Arc::clone(&self.work), step.clone(), Arc::clone(hold));
            let span = tracing::Span::current();
            std::thread::Builder::new().name(format!("step {}", step.key)).spawn(move || {
                let _within = span.enter();
                let result = catch_unwind(AssertUnwindSafe(|| work.carry_out(&step, &hold.work)));
                // The receiver is gone when the step was abandoned.
                let _ = sender.send((result.unwrap_or_else(|_| Err(panicked())), take_survivors()));
            })
        };
        if let Err(error) = thread {
            let message = format!("no thread could be started for the step: {error}");
            return (Some(Err(StepFailure::retriable("worker.overloaded", message))), Vec::new());
        }
        let taken = |sent: Result<(Result<StepOutput, StepFailure>, Vec<Survivor>), oneshot::error::RecvError>| {
            let (result, survivors) = sent.unwrap_or_else(|_| (Err(panicked()), Vec::new()));
            (Some(result), survivors)
        };
        tokio::select! {
            sent = &mut receiver => return taken(sent),
            () = hold.stopped.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(step.timeout_ms)) => hold.stop(StopCause::TimedOut),
        }
        let Ok(sent) = tokio::time::timeout(KILL_GRACE, receiver).await else {
            tracing::error!(step.id = %step.step, "the thread of a killed step does not end");
            return (None, Vec::new());
        };
        taken(sent)
    }

    /// Returns the outcome to report; `None` when the server would not accept one.
    fn outcome(&self, step: &LeasedStep, cause: Option<StopCause>, ended: Ended) -> Option<TryOutcome> {
        let done = match ended {
            // A result that was complete before the stop is valid, unless the step was cancelled.
            Some(Ok(output)) => Some(TryOutcome::Completed { output: Box::new(output) }),
            // A device fault is reported, also when something else ended the step.
            Some(Err(failure)) if cause.is_none() || is_of_a_device(&failure) => Some(TryOutcome::Failed { failure }),
            _ => None,
        };
        match cause {
            Some(StopCause::Lost) => {
                tracing::info!(step.id = %step.step, "the lease of a step is gone: its result is dropped");
                None
            }
            Some(StopCause::Cancelled) => Some(TryOutcome::Cancelled),
            Some(StopCause::TimedOut) => Some(done.unwrap_or_else(|| {
                let message = format!("the step was still running after {} ms and was killed", step.timeout_ms);
                TryOutcome::Failed { failure: StepFailure::retriable("worker.step_timed_out", message) }
            })),
            // The server of an embedded worker ends too, and releases these leases at its next start.
            Some(StopCause::ShuttingDown) if self.embedded => done,
            // The step is returned: another worker can lease it at once.
            Some(StopCause::ShuttingDown) => Some(done.unwrap_or(TryOutcome::Cancelled)),
            None => done.or_else(|| Some(TryOutcome::Failed { failure: panicked() })),
        }
    }

    /// Repeats the report until the server acknowledges it or the lease is lost.
    async fn report(
        self: &Arc<Self>,
        step: &LeasedStep,
        hold: &HeldStep,
        outcome: TryOutcome,
        mut statement: Option<Statement>,
    ) {
        let free = statement.as_ref().map(Statement::free);
        let mut report = Report { worker: self.worker.clone(), epoch: step.epoch, result: outcome, free };
        let mut backoff = Backoff::new();
        let mut replaced = false;
        let farewell = async {
            self.over.cancelled().await;
            tokio::time::sleep(FAREWELL).await;
        };
        tokio::pin!(farewell);
        loop {
            let reported_at = Instant::now();
            hold.reports(true);
            let answer = tokio::select! {
                answer = self.port.report(step, &report) => answer,
                () = hold.lost.cancelled() => return self.dropped(step),
                () = &mut farewell => return self.dropped(step),
            };
            hold.reports(false);
            let answer = match answer {
                Ok(reply) => {
                    self.begin_all(reply.steps, statement.take(), reported_at);
                    Ok(reply.result)
                }
                Err(error) => Err(error),
            };
            // Steps in a lost answer are leased again after their leases expire. So a repeated report requests no
            // steps, and the free slots are claimed.
            statement = None;
            report.free = None;
            match answer {
                Ok(ReportResult::Committed) => {
                    if !backoff.is_fresh() {
                        tracing::info!(step.id = %step.step, "the report of a step came through");
                    }
                    tracing::debug!(step.id = %step.step, "a step is committed");
                    return;
                }
                Ok(ReportResult::LeaseLost) => return self.dropped(step),
                Err(error) if error.is_unknown_worker() => {
                    self.may_repeat(&error);
                    return self.dropped(step);
                }
                Err(error) if error.transient => {
                    if backoff.is_fresh() {
                        tracing::warn!(step.id = %step.step, error = %error, "a report failed and is repeated");
                    }
                    if !backoff.wait(&hold.lost).await {
                        return self.dropped(step);
                    }
                }
                // The server rejects this report for good. Report the rejection as a failure; otherwise the step would
                // run again after its lease expires, and end the same way.
                Err(error) if !replaced => {
                    tracing::error!(step.id = %step.step, error = %error, "a report is refused");
                    replaced = true;
                    let message = format!("the server refused the step's result: {error}");
                    report.result =
                        TryOutcome::Failed { failure: StepFailure::retriable("worker.report_refused", message) };
                }
                Err(error) => {
                    tracing::error!(step.id = %step.step, error = %error, "a report is refused again and dropped");
                    return;
                }
            }
        }
    }

    fn dropped(&self, step: &LeasedStep) {
        tracing::info!(step.id = %step.step, worker.id = %self.worker, "the report of a step is dropped with its lease");
    }
}

fn panicked() -> StepFailure {
    StepFailure::retriable("worker.internal", "the step ended with an error of ours: see the worker's log")
}
