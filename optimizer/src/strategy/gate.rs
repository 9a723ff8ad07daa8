//! Gates: where a run waits for a person.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::{DecidedBy, Route, RouteDecision, StopReason};
use nightshift_protocol::signal::{Gate, Signal};

use super::routing::{self, Next};
use super::state::{Phase, RunState};

impl RunState {
    /// Handles the signal of a person. An answer to a gate at which the run does not wait has no effect: its author
    /// has not seen what the gate is for.
    pub(super) fn hear(&mut self, signal: &Signal) -> Result<(), WorkflowError> {
        if matches!(self.phase, Phase::Ended { .. }) {
            return Ok(());
        }
        match signal {
            Signal::Hint { text } => self.take_hint(text),
            Signal::Approved { gate } if self.waits_at(*gate) => match gate {
                Gate::Plan => self.begin_plan()?,
                Gate::NewBest => self.follow_route(&self.finished_together())?,
            },
            Signal::Approved { .. } => {}
            Signal::Rejected { gate, reason } => {
                self.take_hint(reason);
                if self.waits_at(*gate) {
                    self.turn_back(*gate, reason)?;
                }
            }
        }
        Ok(())
    }

    fn waits_at(&self, gate: Gate) -> bool {
        self.phase == Phase::Waiting { gate }
    }

    /// Whether the run has to wait at this gate.
    pub(super) fn has_gate(&self, gate: Gate) -> bool {
        self.input.gates.contains(&gate)
    }

    /// A rejection asks for a new plan. It counts as any other; when none is left, the run ends.
    fn turn_back(&mut self, gate: Gate, reason: &str) -> Result<(), WorkflowError> {
        let what = match gate {
            Gate::Plan => "the plan",
            Gate::NewBest => "the new best",
        };
        let given: String = reason.trim().chars().take(nightshift_protocol::signal::MAX_HINT_CHARS).collect();
        let reason = if given.is_empty() {
            format!("a person rejected {what}")
        } else {
            format!("a person rejected {what}: {given}")
        };
        let replans = routing::replans_left(self, &self.limits());
        if gate == Gate::NewBest {
            let route = if replans { Route::Replan } else { Route::Stop };
            let decision = RouteDecision {
                route,
                decided_by: DecidedBy::Rule,
                reason: reason.clone(),
                rule: Some("rejected_by_a_person".to_owned()),
                advice: None,
            };
            for number in self.finished_together() {
                self.wanted_attempt_mut(number)?.route = Some(decision.clone());
            }
        }
        self.phase = if replans {
            Phase::Replanning { reason }
        } else {
            Phase::Ended { reason: StopReason::GateRejected { gate, reason: given } }
        };
        Ok(())
    }

    /// Goes on after these attempts, unless a person has to approve a new best first. At the end of the search no
    /// attempt starts from the new best, so no approval is requested.
    pub(super) fn go_on(&mut self, finished: &[u32]) -> Result<(), WorkflowError> {
        let is_new_best = self.best_attempt.is_some_and(|best| finished.contains(&best));
        if is_new_best && self.has_gate(Gate::NewBest) {
            let (_, next) = self.strategy()?.next(self, finished)?;
            if !matches!(next, Next::Stop(_)) {
                self.phase = Phase::Waiting { gate: Gate::NewBest };
                return Ok(());
            }
        }
        self.follow_route(finished)
    }

    /// Returns the newest attempts that have no route yet: they ran at the same time.
    fn finished_together(&self) -> Vec<u32> {
        let waiting = self.attempts.iter().rev().take_while(|attempt| attempt.route.is_none());
        let mut numbers: Vec<u32> = waiting.map(|attempt| attempt.number).collect();
        numbers.reverse();
        numbers
    }
}
