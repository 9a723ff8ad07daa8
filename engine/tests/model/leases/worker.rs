//! The worker: its requests, its reactions to answers, and its faults.

use super::world::{Action, Answer, Doing, End, Message, State, Worker};
use super::{Flaw, LEASE_TICKS, Leases};

impl Leases {
    pub(super) fn worker_successors(&self, state: &State, worker: usize, into: &mut Vec<(Action, State)>) {
        let by = state.id_of(worker);
        let sends = |message: Message| {
            let mut after = state.clone();
            after.send(message);
            after
        };
        let under_way = |wanted: &dyn Fn(&Message) -> bool| state.messages.iter().any(wanted);
        match state.workers[worker].doing {
            Doing::Nothing => {
                // Asking without ready steps would have no effect.
                let asks = state.steps.iter().any(|step| step.ready);
                if asks && !under_way(&|other| other.is_claim_of(by)) {
                    into.push((Action::AskForWork { worker }, sends(Message::Claim { by, age: 0 })));
                }
            }
            Doing::Working { on, left } => {
                // A lease that was just granted or extended needs no heartbeat.
                if left < LEASE_TICKS && !under_way(&|other| other.is_heartbeat_of(by, on)) {
                    into.push((Action::SendHeartbeat { worker }, sends(Message::Heartbeat { by, on, age: 0 })));
                }
                let ends: &[End] = if self.failing { &[End::Completed, End::Retry] } else { &[End::Completed] };
                for end in ends {
                    let mut after = sends(Message::Report { by, on, end: *end });
                    after.workers[worker].doing = Doing::Reporting { on, end: *end };
                    into.push((Action::EndWork { worker, end: *end }, after));
                }
            }
            Doing::Reporting { on, end } => {
                if !under_way(&|other| other.is_report_of(by, on)) {
                    into.push((Action::RepeatReport { worker }, sends(Message::Report { by, on, end })));
                }
            }
        }
        if state.faults_left > 0 {
            let mut after = state.clone();
            after.faults_left -= 1;
            after.workers[worker] = Worker { stalled: true, slow: true, ..state.workers[worker] };
            into.push((Action::Stall { worker }, after));
            let mut after = state.clone();
            after.faults_left -= 1;
            let life = by.life + 1;
            after.workers[worker] = Worker { life, stalled: false, slow: false, doing: Doing::Nothing };
            into.push((Action::Crash { worker }, after));
        }
    }

    /// Returns how long a worker may work after a request of this age.
    pub(super) fn left_of(&self, age: i8) -> i8 {
        if self.flaw == Some(Flaw::WorkerCountsFromTheAnswer) { LEASE_TICKS } else { LEASE_TICKS - age }
    }

    /// Applies an answer to a worker.
    pub(super) fn hear(&self, worker: &mut Worker, message: Message, answer: Answer) {
        worker.doing = match (worker.doing, message, answer) {
            (Doing::Working { on, .. }, Message::Heartbeat { on: of, .. }, Answer::Lost) if on == of => Doing::Nothing,
            (Doing::Working { on, .. }, Message::Heartbeat { on: of, .. }, Answer::Cancelled) if on == of => {
                Doing::Reporting { on, end: End::Cancelled }
            }
            (Doing::Working { on, left }, Message::Heartbeat { on: of, age, .. }, Answer::Extended) if on == of => {
                Doing::Working { on, left: left.max(self.left_of(age)) }
            }
            (Doing::Reporting { on, .. }, Message::Report { on: of, .. }, _) if on == of => Doing::Nothing,
            (doing, ..) => doing,
        };
    }
}
