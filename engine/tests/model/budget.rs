//! A model of parallel steps that reserve from one budget before their work and settle after it.
//!
//! A try begins with one transaction that leases its step and reserves the maximum cost of the try. The sum of used and
//! reserved amounts must stay within the cap. The try ends with a transaction that releases the reservation and records
//! what was used. That is the amount in the worker's report or, if the worker was lost, the whole reservation. The
//! model tracks the real spending separately. The rules:
//!
//! * `used + reserved` never exceeds the cap;
//! * `reserved` is the sum of the open reservations;
//! * `used` and `reserved` together cover the real spending, so it never exceeds the cap either.

use crate::explore::{Model, assert_caught, assert_holds};

const CAP: u8 = 4;
const STEPS: usize = 3;
const MAX_TRIES: u8 = 2;
/// Maximum cost of a try of each step. The first tries together exceed the cap.
const MOST: [u8; STEPS] = [2, 2, 1];

const NEVER_OVERSPENT: &str = "used and reserved together stay within the cap";
const RESERVED_FOR_A_TRY: &str = "what is reserved is the sum of the open reservations";
const SPENT_IS_COVERED: &str = "what was really spent is used or reserved";

const REFUSED: &str = "a try does not fit while others hold reservations";
const EXHAUSTED: &str = "a step ends because the budget is used up";
const LATE: &str = "a report comes after its try was given up";
const DOUBLED: &str = "a report comes twice";
const GIVEN_BACK: &str = "less is used than was reserved";

/// A missing guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// The budget is read, and reserved from later without a second check.
    CheckOutsideTheTransaction,
    /// A report settles any open try.
    SettleWithoutEpoch,
    /// The try of a lost worker counts as free.
    LostTryIsFree,
    /// A lost try keeps its reservation.
    LostTryKeepsItsReservation,
}

struct Budget {
    flaw: Option<Flaw>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// Blocked by the budget.
    Waiting,
    /// The flawed check saw enough budget.
    SawRoom,
    /// Leased; a worker spends up to its reservation.
    Open,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Step {
    phase: Phase,
    epoch: u8,
    /// Real spending of the open try.
    spent: u8,
    /// Its worker has finished, and reports until it gets an answer.
    done: bool,
}

/// A report in flight: it may arrive late, twice, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Report {
    step: usize,
    epoch: u8,
    spent: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    used: u8,
    reserved: u8,
    steps: [Step; STEPS],
    /// Sorted.
    reports: Vec<Report>,
    /// Real spending of all tries.
    spent: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Check { step: usize },
    Begin { step: usize },
    GiveUpForLackOfBudget { step: usize },
    Spend { step: usize },
    SendReport { step: usize },
    LoseReport(Report),
    ReceiveReport(Report),
    ReceiveReportAndKeepACopy(Report),
    ExpireLease { step: usize },
}

impl Budget {
    fn fits(state: &State, step: usize) -> bool {
        state.used + state.reserved + MOST[step] <= CAP
    }

    fn begin(state: &State, step: usize) -> State {
        let mut after = state.clone();
        after.reserved += MOST[step];
        after.steps[step] = Step { phase: Phase::Open, epoch: state.steps[step].epoch + 1, spent: 0, done: false };
        after
    }

    /// One transaction: ends the try, releases its reservation, and records what was used.
    fn settle(state: &mut State, step: usize, used: u8, phase: Phase) {
        state.reserved = state.reserved.saturating_sub(MOST[step]);
        state.used += used;
        state.steps[step].phase = phase;
        state.steps[step].spent = 0;
        state.steps[step].done = false;
    }

    fn receive(&self, state: &State, report: Report) -> State {
        let mut after = state.clone();
        let held = state.steps[report.step];
        let fence_holds = held.phase == Phase::Open && held.epoch == report.epoch;
        if fence_holds {
            Self::settle(&mut after, report.step, report.spent, Phase::Over);
        } else if self.flaw == Some(Flaw::SettleWithoutEpoch) {
            after.reserved = after.reserved.saturating_sub(MOST[report.step]);
            after.used += report.spent;
        }
        after
    }

    fn expire(&self, state: &State, step: usize) -> State {
        let mut after = state.clone();
        let phase = if state.steps[step].epoch >= MAX_TRIES { Phase::Over } else { Phase::Waiting };
        let used = if self.flaw == Some(Flaw::LostTryIsFree) { 0 } else { MOST[step] };
        if !state.steps[step].done {
            // The lost worker may continue and spend its whole reservation.
            after.spent += MOST[step] - state.steps[step].spent;
        }
        Self::settle(&mut after, step, used, phase);
        if self.flaw == Some(Flaw::LostTryKeepsItsReservation) {
            after.reserved += MOST[step];
        }
        after
    }

    fn step_successors(&self, state: &State, index: usize, into: &mut Vec<(Action, State)>) {
        let step = state.steps[index];
        match step.phase {
            Phase::Waiting if self.flaw == Some(Flaw::CheckOutsideTheTransaction) && Self::fits(state, index) => {
                let mut after = state.clone();
                after.steps[index].phase = Phase::SawRoom;
                into.push((Action::Check { step: index }, after));
            }
            Phase::Waiting if Self::fits(state, index) => {
                into.push((Action::Begin { step: index }, Self::begin(state, index)));
            }
            Phase::Waiting if state.used + MOST[index] > CAP => {
                let mut after = state.clone();
                after.steps[index].phase = Phase::Over;
                into.push((Action::GiveUpForLackOfBudget { step: index }, after));
            }
            Phase::Waiting | Phase::Over => {}
            Phase::SawRoom => into.push((Action::Begin { step: index }, Self::begin(state, index))),
            Phase::Open => {
                if !step.done && step.spent < MOST[index] {
                    let mut after = state.clone();
                    after.steps[index].spent += 1;
                    after.spent += 1;
                    into.push((Action::Spend { step: index }, after));
                }
                let report = Report { step: index, epoch: step.epoch, spent: step.spent };
                if !state.reports.iter().any(|sent| (sent.step, sent.epoch) == (index, step.epoch)) {
                    let mut after = state.clone();
                    after.steps[index].done = true;
                    after.reports.push(report);
                    after.reports.sort_unstable();
                    into.push((Action::SendReport { step: index }, after));
                }
                into.push((Action::ExpireLease { step: index }, self.expire(state, index)));
            }
        }
    }
}

impl Model for Budget {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let waiting = Step { phase: Phase::Waiting, epoch: 0, spent: 0, done: false };
        State { used: 0, reserved: 0, steps: [waiting; STEPS], reports: Vec::new(), spent: 0 }
    }

    fn successors(&self, state: &State, into: &mut Vec<(Action, State)>) {
        for step in 0..STEPS {
            self.step_successors(state, step, into);
        }
        for (index, report) in state.reports.iter().enumerate() {
            let mut without = state.clone();
            without.reports.remove(index);
            into.push((Action::ReceiveReport(*report), self.receive(&without, *report)));
            into.push((Action::ReceiveReportAndKeepACopy(*report), self.receive(state, *report)));
            into.push((Action::LoseReport(*report), without));
        }
    }

    fn broken_by_state(&self, state: &State) -> Option<&'static str> {
        let open = (0..STEPS).filter(|step| state.steps[*step].phase == Phase::Open);
        if state.used + state.reserved > CAP {
            Some(NEVER_OVERSPENT)
        } else if state.reserved != open.map(|step| MOST[step]).sum::<u8>() {
            Some(RESERVED_FOR_A_TRY)
        } else if state.spent > state.used + state.reserved {
            Some(SPENT_IS_COVERED)
        } else {
            None
        }
    }

    fn broken_by_action(&self, _: &State, _: Action, _: &State) -> Option<&'static str> {
        None
    }

    fn example(&self, before: &State, action: Action, _: &State) -> Option<&'static str> {
        match action {
            Action::Begin { .. } => (0..STEPS)
                .any(|step| {
                    before.steps[step].phase == Phase::Waiting
                        && !Self::fits(before, step)
                        && before.used + MOST[step] <= CAP
                })
                .then_some(REFUSED),
            Action::GiveUpForLackOfBudget { .. } => Some(EXHAUSTED),
            Action::ReceiveReport(report) | Action::ReceiveReportAndKeepACopy(report) => {
                let step = before.steps[report.step];
                match step.phase {
                    Phase::Over if step.epoch == report.epoch => Some(DOUBLED),
                    Phase::Open if step.epoch == report.epoch => {
                        (report.spent < MOST[report.step]).then_some(GIVEN_BACK)
                    }
                    _ => Some(LATE),
                }
            }
            _ => None,
        }
    }

    fn is_fault(&self, action: Action) -> bool {
        matches!(action, Action::LoseReport(_) | Action::ReceiveReportAndKeepACopy(_))
    }

    fn is_settled(&self, state: &State) -> bool {
        state.steps.iter().all(|step| step.phase == Phase::Over)
    }
}

#[test]
fn parallel_steps_never_overspend_a_budget() {
    let examples = [REFUSED, EXHAUSTED, LATE, DOUBLED, GIVEN_BACK];
    assert_holds("budget", &Budget { flaw: None }, &examples);
}

#[test]
fn a_budget_that_is_checked_outside_the_transaction_is_caught() {
    let flawed = Budget { flaw: Some(Flaw::CheckOutsideTheTransaction) };
    assert_caught("budget, checked outside the transaction", &flawed, NEVER_OVERSPENT);
}

#[test]
fn a_budget_that_is_settled_without_the_epoch_is_caught() {
    let flawed = Budget { flaw: Some(Flaw::SettleWithoutEpoch) };
    assert_caught("budget, settled without the epoch", &flawed, RESERVED_FOR_A_TRY);
}

#[test]
fn a_budget_that_books_a_lost_try_as_free_is_caught() {
    let flawed = Budget { flaw: Some(Flaw::LostTryIsFree) };
    assert_caught("budget, a lost try is free", &flawed, SPENT_IS_COVERED);
}

#[test]
fn a_budget_that_keeps_the_reservation_of_a_lost_try_is_caught() {
    let flawed = Budget { flaw: Some(Flaw::LostTryKeepsItsReservation) };
    assert_caught("budget, a lost try keeps its reservation", &flawed, RESERVED_FOR_A_TRY);
}
