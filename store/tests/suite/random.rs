//! Random sequences of everything that can happen; after each of them every rule holds.

use std::collections::BTreeMap;

use nightshift_engine::event::Event;
use nightshift_engine::store::{Reported, StepRecord, Store, StoreError, TryEnd};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::json;

use crate::bench::{Bench, LEASE_MS, lost};
use crate::toy::{Party, Toy};

const CASES: u32 = 24;
const MAX_COMMANDS: usize = 40;

#[derive(Debug, Clone, Copy)]
enum Move {
    Drive,
    Claim(u32),
    /// Reports on a lease that was given out at some time, whether it still holds or not.
    Report(usize, End),
    Heartbeat,
    Sweep,
    Control(usize, RunTransition),
    Retry(usize, Option<usize>),
    Forward(i64),
    FreeEmbedded,
    Reopen,
}

#[derive(Debug, Clone, Copy)]
enum End {
    Completed,
    RetryNow,
    RetryLater,
    Failed,
    Cancelled,
}

const KEYS: [&str; 5] = ["split", "part1", "part2", "part3", "join"];

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let end = prop_oneof![
        6 => Just(End::Completed),
        1 => Just(End::RetryNow),
        1 => Just(End::RetryLater),
        1 => Just(End::Failed),
        1 => Just(End::Cancelled),
    ];
    let transition = prop_oneof![2 => Just(RunTransition::Pause), 3 => Just(RunTransition::Resume), 1 => Just(RunTransition::Cancel)];
    let one = prop_oneof![
        6 => Just(Move::Drive),
        5 => (1_u32..4).prop_map(Move::Claim),
        8 => (0_usize..20, end).prop_map(|(lease, end)| Move::Report(lease, end)),
        2 => Just(Move::Heartbeat),
        3 => Just(Move::Sweep),
        3 => (0_usize..2, transition).prop_map(|(run, transition)| Move::Control(run, transition)),
        2 => (0_usize..2, prop::option::of(0_usize..5)).prop_map(|(run, key)| Move::Retry(run, key)),
        3 => prop_oneof![Just(1_i64), Just(600), Just(15_000)].prop_map(Move::Forward),
        1 => Just(Move::FreeEmbedded),
        1 => Just(Move::Reopen),
    ];
    prop::collection::vec(one, 1..MAX_COMMANDS)
}

#[test]
fn no_sequence_of_commands_breaks_a_rule() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&moves(), |moves| runtime.block_on(play(moves)));
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// What was seen before, which later moments must not contradict.
#[derive(Default)]
struct Seen {
    logs: BTreeMap<RunId, Vec<Event>>,
    epochs: BTreeMap<StepId, u64>,
    results: BTreeMap<StepId, serde_json::Value>,
}

struct Game {
    bench: Bench,
    party: Party,
    runs: Vec<RunId>,
    leases: Vec<StepRecord>,
    seen: Seen,
}

async fn play(moves: Vec<Move>) -> Result<(), TestCaseError> {
    let bench = Bench::new().await;
    let runs = bench.store.create_campaign(bench.new_campaign(2)).await.unwrap().runs;
    let party = Party::new(bench.store.clone(), Toy::fan(), bench.clock.clone(), 1_000);
    party.register().await;
    let mut game = Game { bench, party, runs, leases: Vec::new(), seen: Seen::default() };
    for (index, one) in moves.into_iter().enumerate() {
        game.make(one, u64::try_from(index).unwrap()).await?;
        game.check().await?;
    }
    game.bench.store.close().await.unwrap();
    Ok(())
}

impl Game {
    async fn make(&mut self, one: Move, index: u64) -> Result<(), TestCaseError> {
        let now = self.bench.now();
        let store = self.bench.store.clone();
        match one {
            Move::Drive => {
                for run in self.bench.to_drive().await {
                    self.party.driver.drive(&run).await.unwrap();
                }
                // Cancelled runs whose steps are still held stay out of the list; everything else was moved.
                prop_assert_eq!(self.bench.to_drive().await, Vec::<RunId>::new());
            }
            Move::Claim(count) => self.leases.extend(self.bench.claim(&self.party.worker, count).await),
            Move::Report(lease, end) => self.report(lease, end).await?,
            Move::Heartbeat => {
                let leases: Vec<_> = self.leases.iter().map(|step| (step.id.clone(), step.epoch)).collect();
                store.heartbeat(&self.party.worker, &leases, now, now.plus_ms(LEASE_MS)).await.unwrap();
            }
            Move::Sweep => {
                self.party.sweeper.sweep().await.unwrap();
            }
            Move::Control(run, transition) => {
                let answer = store.control_run(&self.runs[run], transition, now).await;
                prop_assert!(matches!(answer, Ok(_) | Err(StoreError::Illegal(_))), "{:?}", answer);
            }
            Move::Retry(run, key) => {
                let answer = store.retry_run(&self.runs[run], key.map(|key| KEYS[key]), now).await;
                let refused = matches!(answer, Err(StoreError::Illegal(_) | StoreError::NotFound { .. }));
                prop_assert!(answer.is_ok() || refused, "{:?}", answer);
            }
            Move::Forward(duration_ms) => self.bench.clock.forward(duration_ms),
            Move::FreeEmbedded => {
                store.free_embedded_leases(now).await.unwrap();
            }
            Move::Reopen => {
                drop(store);
                self.bench.reopen().await;
                let ids_from = (index + 2) * 1_000;
                self.party = Party::new(self.bench.store.clone(), Toy::fan(), self.bench.clock.clone(), ids_from);
                self.party.register().await;
            }
        }
        Ok(())
    }

    async fn report(&mut self, lease: usize, end: End) -> Result<(), TestCaseError> {
        let Some(step) = self.leases.get(lease % self.leases.len().max(1)).cloned() else { return Ok(()) };
        let now = self.bench.now();
        let end = match end {
            End::Completed => TryEnd::Completed { output: json!({ "key": step.key, "epoch": step.epoch }) },
            End::RetryNow => TryEnd::Retry { failure: lost(), at: now },
            End::RetryLater => TryEnd::Retry { failure: lost(), at: now.plus_ms(500) },
            End::Failed => TryEnd::Failed { failure: StepFailure::fatal("x", "broken") },
            End::Cancelled => TryEnd::Cancelled,
        };
        let before = self.bench.store.load_step(&step.id).await.unwrap();
        let reported = self.bench.report(&step, end.clone()).await;
        let after = self.bench.store.load_step(&step.id).await.unwrap();
        let held = before.status == StepStatus::Leased && before.epoch == step.epoch;
        if held {
            prop_assert_eq!(reported, Reported::Committed);
            prop_assert_ne!(after.status, StepStatus::Leased);
        } else {
            prop_assert_eq!(&after, &before, "a report without a lease changes nothing");
        }
        // Whoever repeats a committed report is told so.
        if reported == Reported::Committed {
            prop_assert_eq!(self.bench.report(&step, end).await, Reported::Committed);
        }
        Ok(())
    }

    async fn check(&mut self) -> Result<(), TestCaseError> {
        let violations = self.bench.store.find_violations().await.unwrap();
        prop_assert_eq!(violations, Vec::<String>::new());
        for run in &self.runs {
            self.party.assert_folds(run).await;
            let log = self.bench.events(run).await;
            let earlier = self.seen.logs.insert(run.clone(), log.clone()).unwrap_or_default();
            prop_assert_eq!(log.get(..earlier.len()), Some(earlier.as_slice()), "a log only grows");
            for step in self.bench.store.list_steps(run).await.unwrap() {
                let epoch = self.seen.epochs.insert(step.id.clone(), step.epoch).unwrap_or_default();
                prop_assert!(step.epoch >= epoch, "an epoch never falls");
                if let Some(output) = step.output {
                    let first = self.seen.results.entry(step.id).or_insert_with(|| output.clone());
                    prop_assert_eq!(&*first, &output, "a result never changes");
                }
            }
        }
        Ok(())
    }
}
