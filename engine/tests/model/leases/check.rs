//! The rules of the model of leases, and the examples that must occur in it.

use nightshift_protocol::run::{RunStatus, StepStatus};

use super::world::{Action, Answer, Doing, End, Message, State, Step, Try};

/// Invariants.
pub(super) mod rule {
    pub(crate) const ONE_RESULT: &str = "a step has at most one committed result, and has it exactly when completed";
    pub(crate) const EPOCH_NEVER_FALLS: &str = "the epoch of a step never falls and rises by one with each claim";
    pub(crate) const LEASE_WHILE_LEASED: &str = "a lease exists exactly while its step is leased, with its epoch";
    pub(crate) const IN_ONE_PLACE: &str = "an open step is in exactly one of ready, lease and timer";
    pub(crate) const STALE_CHANGES_NOTHING: &str = "what carries a stale epoch changes nothing";
    pub(crate) const TIME_LEFT_IS_KEPT: &str = "a lease that has time left ends only by its report or with its run";
    pub(crate) const OVER_IS_OVER: &str = "a lease that was over when the heartbeat arrived is not extended";
    pub(crate) const WORKS_UNDER_ITS_LEASE: &str = "a worker whose clock goes works only on what is leased to it";
    pub(crate) const COMMITTED_IS_ANSWERED: &str = "a committed report is never answered as lost";
    pub(crate) const ONE_LEASE_PER_DEVICE: &str = "no two leases are for one device";
    pub(crate) const FINAL_STAYS: &str = "what is over stays as it is";
}

/// Examples that must occur, so that the rules are not satisfied trivially.
pub(super) mod example {
    pub(crate) const LATE_REPORT: &str = "a report comes after its lease was lost";
    pub(crate) const COPY_OF_A_REPORT: &str = "a second copy of a committed report comes";
    pub(crate) const LATE_HEARTBEAT: &str = "a heartbeat comes after its lease was over";
    pub(crate) const HELD_IN_THE_QUEUE: &str = "a heartbeat that came in time is written after its lease was over";
    pub(crate) const SWEPT: &str = "an expired lease is ended";
    pub(crate) const NOT_SWEPT_ANY_MORE: &str = "what was found expired has changed before it is ended";
    pub(crate) const TWO_AT_ONCE: &str = "a worker that stalled works on what another has been given";
    pub(crate) const GIVEN_UP: &str = "a step fails after its last try";
    pub(crate) const RETRIED: &str = "a failed try is followed by another after a while";
    pub(crate) const FIRED_WHILE_PAUSED: &str = "a timer fires while the run is paused";
    pub(crate) const CANCELLED_BY_ITS_WORKER: &str = "a worker stops a cancelled step and says so";
    pub(crate) const CANCELLED_WITH_ITS_LEASE: &str = "a cancelled step ends when its lease runs out";
    pub(crate) const DEVICE_IN_USE: &str = "a worker asks for more than its device can do";
    pub(crate) const ENDED_WITH_ITS_RUN: &str = "a run that fails ends a lease that has time left";
}

pub(super) fn broken_by_state(state: &State) -> Option<&'static str> {
    let steps = &state.steps;
    if steps.iter().any(|step| step.results != u8::from(step.status == StepStatus::Completed)) {
        return Some(rule::ONE_RESULT);
    }
    if steps.iter().any(|step| !lease_fits(step)) {
        return Some(rule::LEASE_WHILE_LEASED);
    }
    if steps.iter().any(|step| !is_where_it_belongs(state.run, step)) {
        return Some(rule::IN_ONE_PLACE);
    }
    let leases = || steps.iter().filter_map(|step| step.lease);
    if leases().any(|lease| leases().filter(|other| other.worker == lease.worker).count() > 1) {
        return Some(rule::ONE_LEASE_PER_DEVICE);
    }
    let unfenced = |worker: usize| works_without_lease(state, worker) && !state.workers[worker].slow;
    (0..state.workers.len()).any(unfenced).then_some(rule::WORKS_UNDER_ITS_LEASE)
}

fn lease_fits(step: &Step) -> bool {
    match step.lease {
        Some(lease) => step.status == StepStatus::Leased && lease.epoch == step.epoch,
        None => step.status != StepStatus::Leased,
    }
}

fn is_where_it_belongs(run: RunStatus, step: &Step) -> bool {
    let places = u8::from(step.ready) + u8::from(step.lease.is_some()) + u8::from(step.timer.is_some());
    match run {
        _ if step.status.is_final() => places == 0,
        RunStatus::Running => places == 1,
        RunStatus::Paused => places <= 1 && !step.ready,
        RunStatus::Cancelling => places == 1 && step.lease.is_some(),
        RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => false,
    }
}

/// Returns whether a worker carries out a step without a valid lease. The end of a run ends all leases at once, and
/// workers learn it with their next heartbeat.
fn works_without_lease(state: &State, worker: usize) -> bool {
    let Doing::Working { on, .. } = state.workers[worker].doing else { return false };
    let lease = state.steps[on.step].lease;
    !state.run.is_final() && lease.is_none_or(|lease| (lease.worker, lease.epoch) != (state.id_of(worker), on.epoch))
}

pub(super) fn broken_by_action(before: &State, action: Action, after: &State) -> Option<&'static str> {
    if let Action::Deliver { message: Message::Report { on, end, .. }, answer: Answer::Lost, .. } = action
        && before.steps[on.step].reported == Some((on.epoch, end))
    {
        return Some(rule::COMMITTED_IS_ANSWERED);
    }
    let carried = match action {
        Action::Deliver { message: Message::Report { on, .. } | Message::Heartbeat { on, .. }, .. }
        | Action::EndExpired(on) => Some(on),
        _ => None,
    };
    let stale = |on: Try| before.steps[on.step].lease.is_none_or(|lease| lease.epoch != on.epoch);
    if carried.is_some_and(stale) && (before.steps != after.steps || before.run != after.run) {
        return Some(rule::STALE_CHANGES_NOTHING);
    }
    if before.run.is_final() && (before.steps != after.steps || before.run != after.run) {
        return Some(rule::FINAL_STAYS);
    }
    before
        .steps
        .iter()
        .zip(&after.steps)
        .enumerate()
        .find_map(|(index, (old, new))| broken_by_change(index, old, new, action))
}

fn broken_by_change(index: usize, old: &Step, new: &Step, action: Action) -> Option<&'static str> {
    let claimed = old.status != StepStatus::Leased && new.status == StepStatus::Leased;
    if new.epoch != old.epoch + u8::from(claimed) {
        return Some(rule::EPOCH_NEVER_FALLS);
    }
    if old.status.is_final() && old != new {
        return Some(rule::FINAL_STAYS);
    }
    let lease = old.lease?;
    let on = Try { step: index, epoch: lease.epoch };
    let its_report = matches!(action, Action::Deliver { message: Message::Report { on: of, .. }, .. } if of == on);
    if new.lease.is_none() && lease.left > 0 && !its_report && action != Action::EndRun {
        return Some(rule::TIME_LEFT_IS_KEPT);
    }
    let extended = new.lease.is_some_and(|new| new.left > lease.left);
    match action {
        Action::Deliver { message: Message::Heartbeat { .. }, waited, .. } if lease.left + waited > 0 => None,
        _ => extended.then_some(rule::OVER_IS_OVER),
    }
}

pub(super) fn example(before: &State, action: Action, after: &State) -> Option<&'static str> {
    match action {
        Action::Deliver { message: Message::Report { on, end, .. }, .. } => example_of_report(before, on, end, after),
        Action::Deliver { message: Message::Heartbeat { on, .. }, waited, .. } => {
            let lease = before.steps[on.step].lease.filter(|lease| lease.epoch == on.epoch)?;
            match lease.left {
                left if left + waited <= 0 => Some(example::LATE_HEARTBEAT),
                left if left <= 0 => Some(example::HELD_IN_THE_QUEUE),
                _ => None,
            }
        }
        Action::Deliver { message: Message::Claim { by, .. }, .. } => {
            let in_use = before.steps.iter().any(|step| step.lease.is_some_and(|lease| lease.worker == by));
            (in_use && before.steps.iter().any(|step| step.ready)).then_some(example::DEVICE_IN_USE)
        }
        Action::Begin(Message::Claimed { by, .. }) => {
            let works_too = |worker: usize| worker != by.place && works_without_lease(after, worker);
            (!works_without_lease(after, by.place) && (0..after.workers.len()).any(works_too))
                .then_some(example::TWO_AT_ONCE)
        }
        Action::EndExpired(on) => match after.steps[on.step].status {
            _ if before.steps == after.steps => Some(example::NOT_SWEPT_ANY_MORE),
            StepStatus::Failed => Some(example::GIVEN_UP),
            StepStatus::Cancelled => Some(example::CANCELLED_WITH_ITS_LEASE),
            _ => Some(example::SWEPT),
        },
        Action::FireTimer { .. } => (before.run == RunStatus::Paused).then_some(example::FIRED_WHILE_PAUSED),
        Action::EndRun => {
            let runs = |step: &Step| step.lease.is_some_and(|lease| lease.left > 0);
            before.steps.iter().any(runs).then_some(example::ENDED_WITH_ITS_RUN)
        }
        _ => None,
    }
}

fn example_of_report(before: &State, on: Try, end: End, after: &State) -> Option<&'static str> {
    let (old, new) = (before.steps[on.step], after.steps[on.step]);
    if old == new {
        let copy = old.reported == Some((on.epoch, end));
        return Some(if copy { example::COPY_OF_A_REPORT } else { example::LATE_REPORT });
    }
    match (end, new.status) {
        (End::Cancelled, StepStatus::Cancelled) => Some(example::CANCELLED_BY_ITS_WORKER),
        (End::Retry, StepStatus::Scheduled) => Some(example::RETRIED),
        _ => None,
    }
}
