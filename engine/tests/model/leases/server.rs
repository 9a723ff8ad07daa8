//! The server: each function is one transaction.

use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};

use super::world::{Answer, End, Lease, Message, State, Step, Try, WorkerId};
use super::{Flaw, LEASE_TICKS, Leases, gives_up};

/// Delay of a step after a failed try, in ticks.
const RETRY_TICKS: i8 = 1;

impl Leases {
    /// Serves a request of a worker.
    pub(super) fn serve(&self, state: &mut State, message: Message, waited: i8) -> Answer {
        match message {
            Message::Claim { by, age } => {
                if let Some(on) = self.claim(state, by) {
                    state.send(Message::Claimed { by, on, age });
                }
                Answer::Later
            }
            Message::Heartbeat { by, on, .. } => match self.extend(&mut state.steps[on.step], by, on, waited) {
                true if state.run == RunStatus::Cancelling => Answer::Cancelled,
                true => Answer::Extended,
                false => Answer::Lost,
            },
            Message::Report { on, end, .. } => {
                if self.report(state, on, end) {
                    Answer::Committed
                } else {
                    Answer::Lost
                }
            }
            Message::Claimed { .. } => Answer::Later,
        }
    }

    fn claim(&self, state: &mut State, by: WorkerId) -> Option<Try> {
        let holds_the_device = |step: &Step| step.lease.is_some_and(|lease| lease.worker == by);
        if state.steps.iter().any(holds_the_device) && self.flaw != Some(Flaw::ClaimIgnoresDevice) {
            return None;
        }
        let index = state.steps.iter().position(|step| step.ready && step.status == StepStatus::Scheduled)?;
        let step = &mut state.steps[index];
        step.ready = self.flaw == Some(Flaw::ClaimKeepsReady);
        step.status = StepStatus::Leased;
        step.epoch += 1;
        step.tries += 1;
        step.lease = Some(Lease { worker: by, epoch: step.epoch, left: LEASE_TICKS });
        Some(Try { step: index, epoch: step.epoch })
    }

    /// Extends a lease as of the arrival of the heartbeat, `waited` ticks ago.
    fn extend(&self, step: &mut Step, by: WorkerId, on: Try, waited: i8) -> bool {
        let Some(lease) = &mut step.lease else { return false };
        let is_its_lease = (lease.worker, lease.epoch) == (by, on.epoch);
        let in_time = lease.left + waited > 0 || self.flaw == Some(Flaw::HeartbeatRevives);
        if is_its_lease && in_time {
            lease.left = lease.left.max(LEASE_TICKS - waited);
        }
        is_its_lease && in_time
    }

    fn report(&self, state: &mut State, on: Try, end: End) -> bool {
        let step = &state.steps[on.step];
        let epoch_fits = step.epoch == on.epoch || self.flaw == Some(Flaw::ReportWithoutEpoch);
        if step.status != StepStatus::Leased || !epoch_fits {
            return step.reported == Some((on.epoch, end)) && self.flaw != Some(Flaw::CopyAnsweredAsLost);
        }
        state.steps[on.step].reported = Some((on.epoch, end));
        state.end_try(on.step, end, RETRY_TICKS);
        true
    }

    /// Ends the lease that the sweeper found expired, if it still is.
    pub(super) fn end_expired(&self, state: &mut State, found: Try) {
        state.found = None;
        let step = &state.steps[found.step];
        let Some(lease) = step.lease else { return };
        let epoch_fits = lease.epoch == found.epoch || self.flaw == Some(Flaw::SweepWithoutEpoch);
        let is_over = lease.left <= 0 || self.flaw == Some(Flaw::SweepWithoutExpiry);
        if step.status == StepStatus::Leased && epoch_fits && is_over {
            state.end_try(found.step, End::Retry, 0);
        }
    }

    /// Applies a control action.
    pub(super) fn control(&self, state: &State, transition: RunTransition) -> Option<State> {
        let status = state.run.next(transition).ok().filter(|status| *status != state.run)?;
        let mut after = state.clone();
        after.run = status;
        for step in &mut after.steps {
            let scheduled = step.status == StepStatus::Scheduled;
            match status {
                RunStatus::Paused => step.ready = false,
                RunStatus::Running => {
                    step.ready = scheduled && step.timer.is_none() && self.flaw != Some(Flaw::ResumeForgetsReady);
                }
                _ if scheduled => step.cancel(),
                _ => {}
            }
        }
        Some(after)
    }
}

impl Step {
    fn cancel(&mut self) {
        self.status = StepStatus::Cancelled;
        self.ready = false;
        self.timer = None;
        self.lease = None;
    }
}

impl State {
    /// Ends a try and its lease. The run determines what follows.
    fn end_try(&mut self, step: usize, end: End, delay: i8) {
        let run = self.run;
        let step = &mut self.steps[step];
        step.lease = None;
        match end {
            End::Completed => {
                step.status = StepStatus::Completed;
                step.results += 1;
            }
            End::Retry if gives_up(step.tries) => step.status = StepStatus::Failed,
            End::Retry | End::Cancelled if run == RunStatus::Cancelling => step.cancel(),
            End::Retry | End::Cancelled => {
                step.status = StepStatus::Scheduled;
                if end == End::Retry && delay > 0 {
                    step.timer = Some(delay);
                } else {
                    step.ready = run == RunStatus::Running;
                }
            }
        }
    }

    pub(super) fn fire_timer(&mut self, step: usize) {
        let step = &mut self.steps[step];
        step.timer = None;
        step.ready = step.status == StepStatus::Scheduled && self.run == RunStatus::Running;
    }

    /// Returns the state after the decision that ends the run with its open steps and leases.
    pub(super) fn ended(&self) -> Option<Self> {
        let open = self.steps.iter().any(|step| !step.status.is_final());
        let failed = self.steps.iter().any(|step| step.status == StepStatus::Failed);
        let transition = match self.run {
            RunStatus::Cancelling if !open => RunTransition::CancelFinished,
            RunStatus::Running | RunStatus::Paused if failed => RunTransition::Fail,
            RunStatus::Running | RunStatus::Paused if !open => RunTransition::Complete,
            _ => return None,
        };
        let mut after = self.clone();
        after.run = self.run.next(transition).ok()?;
        for step in after.steps.iter_mut().filter(|step| !step.status.is_final()) {
            step.cancel();
        }
        Some(after)
    }
}
