//! Explains why a step is not running.

use std::collections::BTreeMap;

use nightshift_engine::store::{StepRecord, WorkerRecord};
use nightshift_engine::window::{Opening, opening};
use nightshift_optimizer::agent::REQUEST_OPEN;
use nightshift_protocol::api::MAX_WAIT_MS;
use nightshift_protocol::budget::{BudgetLine, Resource};
use nightshift_protocol::id::RunId;
use nightshift_protocol::machine::{DeviceUse, Executor, Needs, Offers};
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Gate;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

use crate::worker_registry::WRITE_EVERY;

/// Maximum length of a failure's message in the reason, in characters. The step's `failure` contains the whole message.
const MAX_CAUSE_CHARS: usize = 160;
/// Maximum number of missing capabilities in a reason.
const MAX_LACKING: usize = 4;

/// Possible obstacles of a waiting step.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    /// The workers.
    pub(crate) workers: Vec<WorkerRecord>,
    /// The budget of the campaign, if a step waits for it.
    pub(crate) budget: Vec<BudgetLine>,
    /// The schedule of the campaign, if a step waits for a time.
    pub(crate) schedule: Option<Schedule>,
}

/// Facts about the workers that could take a step.
pub(crate) struct Surroundings<'a> {
    pub(crate) run: RunStatus,
    pub(crate) carrier: Carrier,
    pub(crate) agent_slots: usize,
    pub(crate) lease_ms: u64,
    /// Whether the worker of this process has not registered yet.
    pub(crate) own_worker_starts: bool,
    pub(crate) reasons: &'a Reasons,
    pub(crate) now: TimestampMs,
}

/// The server that carries the run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A living server: this one, or the owner of the run.
    Alive,
    /// The server of this name owned it and is gone. `another` says whether a living server can acquire it.
    Gone { server: String, another: bool },
    /// None: this server only reads.
    None,
}

/// Returns the reason of a run that waits for an approval.
pub(crate) fn waits_at(gate: &str, run: &RunId) -> String {
    let what = match Gate::parse(gate) {
        Some(Gate::Plan) => "the plan",
        Some(Gate::NewBest) => "the new best",
        None => gate,
    };
    format!("waits for approval of {what}: nightshift approve {}", run.short())
}

impl Surroundings<'_> {
    /// Returns one sentence for a scheduled step; none for others.
    pub(crate) fn waiting_for(&self, step: &StepRecord) -> Option<String> {
        if step.status != StepStatus::Scheduled {
            return None;
        }
        match self.run {
            RunStatus::Paused => return Some("the run is paused".to_owned()),
            RunStatus::Cancelling => return Some("the run is being cancelled".to_owned()),
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => {
                return Some("the run is over".to_owned());
            }
            RunStatus::Running => {}
        }
        if let Some(resource) = step.blocked_on {
            return Some(self.budget(resource));
        }
        if let Some(due) = step.not_before
            && due > self.now
        {
            return Some(self.moment(step, due));
        }
        match &self.carrier {
            Carrier::None => Some("this server only reads: no server carries the run on".to_owned()),
            Carrier::Gone { server, another: false } => {
                Some(format!("its server {server} is gone, and no other is alive: start one with `nightshift serve`"))
            }
            Carrier::Gone { server, another: true } => Some(format!(
                "{}; its server {server} is gone, another one takes the run over within seconds",
                self.expected_worker(step)
            )),
            Carrier::Alive => Some(self.expected_worker(step)),
        }
    }

    fn expected_worker(&self, step: &StepRecord) -> String {
        match Needs::parse_route(&step.route) {
            Ok(needs) if needs.executor == Executor::Agent => self.agents(),
            Ok(needs) => self.machines(&step.route, &needs),
            Err(error) => format!("its needs cannot be read: {error}"),
        }
    }

    fn budget(&self, resource: Resource) -> String {
        let name = resource.as_str();
        match self.reasons.budget.iter().find(|line| line.resource == resource) {
            Some(BudgetLine { cap: Some(cap), used, reserved, .. }) => {
                format!("the campaign's budget of {name}: {used} used and {reserved} reserved of {cap}")
            }
            _ => format!("the campaign's budget of {name}"),
        }
    }

    /// Returns the reason for a timer: a retry, or the campaign's window.
    fn moment(&self, step: &StepRecord, due: TimestampMs) -> String {
        let seconds = due.since_ms(self.now).div_ceil(1_000);
        if let Some(schedule) = &self.reasons.schedule
            && opening(schedule, self.now, step.timeout_ms) == (Opening::Closed { opens_at: due })
        {
            let Schedule { window, time_zone } = schedule;
            return format!("the campaign's window {window} {time_zone}, in {}", in_words(seconds));
        }
        match &step.failure {
            Some(failure) if failure.code == REQUEST_OPEN => {
                format!("{}; its time ends in {}", failure.message, in_words(seconds))
            }
            Some(failure) => format!("retry in {seconds} s after {}", short(failure)),
            None => format!("retry in {seconds} s"),
        }
    }

    fn agents(&self) -> String {
        let here = u64::try_from(self.agent_slots).unwrap_or(u64::MAX);
        let elsewhere = self.alive().filter(|(worker, offers)| worker.embedded && offers.targets.is_empty());
        let slots: u64 = elsewhere.map(|(_, offers)| u64::from(offers.cpu_slots)).sum();
        match here.max(slots) {
            0 => "no agents run on this server".to_owned(),
            slots => format!("one of the {slots} slots of the agents"),
        }
    }

    fn machines(&self, route: &str, needs: &Needs) -> String {
        let machines: Vec<(&WorkerRecord, Offers)> =
            self.alive().filter(|(_, offers)| !offers.targets.is_empty()).collect();
        let fitting: Vec<&(&WorkerRecord, Offers)> = machines.iter().filter(|(_, offers)| needs.fit(offers)).collect();
        let taking: Vec<u64> = fitting
            .iter()
            .filter(|(worker, _)| !worker.draining)
            .map(|(worker, offers)| slots(offers, needs).saturating_sub(worker.leases))
            .collect();
        match (fitting.len(), taking.len()) {
            // Its offers are unknown before its registration, and may match the step.
            (0, _) if self.own_worker_starts => "the worker of this server is starting".to_owned(),
            (0, _) => no_worker(route, needs, &machines),
            (1, 0) => format!("the only worker that offers {route} is asked to end"),
            (n, 0) => format!("all {n} workers that offer {route} are asked to end"),
            _ if taking.iter().any(|free| *free > 0) => format!("a worker that offers {route} is about to take it"),
            (_, 1) => format!("the only worker that offers {route} is busy"),
            (_, n) => format!("all {n} workers that offer {route} are busy"),
        }
    }

    /// Returns recently seen workers.
    ///
    /// A waiting worker is recorded only from time to time; a busy one with every heartbeat.
    fn alive(&self) -> impl Iterator<Item = (&WorkerRecord, Offers)> {
        let silent_ms = silent_after_ms(self.lease_ms);
        self.reasons.workers.iter().filter_map(move |worker| {
            let is_alive = self.now.since_ms(worker.last_seen_at) <= silent_ms;
            let offers = serde_json::from_value(worker.offers.clone()).ok().filter(|_| is_alive)?;
            Some((worker, offers))
        })
    }
}

/// Returns the time without contact after which a worker has most likely ended. A waiting worker is recorded only from
/// time to time.
pub(crate) fn silent_after_ms(lease_ms: u64) -> u64 {
    let written_ms = u64::try_from(WRITE_EVERY.as_millis()).unwrap_or(u64::MAX);
    lease_ms.saturating_add(MAX_WAIT_MS).saturating_add(written_ms)
}

/// Returns the reason for a step that no worker can take: the missing capabilities, most frequent first.
fn no_worker(route: &str, needs: &Needs, machines: &[(&WorkerRecord, Offers)]) -> String {
    let mut lacking: BTreeMap<String, usize> = BTreeMap::new();
    for (_, offers) in machines {
        for what in needs.lacking(offers) {
            *lacking.entry(what).or_default() += 1;
        }
    }
    let mut lacking: Vec<(String, usize)> = lacking.into_iter().collect();
    lacking.sort_by_key(|(_, workers)| std::cmp::Reverse(*workers));
    let names: Vec<String> = lacking.into_iter().take(MAX_LACKING).map(|(what, _)| what).collect();
    let lacks = if names.is_empty() { "slots for it".to_owned() } else { names.join(", ") };
    let there = match machines.len() {
        0 => "no worker is alive".to_owned(),
        1 => format!("1 worker is alive, it lacks {lacks}"),
        n => format!("{n} workers are alive, they lack {lacks}"),
    };
    format!("no worker offers {route}: {there}; `nightshift work` on a machine that has it starts one")
}

/// Returns how many steps with these needs the machine carries out at once.
fn slots(offers: &Offers, needs: &Needs) -> u64 {
    let devices = offers.devices.iter().filter(|device| needs.fit_device(device));
    match needs.device {
        DeviceUse::None => u64::from(offers.cpu_slots),
        DeviceUse::Shared => devices.map(|device| u64::from(device.shared_slots)).sum(),
        DeviceUse::Exclusive => devices.map(|_| 1).sum(),
    }
}

/// Formats a duration for people.
fn in_words(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Returns code and message of a failure in one short line.
fn short(failure: &StepFailure) -> String {
    let line = failure.message.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = line.chars().take(MAX_CAUSE_CHARS).collect();
    let more = if cut.len() < line.len() { "…" } else { "" };
    format!("{}: {cut}{more}", failure.code)
}

#[cfg(test)]
mod tests;
