//! The state of the model of leases, and its transitions.

use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};

use super::{LEASE_TICKS, Leases, STEPS, WAIT_TICKS, WORKERS, check};
use crate::explore::Model;

/// The id of a worker. A restarted worker has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WorkerId {
    pub(super) place: usize,
    pub(super) life: u8,
}

/// One execution of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Try {
    pub(super) step: usize,
    pub(super) epoch: u8,
}

/// A worker's report about the end of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum End {
    Completed,
    Retry,
    Cancelled,
}

/// A row of the lease table; its key is the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) worker: WorkerId,
    pub(super) epoch: u8,
    /// Ticks until its expiry; negative after it.
    pub(super) left: i8,
}

/// A step with its data in other tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) status: StepStatus,
    pub(super) epoch: u8,
    pub(super) tries: u8,
    pub(super) ready: bool,
    pub(super) lease: Option<Lease>,
    /// Ticks until it is due.
    pub(super) timer: Option<i8>,
    /// The last report that took effect.
    pub(super) reported: Option<(u8, End)>,
    /// Number of results in the log.
    pub(super) results: u8,
}

/// The activity of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    Nothing,
    /// Carries out a step while its lease lasts by its own clock.
    Working {
        on: Try,
        left: i8,
    },
    /// Has stopped, and reports until it gets an answer.
    Reporting {
        on: Try,
        end: End,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) life: u8,
    pub(super) stalled: bool,
    /// Whether its clock stood still once.
    pub(super) slow: bool,
    pub(super) doing: Doing,
}

/// A message in flight. Ages are ticks since the worker sent the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Claim { by: WorkerId, age: i8 },
    Claimed { by: WorkerId, on: Try, age: i8 },
    Heartbeat { by: WorkerId, on: Try, age: i8 },
    Report { by: WorkerId, on: Try, end: End },
}

/// The server's answer to a request. A worker receives it at once or never, because receiving it later equals a later
/// request. Only the answer to a claim, which begins a lease, travels as a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Later,
    Extended,
    Cancelled,
    Committed,
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) run: RunStatus,
    pub(super) steps: [Step; STEPS],
    pub(super) workers: [Worker; WORKERS],
    /// Sorted: messages have no order.
    pub(super) messages: Vec<Message>,
    /// The expired lease that the sweeper found.
    pub(super) found: Option<Try>,
    pub(super) faults_left: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    AskForWork {
        worker: usize,
    },
    SendHeartbeat {
        worker: usize,
    },
    EndWork {
        worker: usize,
        end: End,
    },
    RepeatReport {
        worker: usize,
    },
    /// `waited` is how long a heartbeat waited at the server for the writer.
    Deliver {
        message: Message,
        waited: i8,
        answer: Answer,
        heard: bool,
    },
    Begin(Message),
    Duplicate(Message),
    Lose(Message),
    FindExpired {
        step: usize,
    },
    EndExpired(Try),
    FireTimer {
        step: usize,
    },
    EndRun,
    Pause,
    Resume,
    Cancel,
    Crash {
        worker: usize,
    },
    Stall {
        worker: usize,
    },
    Wake {
        worker: usize,
    },
}

impl State {
    pub(super) fn send(&mut self, message: Message) {
        let at = self.messages.partition_point(|other| *other < message);
        self.messages.insert(at, message);
    }

    pub(super) fn id_of(&self, place: usize) -> WorkerId {
        WorkerId { place, life: self.workers[place].life }
    }

    /// Normalizes irrelevant data, so that equivalent states are equal.
    fn settle_what_is_moot(&mut self) {
        let workers = self.workers;
        let lives = |id: WorkerId| workers[id.place].life == id.life;
        let works_on = |id: WorkerId, on: Try| {
            lives(id) && matches!(workers[id.place].doing, Doing::Working { on: of, .. } if of == on)
        };
        // Its worker is gone, or would begin after its time is over.
        self.messages.retain(|message| match message {
            Message::Claimed { by, age, .. } => lives(*by) && *age < LEASE_TICKS,
            _ => true,
        });
        for message in &mut self.messages {
            match message {
                Message::Claim { by, age } if !lives(*by) => *age = LEASE_TICKS,
                Message::Heartbeat { by, on, age } if *age >= WAIT_TICKS && !works_on(*by, *on) => *age = LEASE_TICKS,
                _ => {}
            }
        }
        self.messages.sort_unstable();
    }
}

impl Message {
    pub(super) fn is_claim_of(&self, worker: WorkerId) -> bool {
        matches!(self, Self::Claim { by, .. } if *by == worker)
    }

    pub(super) fn is_heartbeat_of(&self, worker: WorkerId, held: Try) -> bool {
        matches!(self, Self::Heartbeat { by, on, .. } if (*by, *on) == (worker, held))
    }

    pub(super) fn is_report_of(&self, worker: WorkerId, held: Try) -> bool {
        matches!(self, Self::Report { by, on, .. } if (*by, *on) == (worker, held))
    }

    fn older(self) -> Self {
        let older = |age: i8| (age + 1).min(LEASE_TICKS);
        match self {
            Self::Claim { by, age } => Self::Claim { by, age: older(age) },
            Self::Claimed { by, on, age } => Self::Claimed { by, on, age: older(age) },
            Self::Heartbeat { by, on, age } => Self::Heartbeat { by, on, age: older(age) },
            Self::Report { .. } => self,
        }
    }
}

impl Leases {
    /// Advances every running clock.
    fn tick(state: &State) -> State {
        let mut after = state.clone();
        for step in &mut after.steps {
            if let Some(lease) = &mut step.lease {
                lease.left = (lease.left - 1).max(-WAIT_TICKS);
            }
            step.timer = step.timer.map(|left| (left - 1).max(0));
        }
        for worker in after.workers.iter_mut().filter(|worker| !worker.stalled) {
            if let Doing::Working { on, left } = worker.doing {
                // At the end of its lease a worker kills the step's process.
                worker.doing = if left > 1 { Doing::Working { on, left: left - 1 } } else { Doing::Nothing };
            }
        }
        for message in &mut after.messages {
            *message = message.older();
        }
        after
    }

    fn deliver(&self, state: &State, index: usize, into: &mut Vec<(Action, State)>) {
        let message = state.messages[index];
        let mut without = state.clone();
        without.messages.remove(index);
        let (by, longest) = match message {
            Message::Claimed { by, on, age } => {
                let worker = &mut without.workers[by.place];
                if !worker.stalled {
                    if worker.doing == Doing::Nothing {
                        worker.doing = Doing::Working { on, left: self.left_of(age) };
                    }
                    into.push((Action::Begin(message), without));
                }
                return;
            }
            Message::Heartbeat { by, age, .. } => (by, age.min(WAIT_TICKS)),
            Message::Claim { by, .. } | Message::Report { by, .. } => (by, 0),
        };
        for waited in 0..=longest {
            let mut after = without.clone();
            let answer = self.serve(&mut after, message, waited);
            let worker = after.workers[by.place];
            if worker.life == by.life && !worker.stalled {
                let mut heard = after.clone();
                self.hear(&mut heard.workers[by.place], message, answer);
                into.push((Action::Deliver { message, waited, answer, heard: true }, heard));
            }
            into.push((Action::Deliver { message, waited, answer, heard: false }, after));
        }
    }

    fn message_successors(&self, state: &State, into: &mut Vec<(Action, State)>) {
        for index in 0..state.messages.len() {
            let message = state.messages[index];
            if index > 0 && state.messages[index - 1] == message {
                continue;
            }
            self.deliver(state, index, into);
            if state.faults_left > 0 && !state.run.is_final() {
                let mut after = state.clone();
                after.faults_left -= 1;
                after.messages.remove(index);
                into.push((Action::Lose(message), after));
                // Only requests are duplicated; a duplicate gets its own answer.
                if !matches!(message, Message::Claimed { .. }) {
                    let mut after = state.clone();
                    after.faults_left -= 1;
                    after.send(message);
                    into.push((Action::Duplicate(message), after));
                }
            }
        }
    }

    fn all_successors(&self, state: &State, into: &mut Vec<(Action, State)>) {
        // After the end of the run, only messages in flight may still try to change something.
        if !state.run.is_final() {
            into.push((Action::Tick, Self::tick(state)));
            for worker in 0..self.workers {
                if state.workers[worker].stalled {
                    let mut after = state.clone();
                    after.workers[worker].stalled = false;
                    into.push((Action::Wake { worker }, after));
                } else {
                    self.worker_successors(state, worker, into);
                }
            }
        }
        self.message_successors(state, into);
        self.server_successors(state, into);
    }

    fn server_successors(&self, state: &State, into: &mut Vec<(Action, State)>) {
        for step in 0..STEPS {
            let it = state.steps[step];
            if let (Some(lease), None) = (it.lease.filter(|lease| lease.left <= 0), state.found) {
                let mut after = state.clone();
                after.found = Some(Try { step, epoch: lease.epoch });
                into.push((Action::FindExpired { step }, after));
            }
            if it.timer == Some(0) {
                let mut after = state.clone();
                after.fire_timer(step);
                into.push((Action::FireTimer { step }, after));
            }
        }
        if let Some(found) = state.found {
            let mut after = state.clone();
            self.end_expired(&mut after, found);
            into.push((Action::EndExpired(found), after));
        }
        into.extend(state.ended().map(|after| (Action::EndRun, after)));
        if self.controlled {
            for (action, transition) in [
                (Action::Pause, RunTransition::Pause),
                (Action::Resume, RunTransition::Resume),
                (Action::Cancel, RunTransition::Cancel),
            ] {
                into.extend(self.control(state, transition).map(|after| (action, after)));
            }
        }
    }
}

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let step = |index: usize| {
            let wanted = index < self.steps;
            Step {
                status: if wanted { StepStatus::Scheduled } else { StepStatus::Cancelled },
                epoch: 0,
                tries: 0,
                ready: wanted,
                lease: None,
                timer: None,
                reported: None,
                results: 0,
            }
        };
        State {
            run: RunStatus::Running,
            steps: std::array::from_fn(step),
            workers: [Worker { life: 1, stalled: false, slow: false, doing: Doing::Nothing }; WORKERS],
            messages: Vec::new(),
            found: None,
            faults_left: self.faults,
        }
    }

    fn successors(&self, state: &State, into: &mut Vec<(Action, State)>) {
        let first = into.len();
        self.all_successors(state, into);
        for (_, after) in &mut into[first..] {
            after.settle_what_is_moot();
        }
    }

    fn broken_by_state(&self, state: &State) -> Option<&'static str> {
        check::broken_by_state(state)
    }

    fn broken_by_action(&self, before: &State, action: Action, after: &State) -> Option<&'static str> {
        check::broken_by_action(before, action, after)
    }

    fn example(&self, before: &State, action: Action, after: &State) -> Option<&'static str> {
        check::example(before, action, after)
    }

    fn is_fault(&self, action: Action) -> bool {
        matches!(action, Action::Lose(_) | Action::Duplicate(_) | Action::Crash { .. } | Action::Stall { .. })
    }

    fn is_settled(&self, state: &State) -> bool {
        state.run.is_final()
    }
}
