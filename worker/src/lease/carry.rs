//! One step in this worker's hands, from the thread that carries it out to the acknowledged report.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use nightshift_protocol::api::{LeasedStep, Report, ReportReply, TryOutcome};
use nightshift_protocol::step::{StepFailure, StepOutput};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::held::{Hold, StopCause};
use super::{Backoff, KILL_GRACE, Life, Work};
use crate::port::Port;

/// How long a worker that ends tries to say that it gives a step back.
const FAREWELL: Duration = Duration::from_secs(2);

/// What the thread of a step gave; nothing when it did not end in time after it was stopped.
type Ended = Option<Result<StepOutput, StepFailure>>;

impl<P: Port, W: Work> Life<P, W> {
    /// Carries a step out and reports it. Its slot is free as soon as its processes are gone.
    pub(super) async fn carry(self: Arc<Self>, step: LeasedStep, hold: Arc<Hold>, slot: OwnedSemaphorePermit) {
        tracing::debug!(step.id = %step.step, step.key = %step.key, lease.epoch = step.epoch, "a step begins");
        let ended = if hold.cause().is_none() { self.on_a_thread(&step, &hold).await } else { None };
        drop(slot);
        if let Some(outcome) = self.outcome(&step, hold.cause(), ended) {
            self.report(&step, &hold, outcome).await;
        }
        self.held.remove(&step.step, step.epoch);
    }

    /// Runs the step on a thread of its own: children die with the thread that starts them, and a thread that the
    /// runtime shares would outlive its step or end before it.
    async fn on_a_thread(&self, step: &LeasedStep, hold: &Arc<Hold>) -> Ended {
        let (sender, mut receiver) = oneshot::channel();
        let thread = {
            let (work, step, hold) = (Arc::clone(&self.work), step.clone(), Arc::clone(hold));
            std::thread::Builder::new().name(format!("step {}", step.key)).spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| work.carry_out(&step, &hold.work)));
                // Nobody listens when the step was given up.
                let _ = sender.send(result.unwrap_or_else(|_| Err(panicked())));
            })
        };
        if let Err(error) = thread {
            let message = format!("no thread could be started for the step: {error}");
            return Some(Err(StepFailure::retriable("worker.overloaded", message)));
        }
        tokio::select! {
            result = &mut receiver => return Some(result.unwrap_or_else(|_| Err(panicked()))),
            () = hold.stopped.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(step.timeout_ms)) => hold.stop(StopCause::TimedOut),
        }
        let Ok(result) = tokio::time::timeout(KILL_GRACE, receiver).await else {
            tracing::error!(step.id = %step.step, "the thread of a killed step does not end");
            return None;
        };
        Some(result.unwrap_or_else(|_| Err(panicked())))
    }

    /// What is to be reported; nothing when nobody would take it.
    fn outcome(&self, step: &LeasedStep, cause: Option<StopCause>, ended: Ended) -> Option<TryOutcome> {
        let done = match ended {
            // A result that was there before the stop is as good as any, except to somebody who cancelled.
            Some(Ok(output)) => Some(TryOutcome::Completed { output: Box::new(output) }),
            Some(Err(failure)) if cause.is_none() => Some(TryOutcome::Failed { failure }),
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
            // The server of an embedded worker ends too and frees the leases of this life at its next start.
            Some(StopCause::ShuttingDown) if self.embedded => done,
            Some(StopCause::ShuttingDown) => Some(done.unwrap_or_else(|| TryOutcome::Failed {
                failure: StepFailure::retriable("worker.shutting_down", "the worker was asked to end"),
            })),
            None => done.or_else(|| Some(TryOutcome::Failed { failure: panicked() })),
        }
    }

    /// Reports until the server acknowledges, or the lease is gone.
    async fn report(&self, step: &LeasedStep, hold: &Hold, outcome: TryOutcome) {
        let mut report = Report { worker: self.worker.clone(), epoch: step.epoch, result: outcome };
        let mut backoff = Backoff::new();
        let mut replaced = false;
        let farewell = async {
            self.over.cancelled().await;
            tokio::time::sleep(FAREWELL).await;
        };
        tokio::pin!(farewell);
        loop {
            let answer = tokio::select! {
                answer = self.port.report(&step.step, &report) => answer,
                () = hold.lost.cancelled() => return self.dropped(step),
                () = &mut farewell => return self.dropped(step),
            };
            match answer {
                Ok(ReportReply::Committed) => {
                    if !backoff.is_fresh() {
                        tracing::info!(step.id = %step.step, "the report of a step came through");
                    }
                    tracing::debug!(step.id = %step.step, step.key = %step.key, "a step is committed");
                    return;
                }
                Ok(ReportReply::LeaseLost) => return self.dropped(step),
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
                // The server will never take this report. That it does not is a fact that it has to know: otherwise
                // the step would run again only after its lease ran out, and end the same way.
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
