//! Random commands on a store, generated from a seed.

use nightshift_engine::event::Event;
use nightshift_engine::store::{
    ClaimRequest, DeviceLane, NewCampaign, NewRun, OwnerFence, Report, StepRecord, TryEnd, WorkerRecord,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps, Resource};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, WorkerId};
use nightshift_protocol::machine::{DeviceUse, Needs};
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::Target;
use nightshift_protocol::time::TimestampMs;
use serde_json::json;
use uuid::Uuid;

use crate::answers::Answer;
use crate::bench::{LEASE_MS, amount, lost, order, worker_record};

/// A seeded random number generator (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())].clone()) }
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Known ids and leases, valid or not, for later commands.
#[derive(Default)]
pub(crate) struct World {
    ids: u128,
    pub(crate) campaigns: Vec<CampaignId>,
    pub(crate) runs: Vec<RunId>,
    servers: Vec<ServerId>,
    workers: Vec<WorkerId>,
    pub(crate) leases: Vec<StepRecord>,
    fences: Vec<(RunId, OwnerFence)>,
}

/// One command.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Create(Box<NewCampaign>),
    /// Schedules steps, or ends the run, based on the stored state at its execution.
    Decide {
        run: RunId,
        orders: Vec<(StepId, StepOrder)>,
        end: Option<(RunTransition, Event)>,
        fence: Option<OwnerFence>,
    },
    Claim(ClaimRequest),
    Report(Report),
    /// A report, the following decision, and the next claim, in one commit.
    Flush(Report, ClaimRequest),
    Heartbeat {
        worker: WorkerId,
        leases: Vec<(StepId, u64)>,
    },
    Sweep,
    FireTimers(u32),
    Control {
        run: RunId,
        transition: RunTransition,
    },
    Retry {
        run: RunId,
        key: Option<String>,
    },
    Signal {
        run: RunId,
        key: Option<(String, String)>,
    },
    Priority {
        run: RunId,
        priority: i32,
    },
    Budget {
        campaign: CampaignId,
        caps: BudgetCaps,
    },
    Window {
        campaign: CampaignId,
        schedule: Option<Schedule>,
    },
    Weight {
        campaign: CampaignId,
        weight: u32,
    },
    Reserve {
        step: StepRecord,
        amounts: Vec<Amount>,
    },
    Settle {
        step: StepRecord,
        released: Vec<Amount>,
        used: Vec<Amount>,
    },
    Server {
        id: ServerId,
        sole: bool,
    },
    Pulse(ServerId),
    Retire(ServerId),
    Reap,
    Acquire {
        server: ServerId,
        run: Option<RunId>,
    },
    Worker(Box<WorkerRecord>),
    Drain {
        worker: WorkerId,
        draining: bool,
    },
    Forget(TimestampMs),
    Artifact(Vec<u8>),
    Prune {
        campaign: Option<CampaignId>,
        limit: u32,
    },
    Look,
    /// An operation on notes, lessons, retrievals or scores.
    Know {
        run: RunId,
        what: usize,
        number: u32,
    },
}

fn needs() -> [Needs; 3] {
    let device = |device| Needs::worker(Target::Cuda, device);
    [Needs::agent(), device(DeviceUse::Shared), device(DeviceUse::Exclusive)]
}

const KEYS: [&str; 6] = ["split", "part1", "part2", "part3", "join", "check"];
const CAPPED: [Resource; 3] = [Resource::Tokens, Resource::DeviceMs, Resource::Attempts];

impl World {
    fn uuid(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }

    fn caps(dice: &mut Dice) -> BudgetCaps {
        let cap = |dice: &mut Dice| (!dice.one_in(3)).then(|| u64::try_from(dice.below(200)).unwrap());
        BudgetCaps {
            tokens: cap(dice),
            device_ms: cap(dice).map(|cap| cap * 1_000),
            attempts: cap(dice),
            wall_ms: dice.one_in(8).then_some(200_000),
            cost_microusd: None,
        }
    }

    fn amounts(dice: &mut Dice) -> Vec<Amount> {
        let some = CAPPED.into_iter().filter(|_| dice.one_in(2)).collect::<Vec<_>>();
        some.into_iter().map(|resource| amount(resource, u64::try_from(dice.below(60)).unwrap())).collect()
    }

    fn schedule(dice: &mut Dice, at: TimestampMs) -> Option<Schedule> {
        if dice.one_in(3) {
            return None;
        }
        // Around the current time, so that windows open and close.
        let minute = usize::try_from(at.0 / 60_000).unwrap() + dice.below(5);
        let (begin, end) = (minute % 1_440, (minute + 2 + dice.below(30)) % 1_440);
        let window = format!("{:02}:{:02}-{:02}:{:02}", begin / 60, begin % 60, end / 60, end % 60);
        Some(Schedule { window: window.parse().unwrap(), time_zone: "UTC".to_owned() })
    }

    fn claim(dice: &mut Dice, worker: WorkerId, at: TimestampMs) -> ClaimRequest {
        let [agent, shared, exclusive] = needs().map(|needs| needs.route());
        let lanes = (0..dice.below(3)).map(|device| DeviceLane {
            device: u32::try_from(device).unwrap(),
            exclusive: vec![exclusive.clone()],
            shared: vec![shared.clone()],
            shared_slots: 2,
        });
        let devices = lanes.collect();
        let cpu_slots = u32::try_from(dice.below(4)).unwrap();
        ClaimRequest { worker, routes: vec![agent], cpu_slots, devices, at, expires_at: at.plus_ms(LEASE_MS) }
    }

    fn report(dice: &mut Dice, step: &StepRecord, at: TimestampMs) -> Report {
        let end = match dice.below(10) {
            0 => TryEnd::Retry { failure: lost(), at },
            1 => TryEnd::Retry { failure: lost(), at: at.plus_ms(500) },
            2 => TryEnd::Failed { failure: StepFailure::fatal("x", "broken") },
            3 => TryEnd::Cancelled,
            4 => TryEnd::Wait { failure: lost(), at: at.plus_ms(500) },
            _ => TryEnd::Completed { output: json!({ "key": step.key, "third": 1.0 / 3.0, "nul": "a\0b" }) },
        };
        Report { step: step.id.clone(), epoch: step.epoch, end, used: Self::amounts(dice), at }
    }

    fn order(&mut self, dice: &mut Dice) -> (StepId, StepOrder) {
        let needs = dice.pick(&needs()).unwrap();
        let reserve = if dice.one_in(2) { Self::amounts(dice) } else { Vec::new() };
        let cost_ms = 1 + u64::try_from(dice.below(5_000)).unwrap();
        let order = StepOrder { needs, reserve, cost_ms, ..order(KEYS[dice.below(KEYS.len())]) };
        (StepId::from_uuid(self.uuid()), order)
    }

    fn create(&mut self, dice: &mut Dice, at: TimestampMs) -> Command {
        let runs = 1 + dice.below(3);
        let artifact = ArtifactHash::of(&[u8::try_from(dice.below(4)).unwrap()]);
        let new = NewCampaign {
            id: CampaignId::from_uuid(self.uuid()),
            name: "night".to_owned(),
            spec: json!({ "schema": 1 }),
            at,
            idempotency: dice.one_in(3).then(|| (format!("key{}", dice.below(3)), format!("d{}", dice.below(2)))),
            budget: Self::caps(dice),
            schedule: if dice.one_in(3) { Self::schedule(dice, at) } else { None },
            priority: i32::try_from(dice.below(3)).unwrap() - 1,
            weight: 1 + u32::try_from(dice.below(3)).unwrap(),
            owner: if dice.one_in(3) { dice.pick(&self.servers) } else { None },
            runs: (0..runs)
                .map(|n| NewRun {
                    id: RunId::from_uuid(self.uuid()),
                    input: json!({ "n": n, "of": artifact }),
                    digest: json!({}),
                })
                .collect(),
        };
        Command::Create(Box::new(new))
    }

    fn decide(&mut self, dice: &mut Dice, run: RunId) -> Command {
        let end = match dice.below(12) {
            0 => Some((RunTransition::Complete, Event::RunCompleted { result: json!(1) })),
            1 => Some((RunTransition::Fail, Event::RunFailed { failure: lost() })),
            2 => Some((RunTransition::CancelFinished, Event::RunCancelled)),
            _ => None,
        };
        let orders = if end.is_some() { 0 } else { 1 + dice.below(3) };
        let orders = (0..orders).map(|_| self.order(dice)).collect();
        let fence = if dice.one_in(4) { dice.pick(&self.fences).map(|(_, fence)| fence) } else { None };
        Command::Decide { run, orders, end, fence }
    }

    /// Returns the next command. First creates missing prerequisites.
    pub(crate) fn choose(&mut self, dice: &mut Dice, at: TimestampMs) -> Command {
        let (Some(campaign), Some(run)) = (dice.pick(&self.campaigns), dice.pick(&self.runs)) else {
            return self.create(dice, at);
        };
        let Some(server) = dice.pick(&self.servers) else {
            return Command::Server { id: ServerId::from_uuid(self.uuid()), sole: false };
        };
        let Some(worker) = dice.pick(&self.workers) else { return self.worker(dice, at) };
        // Mostly a recent lease.
        let late = self.leases.len().saturating_sub(6);
        let lease = if dice.one_in(4) { dice.pick(&self.leases) } else { dice.pick(&self.leases[late..]) };
        match (dice.below(60), lease) {
            (0..12, _) => self.decide(dice, run),
            (12..22, _) => Command::Claim(Self::claim(dice, worker, at)),
            (22..31, Some(step)) => Command::Report(Self::report(dice, &step, at)),
            (31..34, Some(step)) => Command::Flush(Self::report(dice, &step, at), Self::claim(dice, worker, at)),
            (34, Some(step)) => Command::Reserve { step, amounts: Self::amounts(dice) },
            (35, Some(step)) => Command::Settle { step, released: Self::amounts(dice), used: Self::amounts(dice) },
            (36, _) => {
                let leases = self.leases.iter().rev().take(8).map(|step| (step.id.clone(), step.epoch)).collect();
                Command::Heartbeat { worker, leases }
            }
            (37, _) => Command::Sweep,
            (38, _) => Command::FireTimers(1 + u32::try_from(dice.below(9)).unwrap()),
            (39..42, _) => {
                let all = [RunTransition::Pause, RunTransition::Resume, RunTransition::Resume, RunTransition::Cancel];
                Command::Control { run, transition: dice.pick(&all).unwrap() }
            }
            (42..44, _) => {
                let key = dice.one_in(2).then(|| KEYS[dice.below(KEYS.len())].to_owned());
                Command::Retry { run, key }
            }
            (44, _) => {
                let key = dice.one_in(2).then(|| (format!("s{}", dice.below(4)), format!("d{}", dice.below(2))));
                Command::Signal { run, key }
            }
            (45, _) => Command::Priority { run, priority: i32::try_from(dice.below(5)).unwrap() - 2 },
            (46, _) => Command::Budget { campaign, caps: Self::caps(dice) },
            (47, _) => Command::Window { campaign, schedule: Self::schedule(dice, at) },
            (48, _) => Command::Weight { campaign, weight: u32::try_from(dice.below(4)).unwrap() },
            (49, _) => Command::Server { id: ServerId::from_uuid(self.uuid()), sole: dice.one_in(4) },
            (50, _) => Command::Pulse(server),
            (51, _) => {
                if dice.one_in(3) {
                    Command::Retire(server)
                } else {
                    Command::Reap
                }
            }
            (52, _) => Command::Acquire { server, run: if dice.one_in(2) { Some(run) } else { None } },
            (53, _) => self.worker(dice, at),
            (54, _) => match dice.below(3) {
                0 => Command::Forget(TimestampMs(at.0 - 60_000)),
                less => Command::Drain { worker, draining: less == 1 },
            },
            (55, _) => Command::Artifact(vec![u8::try_from(dice.below(4)).unwrap()]),
            (56, _) => {
                let campaign = if dice.one_in(2) { Some(campaign) } else { None };
                Command::Prune { campaign, limit: 1 + u32::try_from(dice.below(40)).unwrap() }
            }
            (57, _) => Command::Look,
            (58, _) => Command::Know { run, what: dice.below(6), number: u32::try_from(dice.below(4)).unwrap() },
            _ => self.create(dice, at),
        }
    }

    fn worker(&mut self, dice: &mut Dice, at: TimestampMs) -> Command {
        let id = WorkerId::from_uuid(self.uuid());
        let server = if dice.one_in(2) { dice.pick(&self.servers) } else { None };
        Command::Worker(Box::new(WorkerRecord { embedded: server.is_some(), server, ..worker_record(&id, at) }))
    }

    /// Records new ids and leases.
    pub(crate) fn note(&mut self, command: &Command, answer: &Answer) {
        match (command, &answer.given) {
            (Command::Create(new), _) if answer.is_ok => {
                self.campaigns.push(new.id.clone());
                self.runs.extend(new.runs.iter().map(|run| run.id.clone()));
            }
            (Command::Server { id, .. }, _) => self.servers.push(id.clone()),
            (Command::Worker(worker), _) if answer.is_ok => self.workers.push(worker.id.clone()),
            _ => {}
        }
        self.leases.extend(answer.given.steps.iter().cloned());
        self.fences.extend(answer.given.fences.iter().cloned());
    }
}
