//! Tasks that cannot be used: each is refused with what is wrong and where, before anything is created.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "support/tiny_task.rs"]
mod tiny_task;

use std::path::{Path, PathBuf};

use binary::{expect_exit, json_lines, nightshift};
use nightshift_testbed::executable::write_executable;
use serde_json::Value;

/// A task that works, for the test to break.
fn task(folder: &Path) -> PathBuf {
    tiny_task::write(folder, "gaussian", &[16, 2, 8])
}

fn edit(task: &Path, from: &str, to: &str) {
    let path = task.join("task.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from} is in the task");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

/// The error of running this task.
fn refused(folder: &Path, task: &Path, code: i32) -> Value {
    let output = expect_exit(
        nightshift(&folder.join("data")).arg("run").arg(task).args(["--model", "scripted", "--exit", "--json"]),
        code,
    );
    json_lines(&output).pop().unwrap()["error"].clone()
}

#[test]
fn an_unknown_task_is_answered_with_the_one_that_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let output = expect_exit(nightshift(folder.path()).args(["run", "row_sofmax", "--model", "scripted"]), 3);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("task.not_found") && text.contains("did you mean `row_softmax`"), "{text}");
    expect_exit(nightshift(folder.path()).args(["demo", "--task", "nosuch", "--exit"]), 3);
    expect_exit(nightshift(folder.path()).args(["run", "./no/such/folder", "--model", "scripted"]), 3);
}

#[test]
fn the_demo_asks_for_a_target_that_there_is_or_for_tasks_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["--target", "gpu"][..], &["--target", "cuda", "--task", "row_softmax"]] {
        let output = expect_exit(nightshift(folder.path()).arg("demo").args(flags).arg("--exit"), 2);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("--target"), "{text}");
    }
}

#[test]
fn a_malformed_task_file_is_refused_with_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    edit(&task, "schema = 1", "schema = = 1");
    let error = refused(folder.path(), &task, 4);
    let message = error["message"].as_str().unwrap();
    assert!(error["code"].as_str().unwrap().starts_with("task."), "{error}");
    assert!(message.contains("task.toml:1:10: "), "{message}");
}

#[test]
fn an_unknown_key_of_a_task_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    edit(&task, "target = \"cpu\"", "target = \"cpu\"\ntollerance = 3");
    let message = refused(folder.path(), &task, 4)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("tollerance") && message.contains("task.toml:6:1: "), "{message}");
}

#[test]
fn shapes_that_overflow_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    for extent in ["9223372036854775807", "4294967296"] {
        edit(&task, "shape = [\"n\"]", &format!("shape = [\"n\", {extent}]"));
        let error = refused(folder.path(), &task, 4);
        assert!(error["message"].as_str().unwrap().contains("bytes"), "{error}");
        edit(&task, &format!("shape = [\"n\", {extent}]"), "shape = [\"n\"]");
    }
}

#[test]
fn a_missing_reference_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    std::fs::remove_file(task.join("reference.cpp")).unwrap();
    let error = refused(folder.path(), &task, 4);
    assert!(error["message"].as_str().unwrap().contains("reference.cpp"), "{error}");
}

#[test]
fn a_task_without_replies_cannot_be_played_back() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    std::fs::remove_dir_all(task.join("replies")).unwrap();
    assert_eq!(refused(folder.path(), &task, 4)["code"], "task.no_replies");
}

#[test]
fn the_same_task_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    let mut command = nightshift(&folder.path().join("data"));
    command.arg("run").arg(&task).arg(&task).args(["--model", "scripted", "--exit", "--json"]);
    let error = json_lines(&expect_exit(&mut command, 4)).pop().unwrap()["error"].clone();
    assert_eq!(error["code"], "campaign.duplicate_task");
}

#[test]
fn a_reference_that_does_not_compile_ends_the_run_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    std::fs::write(task.join("reference.cpp"), "#include \"nightshift.h\"\nint ns_run( {\n").unwrap();
    let data_dir = folder.path().join("data");
    let output =
        expect_exit(nightshift(&data_dir).arg("run").arg(&task).args(["--model", "scripted", "--exit", "--json"]), 7);
    let result = json_lines(&output).pop().unwrap();
    assert_eq!(result["succeeded"], false);
    let reason = &result["runs"][0]["view"]["stop_reason"];
    assert_eq!(reason["kind"], "task_rejected", "{result}");
    assert_eq!(reason["code"], "task.reference_does_not_compile", "{reason}");

    let run = result["runs"][0]["summary"]["id"].as_str().unwrap();
    for verb in ["show", "watch"] {
        let output = nightshift(&data_dir).args([verb, run]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("task.reference_does_not_compile"), "{verb}: {said}");
    }
}

#[test]
fn the_table_says_why_a_task_was_rejected_and_fits_a_narrow_terminal() {
    const COLUMNS: usize = 80;
    let folder = tempfile::tempdir().unwrap();
    let task = task(folder.path());
    std::fs::write(task.join("reference.cpp"), "#include \"nightshift.h\"\nint ns_run( {\n").unwrap();
    let mut command = nightshift(&folder.path().join("data"));
    // The file of a task names the task as well as its folder does.
    command.arg("run").arg(task.join("task.toml")).args(["--model", "scripted", "--exit"]);
    let output = expect_exit(&mut command, 7);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("task.reference_does_not_compile"), "{text}");
    assert!(text.contains("--step prepare_task"), "what to do next is named:\n{text}");
    let table = text.lines().take_while(|line| !line.contains(": "));
    for line in table {
        assert!(line.chars().count() <= COLUMNS, "{line}");
    }
}

#[test]
fn an_attempt_is_named_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let output = expect_exit(nightshift(&folder.path().join("data")).args(["show", "3f9c2a10/first"]), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[usage.invalid]"));
}

/// Writes a program that answers like a Python interpreter with `PyTorch`, with this inspection of every file.
fn python_that_says(folder: &Path, torch: &str, found: &Value) -> PathBuf {
    let folder = folder.canonicalize().unwrap();
    let (program, shown) = (folder.join("python3"), folder.display());
    let about = format!(
        r#"{{"program":"{shown}/python3","version":"3.9.1","torch":{torch},"folders":["{shown}"],"compiled":true}}"#
    );
    std::fs::write(folder.join("found.json"), format!("{found}\n")).unwrap();
    let script = format!("#!/bin/sh\nif [ \"$2\" = -c ]; then echo '{about}'; else cat '{shown}/found.json'; fi\n");
    write_executable(&program, &script);
    program
}

/// Returns the inspection of a model that multiplies by a matrix.
fn found_model() -> Value {
    let tensor = |name: &str| {
        serde_json::json!({"name": name, "dtype": "f32", "shape": [4, 4], "origin": "torch.rand",
                           "distribution": {"kind": "uniform", "low": 0.0, "high": 1.0}})
    };
    let mut weight = tensor("linear_weight");
    weight["state"] = "linear.weight".into();
    serde_json::json!({"found": {
        "init": [4], "call": [{"input": "x"}], "types": {}, "inputs": [tensor("x")], "params": [weight],
        "outputs": [tensor("output")], "operators": [], "flops": null, "bytes": 192.0, "problems": [], "notes": [],
        "torch": "2.9.0",
    }})
}

#[test]
fn models_of_pytorch_become_tasks_and_one_that_cannot_does_not_keep_the_others_back() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tempfile::tempdir().unwrap();
    let python = python_that_says(tools.path(), "\"2.9.0\"", &found_model());
    let files = folder.path().join("files");
    for (file, text) in [
        ("level1/1_Good.py", "class Model: ..."),
        ("level2/80_Gemm_Max_Subtract_GELU.py", "x"),
        ("level1/2_Bad.py", ""),
    ] {
        let path = files.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Not all of them are text.
        std::fs::write(path, if file.contains("Bad") { &b"\xff\xfe"[..] } else { text.as_bytes() }).unwrap();
    }
    let out = folder.path().join("tasks");
    let import = |more: &[&str]| {
        let mut command = nightshift(&folder.path().join("data"));
        command
            .args(["import", "kernelbench"])
            .arg(&files)
            .arg("--out")
            .arg(&out)
            .arg("--python")
            .arg(&python)
            .args(more);
        command
    };
    let rows = json_lines(&expect_exit(&mut import(&["--json"]), 0)).pop().unwrap();
    let codes: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["refused"]["code"].as_str().unwrap_or("ready")).collect();
    assert_eq!(codes, ["ready", "task.model_syntax", "ready"]);
    assert_eq!(rows[2]["problems"][0]["code"], "constant_output");
    let text = std::fs::read_to_string(out.join("kb-l1-1-good/task.toml")).unwrap();
    assert!(text.contains("state = [\"linear.weight\"]") && text.contains("file = \"level1/1_Good.py\""), "{text}");
    assert_eq!(std::fs::read_to_string(out.join("kb-l1-1-good/reference.py")).unwrap(), "class Model: ...");

    let again = json_lines(&expect_exit(&mut import(&["--json", "--level", "1"]), 2));
    assert_eq!(again[0][0]["refused"]["code"], "usage.file_exists");
    assert_eq!(
        (again.len(), &again[1]["error"]["code"]),
        (2, &Value::from("usage.file_exists")),
        "the error is the last line"
    );
    let again = expect_exit(&mut import(&["--level", "1"]), 2);
    let (table, said) = (String::from_utf8(again.stdout).unwrap(), String::from_utf8(again.stderr).unwrap());
    assert!(table.contains("0 of 2 files imported"), "{table}");
    assert!(said.contains("error[usage.file_exists]: none of 2 files became a task; level1/1_Good.py: "), "{said}");
    let table = expect_exit(&mut import(&["--force"]), 0);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("2 of 3 files imported, 1 of them with known problems; 1 refused"), "{table}");
    expect_exit(&mut import(&["--task", "77"]), 3);
}

#[test]
fn files_whose_tasks_would_have_one_name_do_not_replace_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tempfile::tempdir().unwrap();
    let python = python_that_says(tools.path(), "\"2.9.0\"", &found_model());
    let (files, out) = (folder.path().join("files"), folder.path().join("tasks"));
    std::fs::create_dir_all(&files).unwrap();
    for (file, text) in [("a b.py", "first"), ("a_b.py", "second"), ("\u{1b}[2J.py", "third")] {
        std::fs::write(files.join(file), text).unwrap();
    }
    let mut command = nightshift(&folder.path().join("data"));
    command.args(["import", "kernelbench", "--json"]).arg(&files).arg("--out").arg(&out).arg("--python").arg(&python);
    let output = expect_exit(&mut command, 0);
    let rows = json_lines(&output).pop().unwrap();
    let of = |file: &str| rows.as_array().unwrap().iter().find(|row| row["file"] == file).unwrap().clone();
    assert_eq!(of("a_b.py")["refused"]["code"], "usage.file_exists", "{rows}");
    assert!(of("a_b.py")["refused"]["message"].as_str().unwrap().contains("`a b.py`"), "{rows}");
    assert_eq!(std::fs::read_to_string(out.join("a-b/reference.py")).unwrap(), "first");
    assert!(!of("\u{fffd}[2J.py")["folder"].is_null(), "control characters reach no terminal: {rows}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains('\u{1b}'));
}

#[test]
fn nothing_that_a_file_says_of_itself_steers_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tempfile::tempdir().unwrap();
    let said =
        serde_json::json!({"error": {"code": "task.model_fails", "message": "A\u{1b}]0;x\u{7}\u{1b}[2JB", "line": 5}});
    let python = python_that_says(tools.path(), "\"2.9.0\"", &said);
    let files = folder.path().join("files");
    std::fs::create_dir_all(&files).unwrap();
    for file in ["a.py", "b.py"] {
        std::fs::write(files.join(file), "x").unwrap();
    }
    for path in [files.join("a.py"), files] {
        let mut command = nightshift(&folder.path().join("data"));
        command.args(["import", "kernelbench"]).arg(path).arg("--out").arg(folder.path().join("tasks"));
        let output = expect_exit(command.arg("--python").arg(&python), 4);
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.contains(&0x1b) && !said.contains(&7), "{}", String::from_utf8_lossy(&said));
        assert!(String::from_utf8_lossy(&said).contains("a.py:5: A\u{fffd}]0;x"), "{}", String::from_utf8_lossy(&said));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a signal, as a terminal sends it")]
fn an_import_ends_at_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tempfile::tempdir().unwrap();
    let python = python_that_says(tools.path(), "\"2.9.0\"", &found_model());
    // A duration that no other process has.
    let seconds = format!("60.{}", std::process::id());
    let script = std::fs::read_to_string(&python).unwrap().replace("else cat", &format!("else sleep {seconds}; cat"));
    write_executable(&python, &script);
    let files = folder.path().join("files");
    std::fs::create_dir_all(&files).unwrap();
    (0..20).for_each(|number| std::fs::write(files.join(format!("model{number}.py")), "x").unwrap());
    let mut command = nightshift(&folder.path().join("data"));
    command.args(["import", "kernelbench"]).arg(&files).arg("--out").arg(folder.path().join("tasks"));
    command.arg("--python").arg(&python).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = std::time::Instant::now();
    while !is_running(&format!("sleep\0{seconds}\0")) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began");
        assert!(begun.elapsed() < std::time::Duration::from_mins(1), "no file was inspected");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let signalled = std::time::Instant::now();
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("command.interrupted") && said.contains("0 of 20 files imported"), "{said}");
    assert!(!said.contains("internal.import"), "what was ended is no defect: {said}");
    let took = signalled.elapsed();
    assert!(took < std::time::Duration::from_secs(50), "nothing new is begun: {took:?}");
}

/// Returns whether a process of this machine has this text in its command line.
fn is_running(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(text))
}

#[test]
fn without_pytorch_an_import_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let tools = tempfile::tempdir().unwrap();
    let python = python_that_says(tools.path(), "null", &Value::Null);
    let mut command = nightshift(&folder.path().join("data"));
    let output = expect_exit(command.args(["import", "kernelbench", "x.py", "--json", "--python"]).arg(&python), 6);
    let error = json_lines(&output).pop().unwrap()["error"].clone();
    assert_eq!(error["code"], "toolchain.python_unusable", "{error}");
    assert!(error["message"].as_str().unwrap().contains("name a Python interpreter that has PyTorch"), "{error}");
}
