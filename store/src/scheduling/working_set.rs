//! The rows that one transaction loaded, with its changes.
//!
//! Verbs are pure functions over a working set: they check, and then change everything or nothing. The changes are
//! written at the end, one statement per table, whatever their number.

use std::collections::{BTreeSet, HashMap, HashSet};

use nightshift_engine::store::{ChangedRun, Notice};
use nightshift_protocol::id::StepId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;

use super::event_text::{EventText, artifact_hashes};
use super::rows::{Campaign, NewEvent, Place, Run, Step};
use crate::failure::Failure;

/// The working set. See the module.
#[derive(Debug, Default)]
pub(crate) struct WorkingSet {
    pub(crate) runs: HashMap<i64, Run>,
    pub(crate) steps: HashMap<i64, Step>,
    pub(crate) campaigns: HashMap<i64, Campaign>,
    /// Internal keys by public id.
    pub(crate) run_ids: HashMap<String, i64>,
    pub(crate) step_ids: HashMap<String, i64>,
    /// Existing keys among those that decisions want to schedule.
    pub(crate) taken_keys: HashSet<(i64, String)>,
    /// Routes by canonical text, and in the other direction.
    pub(crate) route_ids: HashMap<String, i64>,
    pub(crate) routes: HashMap<i64, String>,
    /// Ids for new steps, the smallest last.
    pub(crate) free_step_ids: Vec<i64>,
    /// Loaded ready steps by route: rank and id.
    pub(crate) ready: HashMap<i64, BTreeSet<(i64, i64)>>,
    /// The virtual time of fair queueing when the transaction began.
    pub(crate) virtual_now: i64,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) artifact_uses: BTreeSet<(i64, String)>,
    pub(crate) notices: HashSet<Notice>,
    /// The highest rank that was claimed.
    pub(crate) claimed_rank: Option<i64>,
}

impl WorkingSet {
    /// Returns a loaded run.
    pub(crate) fn run(&self, id: i64) -> Result<&Run, Failure> {
        self.runs.get(&id).ok_or_else(|| not_loaded("a run"))
    }

    /// Returns a loaded run, mutably.
    pub(crate) fn run_mut(&mut self, id: i64) -> Result<&mut Run, Failure> {
        self.runs.get_mut(&id).ok_or_else(|| not_loaded("a run"))
    }

    /// Returns a loaded step.
    pub(crate) fn step(&self, id: i64) -> Result<&Step, Failure> {
        self.steps.get(&id).ok_or_else(|| not_loaded("a step"))
    }

    /// Returns a loaded step, mutably.
    pub(crate) fn step_mut(&mut self, id: i64) -> Result<&mut Step, Failure> {
        self.steps.get_mut(&id).ok_or_else(|| not_loaded("a step"))
    }

    /// Returns a loaded campaign, mutably.
    pub(crate) fn campaign_mut(&mut self, id: i64) -> Result<&mut Campaign, Failure> {
        self.campaigns.get_mut(&id).ok_or_else(|| not_loaded("a campaign"))
    }

    /// Returns the step of that public id.
    pub(crate) fn step_of(&self, id: &StepId) -> Option<&Step> {
        self.steps.get(self.step_ids.get(id.as_str())?)
    }

    /// Adds a loaded run.
    pub(crate) fn add_run(&mut self, run: Run) {
        self.run_ids.insert(run.public_id.as_str().to_owned(), run.id);
        self.runs.insert(run.id, run);
    }

    /// Adds a loaded step. A step that is present stays unchanged, because it may be newer than the stored row.
    pub(crate) fn add_step(&mut self, step: Step) {
        if self.steps.contains_key(&step.id) {
            return;
        }
        if let Place::Ready { rank, .. } = step.place {
            self.ready.entry(step.route_id).or_default().insert((rank, step.id));
        }
        self.step_ids.insert(step.public_id.as_str().to_owned(), step.id);
        self.steps.insert(step.id, step);
    }

    /// Moves a step to another place.
    pub(crate) fn put(&mut self, step_id: i64, place: Place) -> Result<(), Failure> {
        let step = self.step_mut(step_id)?;
        let route_id = step.route_id;
        let left = std::mem::replace(&mut step.place, place);
        let entered = match step.place {
            Place::Ready { rank, .. } => Some(rank),
            Place::Timer { not_before, .. } => {
                self.notices.insert(Notice::TimerSet(TimestampMs(not_before)));
                None
            }
            _ => None,
        };
        if let Place::Ready { rank, .. } = left
            && let Some(ready) = self.ready.get_mut(&route_id)
        {
            ready.remove(&(rank, step_id));
        }
        if let Some(rank) = entered {
            self.ready.entry(route_id).or_default().insert((rank, step_id));
        }
        Ok(())
    }

    /// Appends an event to the log of a run. Returns its position.
    pub(crate) fn append(&mut self, run_id: i64, at: i64, event: EventText) -> Result<i64, Failure> {
        let run = self.run_mut(run_id)?;
        run.changed = true;
        run.last_seq += 1;
        let seq = run.last_seq;
        if event.wakes {
            run.wake_seq = seq;
        }
        self.artifact_uses.extend(artifact_hashes(&event.body).map(|hash| (run_id, hash)));
        self.events.push(NewEvent { run_id, seq, at, kind: event.kind, body: event.body });
        Ok(seq)
    }

    /// Returns whether steps of the run may begin.
    pub(crate) fn is_running(&self, run_id: i64) -> Result<bool, Failure> {
        Ok(self.run(run_id)?.status == RunStatus::Running)
    }

    /// Returns the notices of the commit.
    pub(crate) fn take_notices(&mut self) -> HashSet<Notice> {
        let mut notices = std::mem::take(&mut self.notices);
        notices.extend(self.runs.values().filter(|run| run.changed).map(|run| {
            let owner = run.owner.as_deref().and_then(|owner| owner.parse().ok());
            let to_drive = run.decided.is_none() || run.wake_seq > run.folded_seq;
            Notice::RunChanged(ChangedRun { id: run.public_id.clone(), owner, to_drive })
        }));
        let became_ready = self.steps.values().filter(|step| {
            matches!(step.place, Place::Ready { .. }) && !matches!(step.place_before, Place::Ready { .. })
        });
        let routes: HashSet<i64> = became_ready.map(|step| step.route_id).collect();
        notices.extend(
            routes
                .iter()
                .map(|route| self.routes.get(route).map_or(Notice::Unknown, |needs| Notice::Ready(needs.clone()))),
        );
        notices
    }
}

/// Returns the error for a verb that refers to a row that was not loaded. This is a bug.
fn not_loaded(what: &'static str) -> Failure {
    Failure::unreadable(what, &"it was not loaded before it was changed; this is a defect of the program")
}
