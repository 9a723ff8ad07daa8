//! Why a step is not running.

use nightshift_engine::store::{StepRecord, WorkerRecord};
use nightshift_protocol::api::MAX_WAIT_MS;
use nightshift_protocol::machine::{Needs, Offers};
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;

/// Longest message of a failure in the reason, in characters: the whole one is in the step's `failure`.
const MAX_CAUSE_CHARS: usize = 160;

/// What the server knows about who could take a step.
pub(crate) struct Surroundings<'a> {
    pub(crate) run: RunStatus,
    pub(crate) drives: bool,
    pub(crate) agent_slots: usize,
    pub(crate) lease_ms: u64,
    pub(crate) workers: &'a [WorkerRecord],
    pub(crate) now: TimestampMs,
}

impl Surroundings<'_> {
    /// One sentence for a step that is scheduled; none for any other.
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
        if let Some(due) = step.not_before
            && due > self.now
        {
            let wait = format!("retry in {} s", due.since_ms(self.now).div_ceil(1_000));
            return Some(
                step.failure.as_ref().map_or(wait.clone(), |failure| format!("{wait} after {}", short(failure))),
            );
        }
        if !self.drives {
            return Some("this server only reads: no server carries the run on".to_owned());
        }
        Some(if step.route == Needs::agent().route() { self.agents() } else { self.machines(&step.route) })
    }

    fn agents(&self) -> String {
        if self.agent_slots == 0 {
            "no agents run on this server".to_owned()
        } else {
            format!("one of the {} slots of the agents", self.agent_slots)
        }
    }

    fn machines(&self, route: &str) -> String {
        let slots: Vec<(u32, u64)> = self
            .workers
            .iter()
            .filter(|worker| self.is_alive(worker))
            .filter_map(|worker| {
                let offers: Offers = serde_json::from_value(worker.offers.clone()).ok()?;
                Some((slots(&offers, route), worker.leases))
            })
            .filter(|(slots, _)| *slots > 0)
            .collect();
        if slots.is_empty() {
            format!("no worker offers {route}")
        } else if slots.iter().all(|(slots, leases)| *leases >= u64::from(*slots)) {
            match slots.len() {
                1 => format!("the only worker that offers {route} is busy"),
                n => format!("all {n} workers that offer {route} are busy"),
            }
        } else {
            format!("a worker that offers {route} is about to take it")
        }
    }

    /// A worker that waits for work says nothing else meanwhile; a busy one is heard of with every heartbeat.
    fn is_alive(&self, worker: &WorkerRecord) -> bool {
        self.now.since_ms(worker.last_seen_at) <= self.lease_ms.saturating_add(MAX_WAIT_MS)
    }
}

/// How many steps of this route the machine carries out at once.
fn slots(offers: &Offers, route: &str) -> u32 {
    let Some((target, device)) = route.strip_prefix("worker/").and_then(|rest| rest.split_once('/')) else {
        return 0;
    };
    if !offers.targets.iter().any(|offered| offered.as_str() == target) {
        return 0;
    }
    if device == "none" { offers.cpu_slots } else { offers.device_slots }
}

/// Code and message of a failure in one short line.
fn short(failure: &StepFailure) -> String {
    let line = failure.message.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut: String = line.chars().take(MAX_CAUSE_CHARS).collect();
    let more = if cut.len() < line.len() { "…" } else { "" };
    format!("{}: {cut}{more}", failure.code)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_engine::retry::RetryPolicy;
    use nightshift_protocol::id::{RunId, StepId, WorkerId};
    use nightshift_protocol::machine::{MachineFacts, SandboxReport};
    use nightshift_protocol::task::Target;
    use uuid::Uuid;

    use super::*;

    const NOW: TimestampMs = TimestampMs(1_000_000);

    fn step(route: &str) -> StepRecord {
        StepRecord {
            id: StepId::from_uuid(Uuid::from_u128(1)),
            run: RunId::from_uuid(Uuid::from_u128(2)),
            key: "k".to_owned(),
            kind: "measure".to_owned(),
            route: route.to_owned(),
            status: StepStatus::Scheduled,
            epoch: 0,
            tries: 0,
            retry: RetryPolicy::default(),
            timeout_ms: 1_000,
            worker: None,
            input: serde_json::Value::Null,
            output: None,
            failure: None,
            scheduled_at: NOW,
            started_at: None,
            finished_at: None,
            not_before: None,
        }
    }

    fn worker(target: Target, leases: u64, last_seen_at: TimestampMs) -> WorkerRecord {
        let offers = Offers {
            targets: vec![target],
            cpu_slots: 2,
            device_slots: 1,
            machine: MachineFacts {
                host: "host".to_owned(),
                os: "os".to_owned(),
                processor: "cpu".to_owned(),
                cores: 2,
                features: Vec::new(),
                memory_bytes: 1,
                last_level_cache_bytes: None,
                cpp_toolchain: None,
                sandbox: SandboxReport::default(),
            },
        };
        WorkerRecord {
            id: WorkerId::from_uuid(Uuid::from_u128(3)),
            name: "w".to_owned(),
            embedded: false,
            offers: serde_json::to_value(offers).unwrap(),
            version: "0".to_owned(),
            last_seen_at,
            leases,
        }
    }

    fn around(run: RunStatus, workers: &[WorkerRecord]) -> Surroundings<'_> {
        Surroundings { run, drives: true, agent_slots: 2, lease_ms: 15_000, workers, now: NOW }
    }

    #[test]
    fn a_step_that_nobody_can_take_says_what_is_missing() {
        let cpu_only = [worker(Target::Cpu, 0, NOW)];
        let waits = around(RunStatus::Running, &cpu_only).waiting_for(&step("worker/cuda/exclusive"));
        assert_eq!(waits.unwrap(), "no worker offers worker/cuda/exclusive");
    }

    #[test]
    fn a_worker_that_was_not_heard_of_for_long_offers_nothing() {
        let gone = [worker(Target::Cpu, 0, TimestampMs(NOW.0 - 60_000))];
        let waits = around(RunStatus::Running, &gone).waiting_for(&step("worker/cpu/none"));
        assert_eq!(waits.unwrap(), "no worker offers worker/cpu/none");
    }

    #[test]
    fn busy_workers_are_told_from_free_ones() {
        let busy = [worker(Target::Cpu, 1, NOW)];
        let waits = around(RunStatus::Running, &busy).waiting_for(&step("worker/cpu/exclusive"));
        assert_eq!(waits.unwrap(), "the only worker that offers worker/cpu/exclusive is busy");
        let waits = around(RunStatus::Running, &busy).waiting_for(&step("worker/cpu/none"));
        assert_eq!(waits.unwrap(), "a worker that offers worker/cpu/none is about to take it");
    }

    #[test]
    fn a_pause_and_a_retry_are_named_before_anything_else() {
        let mut waiting = step("worker/cpu/none");
        waiting.not_before = Some(NOW.plus_ms(3_500));
        assert_eq!(around(RunStatus::Running, &[]).waiting_for(&waiting).unwrap(), "retry in 4 s");
        waiting.failure = Some(StepFailure::retriable("model.timeout", "no answer\ncame"));
        let waits = around(RunStatus::Running, &[]).waiting_for(&waiting).unwrap();
        assert_eq!(waits, "retry in 4 s after model.timeout: no answer came");
        waiting.failure = Some(StepFailure::retriable("model.timeout", "é".repeat(5_000)));
        let waits = around(RunStatus::Running, &[]).waiting_for(&waiting).unwrap();
        assert!(waits.ends_with("é…") && waits.chars().count() < 250, "{waits}");
        assert_eq!(around(RunStatus::Paused, &[]).waiting_for(&waiting).unwrap(), "the run is paused");
    }

    #[test]
    fn a_step_in_somebodys_hands_waits_for_nothing() {
        let mut leased = step("worker/cpu/none");
        leased.status = StepStatus::Leased;
        assert_eq!(around(RunStatus::Running, &[]).waiting_for(&leased), None);
    }
}
