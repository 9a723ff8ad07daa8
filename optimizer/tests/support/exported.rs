//! Exported programs in a folder, and a shell beside them.

use std::path::Path;
use std::process::Output;

use nightshift_optimizer::export::{Program, project};
use nightshift_optimizer::task_file;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
use nightshift_protocol::id::RunId;
use nightshift_protocol::task::TaskBundle;
use serde_json::json;

pub(crate) fn run_id() -> RunId {
    "run_01900000000070008000000000000001".parse().unwrap()
}

pub(crate) fn attempt(outcome: AttemptOutcome) -> Attempt {
    let attempt = json!({
        "number": 3, "plan_version": 1, "subtask": 1, "stage": "draft", "parent": null, "outcome": outcome,
        "source": null,
        "verdict": {
            "compiled": "pass", "numerically_correct": "pass", "contract_compliant": "pass", "fast": "pass",
            "custom_kernel_time_share": null,
        },
        "findings": [], "build": null, "check": null, "measurement": null, "confirmation": null, "profile": null,
        "diagnosis": null, "rubric": null, "reward": null, "calls": [], "route": null,
    });
    serde_json::from_value(attempt).unwrap()
}

/// A task whose reference is a model of `PyTorch`, or of what stands in for it.
#[allow(dead_code, reason = "not every test has such a task")]
pub(crate) fn model_task() -> TaskBundle {
    let toml = include_str!("../fixtures/scale_and_shift.toml");
    let toml = toml.split("variants =").next().unwrap().replace("reference.cpp", "reference.py");
    let torch = r#"
        [torch]
        init = '[2.0, 8]'
        call = '[{"input": "x"}, {"value": 2.0}, {"input": "index"}]'
        state = ["shift"]
    "#;
    let model = include_str!("../fixtures/scale_and_shift_model.py").to_owned();
    task_file::bundle(&format!("{toml}{torch}"), "task.toml", model).unwrap()
}

/// Runs a command line in a folder.
#[expect(clippy::disallowed_methods, reason = "the test is a person with a shell")]
pub(crate) fn shell(folder: &Path, line: &str) -> Output {
    std::process::Command::new("sh").args(["-c", line]).current_dir(folder).output().unwrap()
}

/// What a command line prints, which has to end with this status.
pub(crate) fn printed(folder: &Path, line: &str, status: i32) -> String {
    let output = shell(folder, line);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(status), "{line}: {text}");
    text
}

/// Writes the project of a program, and builds it by the commands of its own description: with `CMake` where there is one.
pub(crate) fn built(folder: &Path, task: &TaskBundle, source: &str) -> String {
    let (run, attempt) = (run_id(), attempt(AttemptOutcome::CorrectFaster));
    let files = project(&Program { run: &run, attempt: &attempt, task, source }).unwrap();
    for file in &files {
        std::fs::write(folder.join(file.name), &file.text).unwrap();
    }
    let readme = &files.iter().find(|file| file.name == "README.md").unwrap().text;
    let mut blocks = readme.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let (with_cmake, alone) = (blocks.next().unwrap(), blocks.next().unwrap());
    let has_cmake = shell(folder, "cmake --version").status.success();
    let (commands, program) = if has_cmake { (with_cmake, "build/compare") } else { (alone, "./compare") };
    let build: Vec<&str> = commands.lines().filter(|line| !line.starts_with(program)).collect();
    assert!(build.len() < commands.lines().count(), "the program is run, too: {commands}");
    printed(folder, &build.join(" && "), 0);
    program.to_owned()
}
