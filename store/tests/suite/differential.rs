//! Runs the same random commands on both databases: answers and tables must be equal, and all invariants must hold.
//!
//! A failure prints its seed. `NIGHTSHIFT_TEST_SEED=… cargo test -p nightshift-store differential` repeats it,
//! `NIGHTSHIFT_TEST_SEQUENCES=1000 …` tries new ones.

use std::collections::BTreeMap;

use nightshift_engine::event::Event;
use nightshift_engine::store::RunStore;
use nightshift_protocol::id::{RunId, StepId};
use serde_json::Value;

use crate::answers::apply;
use crate::bench::{Bench, events, steps};
use crate::commands::{Dice, World};
use crate::place::Kind;
use crate::raw::{TextRow, dump};

/// Variable with a seed to repeat.
const SEED_VARIABLE: &str = "NIGHTSHIFT_TEST_SEED";
/// Variable with the number of sequences, for a longer search.
const SEQUENCES_VARIABLE: &str = "NIGHTSHIFT_TEST_SEQUENCES";
/// Default seeds, each on fresh databases. They are fixed, so that only a change of the code makes them fail.
const SEEDS: [u64; 4] = [1, 2, 3, 5_405_573_885_140_880_062];
/// Number of commands per sequence.
const COMMANDS: usize = 220;
/// Number of commands between two comparisons of tables and invariants.
const LOOK_EVERY: usize = 20;

/// Earlier observations that later ones must not contradict.
#[derive(Default)]
struct Seen {
    logs: BTreeMap<RunId, Vec<Event>>,
    epochs: BTreeMap<StepId, u64>,
    results: BTreeMap<StepId, Value>,
}

#[expect(clippy::disallowed_methods, reason = "what to play comes from the environment")]
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|number| number.parse().unwrap())
}

fn seeds() -> Vec<u64> {
    if let Some(seed) = number(SEED_VARIABLE) {
        return vec![seed];
    }
    let Some(sequences) = number(SEQUENCES_VARIABLE) else { return SEEDS.to_vec() };
    // A new seed each time.
    let mut dice = Dice::new(u64::try_from(uuid::Uuid::now_v7().as_u128() & u128::from(u64::MAX)).unwrap());
    (0..sequences).map(|_| dice.next()).collect()
}

#[tokio::test]
async fn the_same_random_commands_leave_the_same_tables_on_both_databases() {
    for seed in seeds() {
        eprintln!("{SEED_VARIABLE}={seed}");
        play(seed).await;
    }
}

async fn play(seed: u64) {
    let mut dice = Dice::new(seed);
    let mut world = World::default();
    let mut history = Seen::default();
    let (mut sqlite, mut postgres) = (Bench::on(Kind::Sqlite).await, Bench::on(Kind::Postgres).await);
    for number in 0..COMMANDS {
        // Both use the clock of the first.
        let at = sqlite.now();
        let command = world.choose(&mut dice, at);
        let told = format!("{SEED_VARIABLE}={seed}, command {number}: {command:?}");
        let answers = (
            apply(sqlite.store.as_ref(), command.clone(), at).await,
            apply(postgres.store.as_ref(), command.clone(), at).await,
        );
        assert_eq!(answers.0.text, answers.1.text, "{told}");
        world.note(&command, &answers.0);
        if dice.below(4) == 0 {
            sqlite.clock.forward([1, 600, 5_000, 15_000, 60_000][dice.below(5)]);
        }
        if dice.below(80) == 0 {
            sqlite.reopen().await;
            postgres.reopen().await;
        }
        if number % LOOK_EVERY == LOOK_EVERY - 1 {
            compare(&sqlite, &postgres, &told).await;
            history.check(&sqlite, &told).await;
        }
    }
    compare(&sqlite, &postgres, &format!("{SEED_VARIABLE}={seed}, at the end")).await;
    sqlite.store.close().await.unwrap();
    postgres.store.close().await.unwrap();
}

async fn compare(sqlite: &Bench, postgres: &Bench, told: &str) {
    for bench in [sqlite, postgres] {
        let violations = bench.store.find_violations().await.unwrap();
        assert!(violations.is_empty(), "{:?}: {violations:#?}\n{told}", bench.kind());
    }
    let (left, right) = (dump(&sqlite.place).await, dump(&postgres.place).await);
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>(), "{told}");
    for (table, rows) in &left {
        let others = &right[table];
        let only_left: Vec<_> = rows.iter().filter(|row| !others.contains(row)).map(one_line).collect();
        let only_right: Vec<_> = others.iter().filter(|row| !rows.contains(row)).map(one_line).collect();
        let same = only_left.is_empty() && only_right.is_empty() && rows.len() == others.len();
        assert!(same, "`{table}` differs\nSQLite: {only_left:#?}\nPostgres: {only_right:#?}\n{told}");
    }
}

fn one_line(row: &TextRow) -> String {
    let columns = row.iter().map(|(name, value)| format!("{name}={}", value.as_deref().unwrap_or("-")));
    columns.collect::<Vec<_>>().join(" ")
}

impl Seen {
    async fn check(&mut self, bench: &Bench, told: &str) {
        let page = nightshift_engine::store::PageRequest { limit: 1_000, before: None };
        for run in bench.store.list_runs(None, None, page).await.unwrap() {
            let run = run.id;
            let log = events(bench.store.as_ref(), &run).await;
            let earlier = self.logs.insert(run.clone(), log.clone()).unwrap_or_default();
            assert_eq!(log.get(..earlier.len()), Some(earlier.as_slice()), "a log only grows\n{told}");
            for step in steps(&bench.store, &run).await {
                let epoch = self.epochs.insert(step.id.clone(), step.epoch).unwrap_or_default();
                assert!(step.epoch >= epoch, "an epoch never falls\n{told}");
                if let Some(output) = step.output {
                    let first = self.results.entry(step.id).or_insert_with(|| output.clone());
                    assert_eq!(*first, output, "a result never changes\n{told}");
                }
            }
        }
    }
}
