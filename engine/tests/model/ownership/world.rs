//! The state of the model of ownership, and its transitions.

use nightshift_protocol::run::{RunStatus, RunTransition};

use super::{Flaw, LIVES, LOOPS, Ownership, REPLICAS, STEPS};

/// The id of a replica's row. A restarted replica has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) replica: usize,
    pub(super) life: usize,
}

/// A decision before its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Decision {
    pub(super) revision: u8,
    pub(super) folds_to: u8,
    pub(super) owner_epoch: u8,
    /// The tenure of the decision.
    pub(super) tenure: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    pub(super) life: usize,
    pub(super) stalled: bool,
    /// Whether the row of each incarnation has not expired.
    pub(super) row_lasts: [bool; LIVES],
    /// The owner epoch under which it believes to own the run.
    pub(super) owns: Option<u8>,
    /// Decisions of its loops, which are interchangeable: sorted.
    pub(super) decisions: [Option<Decision>; LOOPS],
    /// The owner that it found dead, with the owner epoch.
    pub(super) found_dead: Option<(Owner, u8)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) status: RunStatus,
    pub(super) revision: u8,
    pub(super) owner: Owner,
    pub(super) owner_epoch: u8,
    /// Number of events in the log that require a decision: the creation, each step's result, a request to cancel.
    pub(super) logged: u8,
    pub(super) folded: u8,
    /// Number of leased steps, and of ended steps.
    pub(super) open: u8,
    pub(super) over: u8,
    pub(super) replicas: [Replica; REPLICAS],
    pub(super) controls_left: u8,
    pub(super) faults_left: u8,
    /// Counted for the rules.
    pub(super) tenure: u8,
    pub(super) committed_from: u16,
    pub(super) folded_events: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    RowRunsOut { replica: usize, life: usize },
    Renew { replica: usize },
    LookAndDecide { replica: usize, driver: usize },
    Commit { replica: usize, driver: usize },
    FindDeadOwner { replica: usize },
    TakeOver { replica: usize },
    ReportStep,
    Pause,
    Resume,
    Cancel,
    Stall { replica: usize },
    Wake { replica: usize },
    Restart { replica: usize },
}

impl State {
    pub(super) fn row_lasts(&self, owner: Owner) -> bool {
        self.replicas[owner.replica].row_lasts[owner.life]
    }

    pub(super) fn row_of(&self, replica: usize) -> Owner {
        Owner { replica, life: self.replicas[replica].life }
    }

    pub(super) fn control(&mut self, transition: RunTransition) -> bool {
        match self.status.next(transition) {
            Ok(status) if status != self.status && self.controls_left > 0 => {
                self.status = status;
                self.revision += 1;
                true
            }
            _ => false,
        }
    }
}

impl Ownership {
    /// Commits a decision in the database, as one transaction.
    fn commit(&self, before: &State, replica: usize, driver: usize) -> Option<State> {
        let decision = before.replicas[replica].decisions[driver]?;
        let mut after = before.clone();
        after.replicas[replica].decisions[driver] = None;
        after.replicas[replica].decisions[..self.loops].sort_unstable();
        let is_owner = before.owner == before.row_of(replica) && before.owner_epoch == decision.owner_epoch;
        let unchanged = before.revision == decision.revision;
        let passes = !before.status.is_final()
            && (is_owner || self.flaw == Some(Flaw::AdvanceWithoutOwner))
            && (unchanged || self.flaw == Some(Flaw::AdvanceWithoutRevision));
        if !passes {
            // The refusal contains the owner of the run.
            after.replicas[replica].owns = (before.owner == before.row_of(replica)).then_some(before.owner_epoch);
            return Some(after);
        }
        after.committed_from |= 1 << decision.revision;
        after.folded_events += decision.folds_to.saturating_sub(before.folded);
        after.folded = decision.folds_to;
        after.revision += 1;
        if before.status == RunStatus::Cancelling {
            if before.open == 0 {
                after.status = before.status.next(RunTransition::CancelFinished).ok()?;
            }
        } else if before.open + before.over < STEPS {
            after.open += 1;
        } else if before.over == STEPS {
            after.status = before.status.next(RunTransition::Complete).ok()?;
        }
        Some(after)
    }

    fn take_over(&self, before: &State, replica: usize) -> Option<State> {
        let (dead, owner_epoch) = before.replicas[replica].found_dead?;
        let mut after = before.clone();
        after.replicas[replica].found_dead = None;
        let still_owner = before.owner == dead && before.owner_epoch == owner_epoch;
        let still_dead = !before.row_lasts(dead) || self.flaw == Some(Flaw::TakeOverWithoutExpiry);
        let alive_itself = before.row_lasts(before.row_of(replica));
        if still_owner && still_dead && alive_itself {
            after.owner = before.row_of(replica);
            if self.flaw != Some(Flaw::TakeOverWithoutEpoch) {
                after.owner_epoch += 1;
            }
            after.tenure += 1;
            after.replicas[replica].owns = Some(after.owner_epoch);
        }
        Some(after)
    }

    pub(super) fn replica_successors(&self, state: &State, replica: usize, into: &mut Vec<(Action, State)>) {
        let it = state.replicas[replica];
        for life in 0..LIVES {
            if it.row_lasts[life] && (it.stalled || life < it.life) {
                let mut after = state.clone();
                after.replicas[replica].row_lasts[life] = false;
                into.push((Action::RowRunsOut { replica, life }, after));
            }
        }
        if it.stalled {
            let mut after = state.clone();
            after.replicas[replica].stalled = false;
            into.push((Action::Wake { replica }, after));
            return;
        }
        if !it.row_lasts[it.life] {
            let mut after = state.clone();
            after.replicas[replica].row_lasts[it.life] = true;
            into.push((Action::Renew { replica }, after));
        }
        for driver in 0..self.loops {
            if it.decisions[driver].is_some() {
                into.extend(
                    self.commit(state, replica, driver).map(|after| (Action::Commit { replica, driver }, after)),
                );
                continue;
            }
            let to_decide = state.folded < state.logged || (state.status == RunStatus::Cancelling && state.open == 0);
            if let (Some(owner_epoch), true) = (it.owns, to_decide && !state.status.is_final()) {
                let mut after = state.clone();
                after.replicas[replica].decisions[driver] = Some(Decision {
                    revision: state.revision,
                    folds_to: state.logged,
                    owner_epoch,
                    tenure: state.tenure,
                });
                after.replicas[replica].decisions[..self.loops].sort_unstable();
                into.push((Action::LookAndDecide { replica, driver }, after));
            }
        }
        let is_dead = !state.row_lasts(state.owner) && state.owner != state.row_of(replica);
        if it.found_dead.is_some() {
            into.extend(self.take_over(state, replica).map(|after| (Action::TakeOver { replica }, after)));
        } else if is_dead && !state.status.is_final() && self.flaw != Some(Flaw::NoTakeOver) {
            let mut after = state.clone();
            after.replicas[replica].found_dead = Some((state.owner, state.owner_epoch));
            into.push((Action::FindDeadOwner { replica }, after));
        }
        if state.faults_left > 0 {
            let mut after = state.clone();
            after.faults_left -= 1;
            after.replicas[replica].stalled = true;
            into.push((Action::Stall { replica }, after));
        }
        if state.faults_left > 0 && it.life + 1 < LIVES {
            let mut after = state.clone();
            after.faults_left -= 1;
            let mut reborn =
                Replica { life: it.life + 1, owns: None, decisions: [None; LOOPS], found_dead: None, ..it };
            reborn.row_lasts[reborn.life] = true;
            after.replicas[replica] = reborn;
            into.push((Action::Restart { replica }, after));
        }
    }
}
