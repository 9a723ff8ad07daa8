//! Models of single roles, commands that answer, and the check of the prompts, through the binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use binary::{expect_exit, json_lines, nightshift};
use serde_json::Value;

/// A configuration in which each role has a command of its own that gives the bundled reply.
fn configuration(folder: &Path) -> PathBuf {
    let replies = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/row_softmax/replies");
    let mut sections = Vec::new();
    for (name, reply) in [
        ("plans", "plan.md"),
        ("codes", "subtask1.attempt1.write_code.md"),
        ("verifies", "subtask1.attempt1.diagnose.md"),
        ("judges", "subtask1.attempt1.judge.md"),
    ] {
        let file = replies.join(reply);
        sections.push(format!("[models.{name}]\nkind = \"command\"\ncommand = [\"cat\", '{}']\n", file.display()));
    }
    let fails = "[models.fails]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo no credit >&2; exit 9\"]\n";
    sections.extend([fails, "[roles.judge]\nmodel = \"judges/from-the-configuration\"\n"].map(str::to_owned));
    let path = folder.join("config.toml");
    std::fs::write(&path, sections.concat()).unwrap();
    path
}

#[test]
fn each_role_asks_its_own_command_and_a_stand_in_answers_for_one_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (data_dir, config) = (folder.path().join("data"), configuration(folder.path()));
    let with_config = |arguments: &[&str]| {
        let mut command = nightshift(&data_dir);
        command.arg("--config").arg(&config).args(arguments);
        command
    };
    let run = [
        "run",
        "row_softmax",
        "--model",
        "verifies/all",
        "--planner-model",
        "plans/first",
        "--coder-model",
        "fails/any,codes/second",
        "--allow-unsandboxed",
        "--exit",
    ];
    expect_exit(&mut with_config(&run), 0);
    let runs = json_lines(&expect_exit(&mut with_config(&["list", "runs", "--json"]), 0));
    let id = runs[0]["items"][0]["id"].as_str().expect("a run").to_owned();
    let detail = json_lines(&expect_exit(&mut with_config(&["show", &id, "--json"]), 0)).remove(0);
    let cost: BTreeMap<&str, &Value> =
        detail["cost"].as_array().unwrap().iter().map(|cost| (cost["role"].as_str().unwrap(), cost)).collect();
    let models = |role: &str| cost[role]["models"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(models("planner"), ["plans/first"]);
    assert_eq!(models("coder"), ["codes/second"]);
    assert_eq!(models("judge"), ["judges/from-the-configuration"]);
    assert_eq!(cost["coder"]["fallback_calls"], cost["coder"]["calls"]);
    let call = &detail["view"]["attempts"][0]["calls"][0];
    assert_eq!(call["fell_back"][0]["model"], "fails/any");
    assert_eq!(call["fell_back"][0]["code"], "model.command_failed");
    let shown = expect_exit(&mut with_config(&["show", &id]), 0);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("coder: 1 call of codes/second") && shown.contains("answered by a stand-in"), "{shown}");
}

#[test]
fn an_unconfigured_model_is_refused_before_the_run_begins() {
    let folder = tempfile::tempdir().unwrap();
    for chain in ["nowhere/x", "ollama/x,nowhere/x"] {
        let arguments = ["run", "row_softmax", "--exit", "--json", "--model", chain];
        let output = expect_exit(nightshift(folder.path()).args(arguments), 3);
        let error = json_lines(&output).pop().unwrap()["error"].clone();
        assert_eq!(error["code"], "model.not_found");
        assert!(error["message"].as_str().unwrap().contains("nowhere"), "{error}");
    }
    let arguments = ["run", "row_softmax", "--exit", "--json", "--model", "ollama/x", "--judge-model", "judge"];
    let output = expect_exit(nightshift(folder.path()).args(arguments), 2);
    assert_eq!(json_lines(&output).pop().unwrap()["error"]["code"], "usage.invalid_model");
}

#[test]
fn the_prompts_that_ship_can_be_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let output = expect_exit(nightshift(folder.path()).args(["prompts", "check", "--json"]), 0);
    let told = json_lines(&output).remove(0);
    assert!(told["prompts"].as_array().unwrap().len() >= 10, "{told}");
    assert_eq!(told["problems"], Value::Array(Vec::new()));
}

#[test]
fn an_unknown_variable_in_a_prompt_of_ones_own_is_named_by_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = folder.path().join("prompts");
    std::fs::create_dir_all(prompts.join("planner")).unwrap();
    std::fs::write(prompts.join("planner/system.md"), "You plan.\n{{ taks.name }}\n").unwrap();
    let mut command = nightshift(folder.path());
    let output = expect_exit(command.args(["prompts", "check"]).arg(&prompts), 2);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("planner/system.md:2:"), "{said}");
    let mut command = nightshift(folder.path());
    std::fs::write(prompts.join("planer.md"), "x").unwrap();
    let output = expect_exit(command.args(["prompts", "check", "--json"]).arg(&prompts), 2);
    assert_eq!(json_lines(&output).pop().unwrap()["error"]["code"], "config.prompt_unknown");
}

/// The last document that a command with this configuration prints, and its exit code.
fn told(folder: &Path, config: &str, arguments: &[&str], code: i32) -> Value {
    let path = folder.join("config.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = nightshift(&folder.join("data"));
    command.env_remove("NS_TEST_KEY").arg("--config").arg(path).args(arguments).arg("--json");
    json_lines(&expect_exit(&mut command, code)).pop().unwrap()
}

#[test]
fn a_command_without_its_variable_is_refused_and_doctor_says_so_before() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[models.agent]\nkind = \"command\"\ncommand = [\"cat\"]\nenv = [\"NS_TEST_KEY\"]\n";
    let checks = told(folder.path(), config, &["doctor"], 0)["checks"].clone();
    let check = checks.as_array().unwrap().iter().find(|check| check["name"] == "model agent").unwrap();
    assert_eq!(check["state"], "warning", "{check}");
    assert!(check["found"].as_str().unwrap().contains("NS_TEST_KEY"), "{check}");
    let error =
        told(folder.path(), config, &["run", "row_softmax", "--model", "agent/x", "--exit"], 6)["error"].clone();
    assert_eq!(error["code"], "model.auth");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("the command of `agent`") && message.contains("NS_TEST_KEY"), "{message}");
}

#[test]
fn a_temperature_that_is_no_number_is_refused_as_one_out_of_range_is() {
    let folder = tempfile::tempdir().unwrap();
    for temperature in ["nan", "inf", "-inf", "5.0"] {
        let config = format!(
            "[models.agent]\nkind = \"command\"\ncommand = [\"cat\"]\n[roles.coder]\ntemperature = {temperature}\n"
        );
        let refused = told(folder.path(), &config, &["run", "row_softmax", "--model", "agent/x", "--exit"], 4);
        assert_eq!(refused["error"]["code"], "campaign.invalid_model", "{temperature}: {refused}");
    }
}

#[test]
fn an_unknown_kind_of_model_is_answered_with_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[models.agent]\nkind = \"banana\"\ncommand = [\"cat\"]\n";
    let error =
        told(folder.path(), config, &["run", "row_softmax", "--model", "agent/x", "--exit"], 2)["error"].clone();
    assert_eq!(error["code"], "config.invalid_model");
    for word in ["banana", "openai", "anthropic", "command"] {
        assert!(error["message"].as_str().unwrap().contains(&format!("`{word}`")), "{error}");
    }
}

/// The error of checking these prompts.
fn prompts_refused(folder: &Path, prompts: &Path) -> Value {
    let output = expect_exit(nightshift(folder).args(["prompts", "check", "--json"]).arg(prompts), 2);
    json_lines(&output).pop().unwrap()["error"].clone()
}

#[test]
fn prompts_that_cannot_be_read_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let (file, prompts) = (folder.path().join("file"), folder.path().join("prompts"));
    std::fs::write(&file, "x").unwrap();
    std::fs::create_dir_all(prompts.join("planner")).unwrap();
    std::fs::write(prompts.join("planner/system.md"), [0xff, 0xfe]).unwrap();
    for (path, why) in [
        (folder.path().join("missing"), "it does not exist"),
        (file, "it is no folder"),
        (prompts, "planner/system.md: it is no UTF-8 text"),
    ] {
        let error = prompts_refused(folder.path(), &path);
        assert_eq!(error["code"], "config.prompt_unreadable");
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
}

#[test]
fn an_empty_prompt_and_a_folder_in_place_of_one_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = folder.path().join("prompts");
    let template = prompts.join("coder/optimize/user.md");
    std::fs::create_dir_all(&template).unwrap();
    let error = prompts_refused(folder.path(), &prompts);
    assert!(
        error["message"].as_str().unwrap().contains("coder/optimize/user.md: it is named as a template"),
        "{error}"
    );
    std::fs::remove_dir(&template).unwrap();
    std::fs::write(&template, "\n \n").unwrap();
    let error = prompts_refused(folder.path(), &prompts);
    assert!(error["message"].as_str().unwrap().contains("coder/optimize/user.md: it is empty"), "{error}");
}
