//! A model of replicas of the server that drive one run, of which one owns it.
//!
//! A restarted replica has a new row. Its runs stay with its old row until that row expires. A run names its owner's
//! row and an owner epoch. Reading the run (which decides, without effect) and committing the decision are separate
//! actions. Two loops of one replica may do so at the same time, with anything in between. A commit requires the
//! revision that was read, the deciding row as owner, and the owner epoch of this replica.
//!
//! Taking over consists of two actions as well: finding an owner with an expired row, and taking its run, which checks
//! again and increments the owner epoch. A stalled replica resumes with its old beliefs. Only the database's clock
//! counts, and the model reduces it to whether a row has expired. The row of a stalled or dead replica expires at any
//! time; a healthy one renews its row in time.
//!
//! The model counts tenures, which the product does not, to say when a run really changed its owner. The rules:
//!
//! * from one revision at most one decision is committed;
//! * a decision is committed only in the tenure in which it was made;
//! * the owner epoch never decreases;
//! * a run is not taken from an owner whose row has not expired;
//! * a decision folds the real log, each event once.

mod world;

use nightshift_protocol::run::{RunStatus, RunTransition};

use crate::explore::{Model, THE_END_STAYS_WITHIN_REACH, assert_caught, assert_holds};
use world::{Action, Owner, Replica, State};

const REPLICAS: usize = 2;
const LOOPS: usize = 2;
const LIVES: usize = 2;
/// Number of steps of the run: a decision schedules each, and a worker reports it.
const STEPS: u8 = 2;

const ONE_DECISION_PER_REVISION: &str = "from one revision at most one decision is committed";
const ONLY_IN_ITS_TENURE: &str = "a decision is committed only in the tenure in which it was made";
const OWNER_EPOCH_NEVER_FALLS: &str = "the owner epoch never falls";
const ONLY_FROM_THE_DEAD: &str = "a run is not taken from an owner whose row has time left";
const FOLDS_THE_LOG: &str = "a decision folds what the log holds, each event once";

const OUT_OF_TENURE: &str = "a replica comes back and commits what it decided before it lost the run";
const CAME_FIRST: &str = "another decision came first";
const CONTROLLED: &str = "the run was paused or cancelled while a decision was made";
const STILL_ALIVE: &str = "an owner that was found dead has renewed its row before its run is taken";
const TOO_LATE: &str = "two replicas want the run of a dead one";
const REGAINED: &str = "a replica owns a run again that it had lost";

/// A missing guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// A decision commits from any revision.
    AdvanceWithoutRevision,
    /// A decision commits regardless of the owner.
    AdvanceWithoutOwner,
    /// The owner changes, but its epoch does not.
    TakeOverWithoutEpoch,
    /// An owner that was found dead is replaced without a second check.
    TakeOverWithoutExpiry,
    /// No replica takes over runs of dead ones.
    NoTakeOver,
}

struct Ownership {
    flaw: Option<Flaw>,
    /// Number of deciding loops per replica.
    loops: usize,
    /// Number of control actions: pause and resume, or cancel.
    controls: u8,
    /// Number of faults: a replica stalls or restarts.
    faults: u8,
}

/// Decisions race with each other and with control actions.
const DECIDING: Ownership = Ownership { flaw: None, loops: LOOPS, controls: 1, faults: 1 };
/// The run changes its owner several times.
const TAKING_OVER: Ownership = Ownership { flaw: None, loops: 1, controls: 0, faults: 3 };

impl Model for Ownership {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let replica = Replica {
            life: 0,
            stalled: false,
            row_lasts: [true, false],
            owns: None,
            decisions: [None; LOOPS],
            found_dead: None,
        };
        let owner = Replica { owns: Some(1), ..replica };
        State {
            status: RunStatus::Running,
            revision: 0,
            owner: Owner { replica: 0, life: 0 },
            owner_epoch: 1,
            logged: 1,
            folded: 0,
            open: 0,
            over: 0,
            replicas: [owner, replica],
            controls_left: self.controls,
            faults_left: self.faults,
            tenure: 1,
            committed_from: 0,
            folded_events: 0,
        }
    }

    fn successors(&self, state: &State, into: &mut Vec<(Action, State)>) {
        for replica in 0..REPLICAS {
            self.replica_successors(state, replica, into);
        }
        // Any replica accepts a worker's report, which the fence of the lease guards, not the ownership of the run.
        if state.open > 0 && !state.status.is_final() {
            let mut after = state.clone();
            after.open -= 1;
            after.over += 1;
            after.logged += 1;
            into.push((Action::ReportStep, after));
        }
        let mut controlled = state.clone();
        if controlled.control(RunTransition::Pause) {
            into.push((Action::Pause, controlled));
        }
        let mut controlled = state.clone();
        if controlled.status == RunStatus::Paused && controlled.control(RunTransition::Resume) {
            controlled.controls_left -= 1;
            into.push((Action::Resume, controlled));
        }
        let mut controlled = state.clone();
        if controlled.control(RunTransition::Cancel) {
            controlled.controls_left -= 1;
            controlled.logged += 1;
            into.push((Action::Cancel, controlled));
        }
    }

    fn broken_by_state(&self, state: &State) -> Option<&'static str> {
        let folds = state.folded <= state.logged && state.folded_events == state.folded;
        (!folds).then_some(FOLDS_THE_LOG)
    }

    fn broken_by_action(&self, before: &State, action: Action, after: &State) -> Option<&'static str> {
        if let (Action::Commit { replica, driver }, true) = (action, after.revision > before.revision) {
            let decision = before.replicas[replica].decisions[driver]?;
            if before.committed_from & (1 << decision.revision) != 0 {
                return Some(ONE_DECISION_PER_REVISION);
            }
            if before.tenure != decision.tenure {
                return Some(ONLY_IN_ITS_TENURE);
            }
        }
        if before.owner != after.owner && before.row_lasts(before.owner) {
            return Some(ONLY_FROM_THE_DEAD);
        }
        (after.owner_epoch < before.owner_epoch).then_some(OWNER_EPOCH_NEVER_FALLS)
    }

    fn example(&self, before: &State, action: Action, after: &State) -> Option<&'static str> {
        match action {
            Action::Commit { replica, driver } if before.revision == after.revision => {
                let decision = before.replicas[replica].decisions[driver]?;
                if decision.tenure != before.tenure {
                    Some(OUT_OF_TENURE)
                } else if before.committed_from & (1 << decision.revision) != 0 {
                    Some(CAME_FIRST)
                } else {
                    Some(CONTROLLED)
                }
            }
            Action::TakeOver { replica } if before.owner == after.owner => {
                let (dead, _) = before.replicas[replica].found_dead?;
                Some(if before.owner == dead { STILL_ALIVE } else { TOO_LATE })
            }
            Action::TakeOver { .. } => (after.tenure == 3 && after.owner == self.initial().owner).then_some(REGAINED),
            _ => None,
        }
    }

    fn is_fault(&self, action: Action) -> bool {
        matches!(action, Action::Stall { .. } | Action::Restart { .. })
    }

    fn is_settled(&self, state: &State) -> bool {
        state.status.is_final()
    }
}

#[test]
fn each_decision_on_a_run_counts_once() {
    assert_holds("ownership, deciding", &DECIDING, &[OUT_OF_TENURE, CAME_FIRST, CONTROLLED]);
}

#[test]
fn a_replica_that_lost_a_run_commits_nothing_more() {
    let examples = [OUT_OF_TENURE, CAME_FIRST, STILL_ALIVE, TOO_LATE, REGAINED];
    assert_holds("ownership, taking over", &TAKING_OVER, &examples);
}

#[test]
fn an_advance_without_the_revision_guard_is_caught() {
    let flawed = Ownership { flaw: Some(Flaw::AdvanceWithoutRevision), ..DECIDING };
    assert_caught("ownership, advance without revision", &flawed, ONE_DECISION_PER_REVISION);
}

#[test]
fn an_advance_by_a_lost_owner_is_caught() {
    let flawed = Ownership { flaw: Some(Flaw::AdvanceWithoutOwner), ..DECIDING };
    assert_caught("ownership, advance without owner", &flawed, ONLY_IN_ITS_TENURE);
}

#[test]
fn a_take_over_without_a_new_owner_epoch_is_caught() {
    let flawed = Ownership { flaw: Some(Flaw::TakeOverWithoutEpoch), ..TAKING_OVER };
    assert_caught("ownership, take-over without epoch", &flawed, ONLY_IN_ITS_TENURE);
}

#[test]
fn a_take_over_without_a_second_look_at_the_expiry_is_caught() {
    let flawed = Ownership { flaw: Some(Flaw::TakeOverWithoutExpiry), ..TAKING_OVER };
    assert_caught("ownership, take-over without expiry", &flawed, ONLY_FROM_THE_DEAD);
}

#[test]
fn a_run_without_a_takeover_is_caught() {
    let flawed = Ownership { flaw: Some(Flaw::NoTakeOver), ..TAKING_OVER };
    assert_caught("ownership, no take-over", &flawed, THE_END_STAYS_WITHIN_REACH);
}
