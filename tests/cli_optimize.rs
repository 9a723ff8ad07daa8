//! `nightshift optimize`, through the binary: from a task to a faster program in a file.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/server.rs"]
#[expect(dead_code, reason = "other tests call the server")]
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use binary::{expect_exit, json_lines, nightshift};
use nightshift_testbed::executable::write_executable;
use serde_json::Value;
use server::Served;
use tempfile::TempDir;

/// Waits are bounded by this.
const LONG: Duration = Duration::from_mins(2);

/// `optimize` in a folder of its own.
fn optimize(folder: &TempDir, args: &[&str]) -> Command {
    let mut command = nightshift(&folder.path().join("data"));
    command.current_dir(folder.path()).args(["optimize", "--allow-unsandboxed"]).args(args);
    command
}

/// Writes a program that answers each role with the bundled reply, and `coder` in the place of the Coder's.
fn agent(folder: &Path, coder: Option<&str>) -> PathBuf {
    let replies = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/row_softmax/replies");
    let reply = |name: &str| format!("cat '{}'", replies.join(name).display());
    let coder = coder.map_or_else(|| reply("subtask1.attempt1.write_code.md"), |text| format!("echo '{text}'"));
    let script = format!(
        "#!/bin/sh\nprompt=$(cat)\ncase \"$prompt\" in\n*'You are the Planner'*) {} ;;\n*'You are the Coder'*) {coder} ;;\n\
         *'You are the judge'*) {} ;;\n*) {} ;;\nesac\n",
        reply("plan.md"),
        reply("subtask1.attempt1.judge.md"),
        reply("subtask1.attempt1.diagnose.md"),
    );
    let path = folder.join("answers");
    write_executable(&path, &script);
    path
}

fn error(folder: &TempDir, args: &[&str], exit_code: i32) -> Value {
    let args = [args, &["--json"]].concat();
    let printed = json_lines(&expect_exit(&mut optimize(folder, &args), exit_code));
    printed.last().expect("an error as JSON").clone()
}

#[test]
fn an_agent_of_this_machine_makes_a_program_faster_and_both_files_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), None);
    let result = json_lines(&expect_exit(
        &mut optimize(&folder, &["row_softmax", "--agent", agent.to_str().unwrap(), "--json"]),
        0,
    ));
    let result = &result[0];
    assert_eq!(result["program"], "row_softmax_optimized.cpp");
    assert_eq!(result["evidence"], "row_softmax_optimized.json");
    assert_eq!((&result["attempt"], &result["fastest_baseline"]), (&Value::from(1), &Value::from("reference")));
    let number = |name: &str| result[name].as_f64().unwrap();
    assert!(number("reference_ms") > number("optimized_ms"), "{result}");
    assert!(result["speedup"]["low"].as_f64().unwrap() > 1.0, "{result}");

    let program = std::fs::read_to_string(folder.path().join("row_softmax_optimized.cpp")).unwrap();
    assert!(program.contains("ns_run"), "{program}");
    let evidence = std::fs::read(folder.path().join("row_softmax_optimized.json")).unwrap();
    let evidence: Value = serde_json::from_slice(&evidence).unwrap();
    assert_eq!(&evidence["result"], result);
    assert_eq!(evidence["run"]["summary"]["digest"]["model"], "agent/default");

    // The command replaces no file without --force, and refuses before it spends anything.
    let refused = error(&folder, &["row_softmax", "--model", "scripted"], 2);
    assert_eq!(refused["error"]["code"], "usage.file_exists", "{refused}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the search path holds programs of the test before those of the machine")]
fn a_known_agent_sees_its_own_settings_and_no_other_key() {
    let folder = tempfile::tempdir().unwrap();
    let (answers, seen) = (agent(folder.path(), None), folder.path().join("seen"));
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    for name in ["claude", "codex"] {
        let script = format!("#!/bin/sh\nenv >'{}'\nexec '{}'\n", seen.display(), answers.display());
        write_executable(&programs.join(name), &script);
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let own = [("claude", "ANTHROPIC_BASE_URL"), ("codex", "CODEX_HOME")];
    for (name, variable) in own {
        let mut command = optimize(
            &folder,
            &["row_softmax", "--agent", name, "--max-attempts", "1", "--out", &format!("{name}.cpp")],
        );
        command.env("PATH", &path).env("HTTPS_PROXY", "http://proxy.invalid").env("LAB_API_KEY", "hush");
        expect_exit(command.envs(own.map(|(_, variable)| (variable, "/nowhere"))), 0);
        let seen = std::fs::read_to_string(&seen).unwrap();
        let has = |name: &str| seen.lines().any(|line| line.starts_with(&format!("{name}=")));
        let seen_of_own = own.map(|(_, variable)| variable).into_iter().filter(|name| has(name)).collect::<Vec<_>>();
        assert_eq!(seen_of_own, [variable], "{seen}");
        assert!(has("HTTPS_PROXY") && !has("LAB_API_KEY"), "{seen}");
    }
}

#[test]
fn a_search_that_ended_while_the_command_was_gone_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let _served = Served::start(nightshift(&data), &[]);
    let args = ["row_softmax", "--model", "scripted", "--max-attempts", "1", "--json"];
    let mut command = optimize(&folder, &args);
    let mut following = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let run = || json_lines(&expect_exit(nightshift(&data).args(["list", "runs", "--json"]), 0))[0]["items"][0].clone();
    let until = Instant::now() + LONG;
    let wait = || {
        assert!(Instant::now() < until, "{}", run());
        std::thread::sleep(Duration::from_millis(100));
    };
    while run().is_null() {
        wait();
    }
    following.kill().unwrap();
    following.wait().unwrap();
    while run()["status"] != "completed" {
        wait();
    }
    let result = &json_lines(&expect_exit(&mut optimize(&folder, &args), 0))[0];
    assert_eq!(result["run"], run()["id"], "no other run was begun");
    assert!(std::fs::read_to_string(folder.path().join("row_softmax_optimized.cpp")).unwrap().contains("ns_run"));
    let anew = &json_lines(&expect_exit(&mut optimize(&folder, &[&args[..], &["--force"]].concat()), 0))[0];
    assert_ne!(anew["run"], result["run"]);
}

#[test]
fn without_a_faster_program_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), Some("I have no program."));
    let args = ["row_softmax", "--agent", agent.to_str().unwrap(), "--max-attempts", "1", "--json"];
    let result = json_lines(&expect_exit(&mut optimize(&folder, &args), 7));
    assert_eq!((&result[0]["attempt"], &result[0]["program"]), (&Value::Null, &Value::Null), "{}", result[0]);
    let left = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["answers", "data"]);
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code, exit_code) in [
        (&["row_softmax"][..], "usage.invalid", 2),
        (&["row_softmax", "--model", "scripted", "--agent", "claude"], "usage.invalid", 2),
        (&["row_softmax", "--model", "scripted", "--target", "cuda"], "request.not_for_this_task", 4),
        (&["row_softmax", "--agent", "claude", "--server", "http://127.0.0.1:9"], "usage.invalid", 2),
        (&["row_sofmax", "--model", "scripted"], "task.not_found", 3),
        (&["no_such_file.py", "--model", "scripted"], "task.not_found", 3),
        (&["row_softmax", "--model", "scripted", "--out", "softmax.json"], "usage.invalid", 2),
        (&["row_softmax", "--model", "scripted", "--out", "no/such/folder/x.cpp"], "usage.invalid", 2),
        (&["row_softmax", "--model", "nowhere/nothing"], "model.not_found", 3),
    ] {
        let refused = error(&folder, args, exit_code);
        assert_eq!(refused["error"]["code"], code, "{args:?}: {refused}");
    }
    assert!(!folder.path().join("data").exists());
}
