//! Kills the whole process tree at random moments of campaigns, and compares the result with an undisturbed campaign:
//! the same steps committed exactly once, the same best candidates, no model call made twice.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test stops at the first thing that is not as it should be, and prints what replays it"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/processes.rs"]
mod processes;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use rand::{RngExt as _, SeedableRng as _};

/// Kills over all campaigns of the test; `NIGHTSHIFT_TEST_KILLS` sets another number for a long run by hand.
const KILLS: u32 = 200;
/// Series of kills beside each other.
const SERIES: u32 = 2;
/// Maximum time that one life lasts before it is killed.
const LONGEST_LIFE_MS: u64 = 1_200;
/// Maximum time for the last, undisturbed life.
const FINISH_LIMIT: Duration = Duration::from_mins(2);

/// Passes of the three attempts: the second is the best by a factor of four.
const ATTEMPT_PASSES: [u32; 3] = [16, 2, 8];

/// What has to be equal in the end, for each task.
type History = BTreeMap<String, RunHistory>;

/// What a run left behind.
#[derive(Debug, PartialEq, Eq)]
struct RunHistory {
    committed_steps: Vec<String>,
    best_attempt: Option<u64>,
    best_source: Option<String>,
}

fn run_command(data_dir: &Path, tasks: &[PathBuf]) -> std::process::Command {
    let mut command = nightshift(data_dir);
    command.arg("run").args(tasks).args(["--model", "scripted", "--exit"]);
    command
}

fn history(data_dir: &Path) -> History {
    let listed = json_lines(&expect_exit(nightshift(data_dir).args(["list", "runs", "--json"]), 0));
    let runs: Vec<serde_json::Value> =
        listed.into_iter().flat_map(|page| page["items"].as_array().cloned().unwrap_or_default()).collect();
    assert!(!runs.is_empty(), "the campaign has runs");
    let mut history = History::new();
    for run in runs {
        let id = run["id"].as_str().unwrap();
        assert_eq!(run["status"], "completed", "{run}");
        let events = json_lines(&expect_exit(nightshift(data_dir).args(["logs", id, "--json"]), 0));
        let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (1..=u64::try_from(events.len()).unwrap()).collect::<Vec<_>>(), "the log of {id} has no gaps");
        let committed: Vec<String> = events
            .iter()
            .filter(|event| event["kind"] == "step_completed")
            .map(|event| event["step_key"].as_str().unwrap().to_owned())
            .collect();
        let mut distinct = committed.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), committed.len(), "every step of {id} is committed exactly once: {committed:?}");
        let detail = &json_lines(&expect_exit(nightshift(data_dir).args(["show", id, "--json"]), 0))[0];
        let best = detail["view"]["best_attempt"].as_u64();
        let attempts = detail["view"]["attempts"].as_array().unwrap();
        for attempt in attempts {
            let calls = attempt["calls"].as_array().unwrap();
            let mut turns: Vec<String> =
                calls.iter().map(|call| format!("{}/{}", call["prompt"], call["turn"])).collect();
            turns.sort();
            turns.dedup();
            assert_eq!(turns.len(), calls.len(), "no call of {id} was recorded twice");
        }
        let source = best.and_then(|best| {
            attempts.iter().find(|attempt| attempt["number"].as_u64() == Some(best))?["source"]
                .as_str()
                .map(str::to_owned)
        });
        let task = run["digest"]["task"].as_str().unwrap().to_owned();
        history.insert(task, RunHistory { committed_steps: committed, best_attempt: best, best_source: source });
    }
    history
}

fn ended(child: &mut Child, within: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < within {
        if child.try_wait().expect("the child can be asked").is_some() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    false
}

#[test]
fn a_campaign_that_is_killed_again_and_again_ends_like_one_that_is_not() {
    let seed: u64 = setting("NIGHTSHIFT_TEST_SEED").unwrap_or(20_261_121);
    let kills = setting("NIGHTSHIFT_TEST_KILLS").map_or(KILLS, |kills| u32::try_from(kills).unwrap());
    println!("seed {seed}, {kills} kills (NIGHTSHIFT_TEST_SEED, NIGHTSHIFT_TEST_KILLS)");

    let folder = tempfile::tempdir().unwrap();
    let tasks: Vec<PathBuf> = ["gaussian_a", "gaussian_b"]
        .iter()
        .map(|name| tiny_task::write(folder.path(), name, &ATTEMPT_PASSES))
        .collect();

    let undisturbed_dir = folder.path().join("undisturbed");
    expect_exit(&mut run_command(&undisturbed_dir, &tasks), 0);
    let expected = history(&undisturbed_dir);
    for (task, run) in &expected {
        assert_eq!(run.best_attempt, Some(2), "{task}: the second attempt is the fastest by a factor of four");
        assert!(run.committed_steps.contains(&"subtask1/attempt3/measure".to_owned()), "{task}: {run:?}");
    }

    // Most of a life is waiting: several series fit beside each other, each with choices of its own.
    let (folder, tasks, expected) = (folder.path(), &tasks, &expected);
    std::thread::scope(|scope| {
        for series in 0..SERIES {
            let kills = kills / SERIES + u32::from(series < kills % SERIES);
            scope.spawn(move || {
                let name = format!("seed {seed}, series {series}");
                let random = rand::rngs::StdRng::seed_from_u64(seed.wrapping_add(u64::from(series)));
                kill_again_and_again(&name, &folder.join(format!("series-{series}")), tasks, kills, random, expected);
            });
        }
    });
}

/// Kills campaigns until there were so many kills; each one ends as it would have without them.
fn kill_again_and_again(
    name: &str,
    folder: &Path,
    tasks: &[PathBuf],
    kills: u32,
    mut random: rand::rngs::StdRng,
    expected: &History,
) {
    let mut killed = 0;
    let mut campaigns = 0;
    while killed < kills {
        campaigns += 1;
        let data_dir = folder.join(format!("killed-{campaigns}"));
        loop {
            let mut child = run_command(&data_dir, tasks).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let life = Duration::from_millis(random.random_range(1..=LONGEST_LIFE_MS));
            if ended(&mut child, life) {
                break;
            }
            if killed == kills {
                assert!(ended(&mut child, FINISH_LIMIT), "the campaign ends without further kills");
                break;
            }
            processes::kill_tree(child.id());
            child.wait().unwrap();
            killed += 1;
        }
        // Whatever the last life did, the same command again finds nothing left to do for the finished runs.
        expect_exit(nightshift(&data_dir).args(["resume", "--exit"]), 0);
        assert_eq!(&history(&data_dir), expected, "{name}, campaign {campaigns}, after {killed} kills");
        std::fs::remove_dir_all(&data_dir).unwrap();
    }
    println!("{name}: {killed} kills over {campaigns} campaigns");
}

#[test]
fn killing_the_process_leaves_no_child_behind() {
    let folder = tempfile::tempdir().unwrap();
    let task = tiny_task::write(folder.path(), "gaussian_c", &ATTEMPT_PASSES);
    let data_dir = folder.path().join("data");
    for life_ms in [400, 700, 1_000, 1_300] {
        let mut child = run_command(&data_dir, std::slice::from_ref(&task))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        if ended(&mut child, Duration::from_millis(life_ms)) {
            break;
        }
        let tree = processes::descendants(child.id());
        // Only the process itself: its children have to notice.
        child.kill().unwrap();
        child.wait().unwrap();
        let begin = Instant::now();
        while tree.iter().any(processes::Process::is_alive) {
            assert!(begin.elapsed() < Duration::from_secs(30), "children survived their parent: {tree:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a long run by hand is set up by the environment")]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}
