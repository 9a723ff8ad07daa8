//! What every command keeps to: exit codes, JSON alone on standard output, no colours in a pipe, the configuration's
//! order, completions.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;

use std::process::Output;

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The one error that a command with `--json` printed.
fn error(output: &Output) -> Value {
    let mut lines = json_lines(output);
    assert_eq!(lines.len(), 1, "one line: {lines:?}");
    lines.remove(0)["error"].clone()
}

#[test]
fn help_and_version_go_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let help = stdout(&expect_exit(nightshift(folder.path()).arg("--help"), 0));
    let commands = "demo optimize run verify resume serve work list show watch logs hint approve reject pause cancel retry \
                    priority limits drain release token export reward import prune doctor config completions";
    for command in commands.split(' ') {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is in the help:\n{help}");
    }
    let version = stdout(&expect_exit(nightshift(folder.path()).arg("--version"), 0));
    assert!(version.starts_with("nightshift "), "{version}");
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 5] = [&["nosuch"], &["list", "nosuch"], &["run", "x"], &["list", "--limit", "0"], &["show"]];
    for args in wrong {
        let output = expect_exit(nightshift(folder.path()).args(args), 2);
        assert!(stdout(&output).is_empty(), "{args:?}");
        let output = expect_exit(nightshift(folder.path()).args(args).arg("--json"), 2);
        assert_eq!(error(&output)["code"], "usage.invalid", "{args:?}");
    }
}

#[test]
fn commands_that_read_print_json_alone() {
    let folder = tempfile::tempdir().unwrap();
    let campaigns = json_lines(&expect_exit(nightshift(folder.path()).args(["list", "--json", "-v"]), 0));
    assert_eq!(campaigns[0]["items"], serde_json::json!([]));
    let runs = json_lines(&expect_exit(nightshift(folder.path()).args(["list", "runs", "--json"]), 0));
    assert_eq!(runs[0]["items"], serde_json::json!([]));
    let workers = json_lines(&expect_exit(nightshift(folder.path()).args(["list", "workers", "--json"]), 0));
    assert_eq!(workers[0], serde_json::json!([]));
    let nothing = json_lines(&expect_exit(nightshift(folder.path()).args(["resume", "--json", "--exit"]), 0));
    assert_eq!(nothing[0]["runs"], serde_json::json!([]));
}

#[test]
fn what_does_not_exist_ends_with_3_on_every_command_that_names_something() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = "run_0198c0ffee0070008000000000000000";
    let commands: [&[&str]; 9] = [
        &["show", "c0ffee"],
        &["show", unknown],
        &["show", "c0ffee/1"],
        &["watch", unknown],
        &["logs", "c0ffee"],
        &["pause", "c0ffee"],
        &["cancel", unknown],
        &["retry", unknown],
        &["resume", "c0ffee"],
    ];
    for args in commands {
        let output = expect_exit(nightshift(folder.path()).args(args), 3);
        assert!(stdout(&output).is_empty() && stderr(&output).starts_with("error["), "{args:?}: {}", stderr(&output));
        let code = error(&expect_exit(nightshift(folder.path()).args(args).arg("--json"), 3))["code"].clone();
        assert!(code.as_str().unwrap().ends_with(".not_found"), "{args:?}: {code}");
    }
    let out = folder.path().join("archive.json");
    expect_exit(nightshift(folder.path()).args(["export", "c0ffee", "--out"]).arg(&out), 3);
    assert!(!out.exists(), "nothing is written for what does not exist");
}

#[test]
fn nothing_in_a_pipe_is_coloured() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["list"][..], &["config", "show"], &["doctor"]] {
        for no_color in [Some("1"), None] {
            let mut command = nightshift(folder.path());
            command.args(args).env_remove("NO_COLOR").env("TERM", "xterm-256color").env("CLICOLOR_FORCE", "0");
            if let Some(value) = no_color {
                command.env("NO_COLOR", value);
            }
            let output = command.output().unwrap();
            assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b), "{args:?} {no_color:?}");
        }
    }
}

#[test]
fn every_value_of_the_configuration_has_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "log = \"error\"\n[server]\nbind = \"127.0.0.1:1\"\ntoken = \"from-the-file\"\n").unwrap();
    let output = expect_exit(
        nightshift(folder.path())
            .args(["--config", file.to_str().unwrap(), "--json", "config", "show"])
            .env("NIGHTSHIFT_SERVER__BIND", "127.0.0.1:2")
            .env("NIGHTSHIFT_WORKER__CPU_SLOTS", "3"),
        0,
    );
    let shown = json_lines(&output).remove(0);
    let value = |key: &str| {
        let values = shown["values"].as_array().unwrap();
        values.iter().find(|value| value["key"] == key).unwrap_or_else(|| panic!("{key} in {shown}")).clone()
    };
    assert_eq!(value("data_dir")["origin"], "flag --data-dir");
    assert_eq!(value("server.bind")["value"], "127.0.0.1:2");
    assert_eq!(value("server.bind")["origin"], "environment variable NIGHTSHIFT_SERVER__BIND");
    assert_eq!(value("log")["origin"], format!("file {}", file.display()));
    assert_eq!(value("worker.name")["origin"], "default");
    assert_eq!(value("worker.drain_timeout_s")["value"], 60, "what is in force is shown");
    assert_eq!(value("prices")["origin"], "not set");
    assert_eq!(value("prices")["default"], "the built-in ones alone");
    assert!(!stdout(&output).contains("from-the-file"), "secrets are hidden: {}", stdout(&output));
    let text = stdout(&expect_exit(nightshift(folder.path()).args(["config", "show"]), 0));
    assert!(text.contains("flag --data-dir"), "{text}");
}

#[test]
fn a_wrong_configuration_ends_with_2_and_says_what_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let config = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let args = ["--config", file.to_str().unwrap(), "--json", "list"];
        error(&expect_exit(nightshift(folder.path()).args(args), 2))
    };
    let unknown = config("[worker]\ncpu_slot = 1\n");
    assert_eq!(unknown["code"], "config.unknown_key");
    assert!(unknown["message"].as_str().unwrap().contains("did you mean `cpu_slots`"), "{unknown}");
    let wrong_type = config("[server]\nbind = \"nowhere\"\n");
    assert_eq!(wrong_type["code"], "config.invalid");
    assert!(wrong_type["message"].as_str().unwrap().contains("server.bind"), "{wrong_type}");
    let broken = config("[server\n");
    assert_eq!(broken["code"], "config.invalid");
    let message = broken["message"].as_str().unwrap();
    assert!(message.contains("line 1"), "{broken}");
    assert!(message.lines().next().unwrap().contains("config.toml"), "the first line names the file: {broken}");
    let file = folder.path().join("models.toml");
    std::fs::write(&file, "[models.x]\nkind = \"nosuch\"\n").unwrap();
    let mut show = nightshift(folder.path());
    show.arg("--config").arg(&file).args(["config", "show", "--json"]);
    assert_eq!(error(&expect_exit(&mut show, 2))["code"], "config.invalid_model");
    let missing = expect_exit(nightshift(folder.path()).args(["--config", "/no/such/file", "--json", "list"]), 2);
    assert_eq!(error(&missing)["code"], "config.file_missing");
}

#[test]
fn a_table_in_a_pipe_keeps_each_value_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("long-".repeat(40));
    let shown = stdout(&expect_exit(nightshift(&long).args(["config", "show"]), 0));
    assert!(shown.contains(&long.display().to_string()), "{shown}");
}

#[test]
fn completions_name_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&expect_exit(nightshift(folder.path()).args(["completions", shell]), 0));
        assert!(script.contains("doctor") && script.contains("data-dir"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = nightshift(folder.path())
        .args(["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
}
