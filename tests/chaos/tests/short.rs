//! A short storm on each database. The long one is a command: see `docs/explanation/durability.md`.
//!
//! The seed is that of the variable `NIGHTSHIFT_TEST_SEED`, or always the same one; a failure names it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first thing that is not as it should be, and starts what it tests"
)]

use std::process::Command;

/// Few enough for a minute.
const FAULTS: &str = "40";
const SEED: &str = "20261121";

fn storm(database: &str) {
    let seed = std::env::var("NIGHTSHIFT_TEST_SEED").unwrap_or_else(|_| SEED.to_owned());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nightshift-chaos"));
    command.args(["storm", "--database", database, "--faults", FAULTS, "--minutes", "5", "--seed", &seed]);
    let output = command.output().expect("the storm starts");
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{said}");
    let summary = said.lines().last().expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
    assert!(summary["faults_total"].as_u64().unwrap() >= 40, "{summary}");
    // A storm in which nothing was done has proven nothing. How much is done in its seconds depends on the machine.
    assert!(summary["steps_completed"].as_u64().unwrap() > 0, "{summary}");
    assert!(summary["ended"]["completed"].as_u64().unwrap() > 0, "{summary}");
    assert!(summary["objects"].as_u64().unwrap() > 0, "{summary}");
    let faults = summary["faults"].as_object().unwrap();
    assert!(faults.keys().any(|kind| kind.starts_with("objects_")), "{summary}");
    // Clock faults are rare: another seed may have none.
    if seed == SEED {
        assert!(faults.keys().any(|kind| kind.contains("clock")), "{summary}");
    }
}

#[test]
fn nothing_is_lost_or_done_twice_in_a_storm_on_sqlite() {
    storm("sqlite");
}

#[test]
fn nothing_is_lost_or_done_twice_in_a_storm_on_postgres() {
    storm("postgres");
}
