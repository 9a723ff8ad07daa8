//! Two processes race for the same thing, round after round, on each database: exactly one wins, each time.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first thing that is not as it should be, and starts what it tests"
)]

use std::process::Command;

const ROUNDS: u64 = 25;

fn races(database: &str) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_nightshift-chaos"))
        .args(["race", "--database", database, "--rounds", &ROUNDS.to_string()])
        .output()
        .expect("the races start");
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{said}");
    serde_json::from_str(said.lines().last().expect("a summary")).unwrap()
}

fn all_rounds_of(summary: &serde_json::Value, races: &[&str]) {
    for race in races {
        assert_eq!(summary["rounds"][race], ROUNDS, "{race}: {summary}");
    }
}

const THROUGH_SERVERS: [&str; 5] =
    ["the same idempotency key", "the same step", "the same lease's report", "the same run", "the same budget"];

#[test]
fn one_of_two_processes_wins_on_sqlite() {
    let summary = races("sqlite");
    all_rounds_of(&summary, &THROUGH_SERVERS);
    assert!(summary["rounds"]["the same database file"].as_u64().unwrap() >= 10, "{summary}");
}

#[test]
fn one_of_two_processes_wins_on_postgres() {
    let summary = races("postgres");
    all_rounds_of(&summary, &THROUGH_SERVERS);
    all_rounds_of(
        &summary,
        &["the same run, in the database", "the same step, in the database", "the same budget, in the database"],
    );
}
