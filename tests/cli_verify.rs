//! `nightshift verify`: its exit codes, its table and its JSON document, and the inputs that it refuses. The programs are for
//! the target `cpu`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;
#[path = "cli_verify/ending.rs"]
mod ending;
#[path = "support/gaussian.rs"]
mod gaussian;
#[path = "support/processes.rs"]
mod processes;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use binary::{expect_exit, json_lines, nightshift};
use gaussian::program;
use nightshift_testbed::executable::write_executable;
use serde_json::Value;
use tempfile::TempDir;

/// Returns a right program that evaluates the exponential so many times. The reference does so 32 times.
fn right(passes: u32) -> String {
    program("", &passes.to_string(), "value")
}

/// Returns a program whose element 7 is wrong.
fn wrong() -> String {
    program("", "2", "i == 7 ? value + 1 : value")
}

/// Returns a folder with the task `gaussian` and these programs.
fn folder_with(programs: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    gaussian::write_task(folder.path(), "gaussian", 2048, 1);
    for (name, source) in programs {
        std::fs::write(folder.path().join(name), source).unwrap();
    }
    folder
}

/// Returns the command `verify` with these arguments, in this folder.
fn verify(folder: &Path, args: &[&str]) -> Command {
    let mut command = nightshift(&folder.join("data"));
    command.current_dir(folder).args(["verify", "--allow-unsandboxed"]).args(args);
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the one JSON document that a command with `--json` printed.
fn document(output: &Output) -> Value {
    let mut lines = json_lines(output);
    assert_eq!(lines.len(), 1, "one document: {lines:?}");
    lines.remove(0)
}

/// Runs a command that ends before it judges a program, and returns the code and the message of its error.
fn refused(command: &mut Command, exit_code: i32) -> (String, String) {
    let error = document(&expect_exit(command.arg("--json"), exit_code))["error"].clone();
    let text = |key: &str| error[key].as_str().unwrap_or_else(|| panic!("{key} in {error}")).to_owned();
    (text("code"), text("message"))
}

/// Runs a command that judges one right program, and returns its exit code: 0 for a faster program, 10 for another one.
fn expect_right(command: &mut Command) -> (i32, Output) {
    let output = command.output().unwrap();
    let code = output.status.code().unwrap_or(-1);
    assert!([0, 10].contains(&code), "{command:?} ended with {code}\n{}\n{}", stdout(&output), stderr(&output));
    (code, output)
}

/// Returns the cells of a program's row in the table.
fn row(text: &str, name: &str) -> Vec<String> {
    let cells = |line: &str| -> Vec<String> {
        line.split(['│', '┆']).map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
    };
    let found = text.lines().map(cells).find(|cells| cells.len() > 1 && cells[0] == name);
    found.unwrap_or_else(|| panic!("{name} has a row:\n{text}"))
}

#[test]
fn a_right_program_is_in_the_table_with_its_speedup_and_its_verified_calls() {
    let folder = tempfile::tempdir().unwrap();
    let honest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/honest/cpu/softmax_vector_types.cpp");
    std::fs::copy(honest, folder.path().join("softmax.cpp")).unwrap();
    let (code, output) = expect_right(&mut verify(folder.path(), &["row_softmax", "softmax.cpp"]));
    let text = stdout(&output);
    let cells = row(&text, "softmax.cpp");
    assert_eq!(cells.len(), 6, "{text}");
    assert_eq!(cells[1], if code == 0 { "correct_faster" } else { "correct_not_faster" }, "{text}");
    assert!(cells[2].contains("x ["), "the speedup has its interval:\n{text}");
    let (verified, timed) = cells[5].split_once(" of ").unwrap_or_else(|| panic!("calls verified:\n{text}"));
    assert_eq!(verified, timed, "every timed call is verified:\n{text}");
    assert!(timed.parse::<u64>().unwrap() >= 16, "{text}");
    assert!(text.contains("compared with reference.cpp; precision policy reference; sandbox in force: "), "{text}");
}

#[test]
fn json_is_one_document_with_the_verdict_the_evidence_and_the_measurement() {
    let folder = folder_with(&[("right.cpp", &right(2))]);
    let (code, output) = expect_right(&mut verify(folder.path(), &["gaussian", "right.cpp", "--json"]));
    let report = document(&output);
    assert_eq!((&report["task"], &report["against"]), (&Value::from("gaussian"), &Value::from("reference.cpp")));
    assert!(report["machine"]["sandbox"].is_object(), "{report}");
    let judged = &report["programs"][0];
    assert_eq!(judged["program"], "right.cpp");
    assert_eq!(judged["verdict"], if code == 0 { "correct_faster" } else { "correct_not_faster" });
    assert_eq!((&judged["right"], &judged["faster"]), (&Value::from(true), &Value::from(code == 0)));
    assert_eq!((&judged["exit_code"], &judged["fault"]), (&Value::from(code), &Value::Null));
    assert!(judged["evidence"]["complete"].is_boolean() && judged["evidence"]["missing"].is_array(), "{judged}");

    let judgement = &judged["judgement"];
    assert_eq!(judgement["outcome"], judged["verdict"]);
    assert_eq!(judgement["build"]["end"]["kind"], "finished");
    let cases = judgement["check"]["cases"].as_array().unwrap();
    assert!(cases.len() > 1 && cases.iter().all(|case| case["passed"] == true), "{cases:?}");
    let measurement = &judgement["measurement"];
    let bound = |name: &str| measurement["speedup"][name].as_f64().unwrap();
    assert!(bound("low") <= bound("estimate") && bound("estimate") <= bound("high"), "{measurement}");
    let count = |name: &str| measurement["verification"][name].as_u64().unwrap();
    assert!(count("timed_calls") >= 16 && count("verified_calls") == count("timed_calls"), "{measurement}");
}

#[test]
fn a_wrong_program_ends_with_11_and_names_the_wrong_element() {
    let folder = folder_with(&[("wrong.cpp", &wrong())]);
    let text = stdout(&expect_exit(&mut verify(folder.path(), &["gaussian", "wrong.cpp"]), 11));
    assert_eq!(row(&text, "wrong.cpp")[1], "incorrect", "{text}");
    assert!(text.contains("wrong.cpp: 1 of 2048 elements are wrong at shape `default`"), "{text}");
    assert!(text.contains("the worst is out[7]: ") && text.contains(" instead of "), "{text}");
}

#[test]
fn a_program_that_returns_zeros_is_wrong_and_breaks_no_rule() {
    let folder = folder_with(&[("zeros.cpp", &program("", "1", "0"))]);
    let text = stdout(&expect_exit(&mut verify(folder.path(), &["gaussian", "zeros.cpp"]), 11));
    assert_eq!(row(&text, "zeros.cpp")[1], "incorrect", "{text}");
    assert!(text.contains("the worst is out["), "{text}");
}

#[test]
fn a_program_that_does_not_compile_ends_with_11_and_names_the_line() {
    // The third line uses a name that the first two do not declare.
    let broken = right(2).replace("#include <cmath>\n", "#include <cmath>\nint x = undeclared_name;\n");
    let folder = folder_with(&[("broken.cpp", &broken), ("crlf.cpp", &broken.replace('\n', "\r\n"))]);
    let programs = ["gaussian", "broken.cpp", "crlf.cpp"];
    let text = stdout(&expect_exit(&mut verify(folder.path(), &programs), 11));
    for name in ["broken.cpp", "crlf.cpp"] {
        assert_eq!(row(&text, name)[1], "compile_failed", "{text}");
        let reason = text.lines().find(|line| line.starts_with(&format!("{name}: line 3: ")));
        assert!(reason.is_some_and(|reason| reason.contains("undeclared_name")), "{name}:\n{text}");
    }
    let report = document(&expect_exit(verify(folder.path(), &programs).arg("--json"), 11));
    for judged in report["programs"].as_array().unwrap() {
        assert_eq!(judged["judgement"]["build"]["messages"][0]["line"], 3, "{judged}");
        assert_eq!((&judged["right"], &judged["faster"]), (&Value::from(false), &Value::Null), "{judged}");
    }
}

#[test]
fn files_that_hold_no_usable_source_are_rejected_by_the_screening() {
    let large = "// nothing\n".repeat(1_000_000);
    let folder = folder_with(&[("empty.cpp", ""), ("large.cpp", &large), ("nul.cpp", "int x;\n\0\n")]);
    let programs = ["gaussian", "empty.cpp", "large.cpp", "nul.cpp"];
    let text = stdout(&expect_exit(&mut verify(folder.path(), &programs), 12));
    for (name, said) in [
        ("empty.cpp", ["empty_source", "the source is empty", "write the whole program"]),
        ("large.cpp", ["source_too_large", "11000000 bytes", "compute tables in the program"]),
        ("nul.cpp", ["not_text", "NUL byte", "delete it"]),
    ] {
        assert_eq!(row(&text, name)[1], "not_compliant", "{text}");
        let reason = text.lines().find(|line| line.starts_with(&format!("{name}: "))).unwrap_or_default();
        for part in said {
            assert!(reason.contains(part), "{part} is said of {name}:\n{text}");
        }
    }
}

#[test]
fn paths_that_cannot_be_read_as_programs_end_with_4() {
    let folder = folder_with(&[("new.py", "class ModelNew: ...\n")]);
    std::fs::create_dir(folder.path().join("folder.cpp")).unwrap();
    std::fs::write(folder.path().join("binary.cpp"), b"\x7fELF\x02\x01\0\xff\xfe").unwrap();
    std::fs::File::create(folder.path().join("huge.cpp")).unwrap().set_len(17 << 20).unwrap();
    for (name, code, reason) in [
        ("missing.cpp", "request.program_unreadable", "No such file"),
        ("folder.cpp", "request.program_unreadable", "it is a folder"),
        ("binary.cpp", "request.program_unreadable", "not UTF-8 text"),
        ("huge.cpp", "request.program_unreadable", "17825792 bytes"),
        ("new.py", "request.program_form", "`ns_run`"),
    ] {
        let (found, message) = refused(&mut verify(folder.path(), &["gaussian", name]), 4);
        assert_eq!(found, code, "{name}: {message}");
        assert!(message.contains(&format!("`{name}`")) && message.contains(reason), "{name}: {message}");
    }
}

#[test]
fn a_program_that_cannot_be_read_comes_with_a_hint() {
    let folder = folder_with(&[]);
    for name in ["missing.cpp", "gaussian"] {
        let text = stderr(&expect_exit(&mut verify(folder.path(), &["gaussian", name]), 4));
        assert!(text.contains("  hint: "), "the message says what to do about {name}: {text}");
    }
}

#[test]
fn line_ends_of_windows_and_a_byte_order_mark_change_nothing() {
    let plain = right(2);
    let (crlf, bom) = (plain.replace('\n', "\r\n"), format!("\u{feff}{plain}"));
    let folder = folder_with(&[("plain.cpp", &plain), ("crlf.cpp", &crlf), ("bom.cpp", &bom)]);
    let args = ["gaussian", "plain.cpp", "crlf.cpp", "bom.cpp", "--json"];
    let report = document(&expect_right(&mut verify(folder.path(), &args)).1);
    let programs = report["programs"].as_array().unwrap();
    let names: Vec<&Value> = programs.iter().map(|judged| &judged["program"]).collect();
    assert_eq!(names, ["plain.cpp", "crlf.cpp", "bom.cpp"], "the order of the command line");
    for judged in programs {
        assert_eq!((&judged["verdict"], &judged["right"]), (&programs[0]["verdict"], &Value::from(true)), "{judged}");
    }
    let key = |number: usize| &programs[number]["judgement"]["build"]["build_key"];
    assert!(key(0).is_string());
    assert_eq!(key(0), key(2), "the mark is no part of the source");
}

#[test]
fn a_task_that_is_not_there_ends_with_3_and_the_message_names_what_there_is() {
    let folder = folder_with(&[("right.cpp", &right(2)), ("notes.txt", "no task")]);
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for (task, said) in [
        ("row_sofmax", "did you mean `row_softmax`"),
        ("zzzzzzzz", "row_softmax"),
        ("./no/such/folder", "row_softmax"),
        ("empty", "the folder has no `task.toml`"),
        ("notes.txt", "a task is a folder with a task.toml"),
        ("no_such_model.py", "no_such_model.py"),
    ] {
        let (code, message) = refused(&mut verify(folder.path(), &[task, "right.cpp"]), 3);
        assert_eq!(code, "task.not_found", "{task}");
        assert!(message.contains(task) && message.contains(said), "{task}: {message}");
    }
}

#[test]
fn a_task_file_that_cannot_be_parsed_ends_with_4_and_its_place() {
    let folder = folder_with(&[("right.cpp", &right(2))]);
    let file = folder.path().join("gaussian/task.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("schema = 1", "schema = = 1")).unwrap();
    // The file of a task names the task as well as its folder does.
    for task in ["gaussian", "gaussian/task.toml"] {
        let (code, message) = refused(&mut verify(folder.path(), &[task, "right.cpp"]), 4);
        assert_eq!(code, "task.malformed");
        assert!(message.contains("gaussian/task.toml:1:10: "), "{message}");
    }
}

/// Writes a program that answers like a Python interpreter with this version of `PyTorch`, and that prints this result
/// when it inspects a file. Returns its path.
fn python_that_says(folder: &Path, torch: &str, found: &Value) -> PathBuf {
    let folder = folder.canonicalize().unwrap();
    let (python, shown) = (folder.join("python3"), folder.display());
    let about = format!(
        r#"{{"program":"{shown}/python3","version":"3.9.1","torch":{torch},"folders":["{shown}"],"compiled":true}}"#
    );
    std::fs::write(folder.join("found.json"), format!("{found}\n")).unwrap();
    let script = format!("#!/bin/sh\nif [ \"$2\" = -c ]; then echo '{about}'; else cat '{shown}/found.json'; fi\n");
    write_executable(&python, &script);
    python
}

#[test]
fn a_file_without_a_model_ends_with_4_and_says_what_it_needs() {
    let folder = folder_with(&[("no_model.py", "x = 1\n"), ("new.py", "class ModelNew: ...\n")]);
    let tools = tempfile::tempdir().unwrap();
    let said = serde_json::json!({"error": {
        "code": "task.model_incomplete", "message": "it does not define `Model`: a task needs it", "line": 1,
    }});
    let python = python_that_says(tools.path(), "\"2.9.0\"", &said);
    let mut command = verify(folder.path(), &["no_model.py", "new.py", "--target", "cpu"]);
    let (code, message) = refused(command.env("NIGHTSHIFT_WORKER__PYTHON", python), 4);
    assert_eq!(code, "task.model_incomplete");
    assert!(message.contains("no_model.py:1: it does not define `Model`"), "{message}");
}

#[test]
fn without_pytorch_a_file_of_pytorch_ends_with_6_and_says_what_to_install() {
    let folder = folder_with(&[("model.py", "class Model: ...\n"), ("new.py", "class ModelNew: ...\n")]);
    let tools = tempfile::tempdir().unwrap();
    let python = python_that_says(tools.path(), "null", &Value::Null);
    let command = || verify(folder.path(), &["model.py", "new.py", "--target", "cpu"]);
    let (code, message) = refused(command().env("NIGHTSHIFT_WORKER__PYTHON", &python), 6);
    assert_eq!(code, "toolchain.python_unusable");
    assert!(message.contains("Python 3.9.1 has no PyTorch; name a Python interpreter that has PyTorch"), "{message}");
    let (code, message) = refused(command().env("NIGHTSHIFT_WORKER__PYTHON", "/bin/false"), 6);
    assert_eq!(code, "toolchain.python_unusable");
    assert!(message.contains("/bin/false cannot be used"), "{message}");
    let (code, message) = refused(command().env("PATH", tools.path()), 6);
    assert_eq!(code, "toolchain.torch_not_found");
    assert!(message.contains("Python 3.9.1") && message.contains("pip install torch"), "{message}");
}

#[test]
fn a_missing_compiler_ends_with_6_and_names_the_setting() {
    let folder = folder_with(&[("wrong.cpp", &wrong())]);
    let command = || verify(folder.path(), &["gaussian", "wrong.cpp"]);
    for (compiler, code, said) in [
        ("/nonexistent/c++", "toolchain.no_cpp_compiler", "worker.cpp_compiler"),
        ("no-such-compiler", "toolchain.no_cpp_compiler", "/usr/bin"),
        ("/bin/false", "toolchain.broken", "does not work"),
    ] {
        let mut command = command();
        let (found, message) = refused(command.env("NIGHTSHIFT_WORKER__CPP_COMPILER", compiler), 6);
        assert_eq!(found, code, "{compiler}: {message}");
        assert!(message.contains(compiler) && message.contains(said), "{compiler}: {message}");
    }
    // The compiler is looked for in the folders of the system, so that `PATH` does not matter.
    expect_exit(command().env("PATH", "/nonexistent"), 11);
}

#[test]
fn of_several_programs_the_highest_exit_code_counts_and_each_has_its_row() {
    let folder = folder_with(&[("right.cpp", &right(2)), ("wrong.cpp", &wrong()), ("empty.cpp", "")]);
    let output = expect_exit(&mut verify(folder.path(), &["gaussian", "right.cpp", "wrong.cpp"]), 11);
    let text = stdout(&output);
    assert!(row(&text, "right.cpp")[1].starts_with("correct_"), "{text}");
    assert_eq!(row(&text, "wrong.cpp")[1..], ["incorrect", "-", "-", "-", "-"], "{text}");
    assert!(stderr(&output).contains("wrong.cpp: incorrect"), "progress is on standard error: {}", stderr(&output));

    let text = stdout(&expect_exit(&mut verify(folder.path(), &["gaussian", "empty.cpp", "wrong.cpp"]), 12));
    assert_eq!(row(&text, "empty.cpp")[1], "not_compliant", "{text}");
    assert_eq!(row(&text, "wrong.cpp")[1], "incorrect", "{text}");
}

#[test]
fn a_reference_that_fails_ends_with_13_and_accuses_no_program() {
    let folder = folder_with(&[("right.cpp", &right(2))]);
    // The square root of a negative number is no number.
    let reference = program("", "1", "std::sqrt(-1 - value)");
    std::fs::write(folder.path().join("gaussian/reference.cpp"), reference).unwrap();
    let report = document(&expect_exit(&mut verify(folder.path(), &["gaussian", "right.cpp", "--json"]), 13));
    let judged = &report["programs"][0];
    assert!(judged["verdict"].is_null() && judged["right"].is_null() && judged["judgement"].is_null(), "{judged}");
    assert_eq!(judged["fault"]["code"], "task.reference_not_finite", "{judged}");
    let text = stdout(&expect_exit(&mut verify(folder.path(), &["gaussian", "right.cpp"]), 13));
    assert_eq!(row(&text, "right.cpp")[1], "not judged", "{text}");
    assert!(text.contains("right.cpp: not judged: the reference"), "{text}");
}

#[test]
fn against_compares_with_another_program_that_has_to_be_right() {
    let folder = folder_with(&[("middle.cpp", &right(8)), ("fast.cpp", &right(1)), ("wrong.cpp", &wrong())]);
    expect_exit(&mut verify(folder.path(), &["gaussian", "middle.cpp"]), 0);
    let against = |file: &str| verify(folder.path(), &["gaussian", "middle.cpp", "--against", file]);
    let report = document(&expect_exit(against("fast.cpp").arg("--json"), 10));
    assert_eq!(report["against"], "fast.cpp");
    let measurement = &report["programs"][0]["judgement"]["measurement"];
    assert!(measurement["baseline"].as_str().unwrap().contains("fast.cpp"), "{measurement}");
    assert!(measurement["speedup"]["high"].as_f64().unwrap() < 1.0, "{measurement}");

    let (code, message) = refused(&mut against("wrong.cpp"), 4);
    assert_eq!(code, "request.against_not_right");
    assert!(message.contains("`wrong.cpp` is incorrect") && message.contains("out[7]"), "{message}");
}

#[test]
fn one_shape_can_be_judged_and_an_unknown_one_is_answered_with_those_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/row_softmax/reference.cpp");
    let source = std::fs::read_to_string(reference).unwrap();
    let wrong = source.replace("to[col] /= sum;", "to[col] /= sum + 1;");
    assert_ne!(wrong, source);
    std::fs::write(folder.path().join("wrong.cpp"), wrong).unwrap();
    let at = |shape: &str| verify(folder.path(), &["row_softmax", "wrong.cpp", "--shape", shape]);

    let (code, message) = refused(&mut at("nosuch"), 4);
    assert_eq!(code, "request.no_such_shape");
    for shape in ["`nosuch`", "default", "odd", "narrow", "one_column", "wide"] {
        assert!(message.contains(shape), "{shape}: {message}");
    }
    let (code, message) = refused(verify(folder.path(), &["row_softmax", "wrong.cpp"]).args(["--target", "cuda"]), 4);
    assert!(code == "request.not_for_this_task" && message.contains("`cpu` target"), "{code}: {message}");
    // 33 rows of 5 columns.
    let report = document(&expect_exit(at("narrow").arg("--json"), 11));
    let cases = report["programs"][0]["judgement"]["check"]["cases"].as_array().unwrap();
    assert!(cases.iter().all(|case| case["elements"] == 165), "no other shape is judged: {cases:?}");

    std::fs::write(folder.path().join("right.cpp"), source).unwrap();
    let narrowed = ["row_softmax", "right.cpp", "--shape", "narrow", "--policy", "kernelbench", "--json"];
    let (_, output) = expect_right(&mut verify(folder.path(), &narrowed));
    let evidence = document(&output)["programs"][0]["evidence"].clone();
    assert_eq!(evidence["complete"], false, "{evidence}");
    let missing = evidence["missing"].to_string();
    assert!(missing.contains("only the shape `narrow` was checked, of 5"), "{missing}");
    assert!(missing.contains("the precision policy kernelbench instead of the task's reference"), "{missing}");
}

#[test]
fn a_task_for_the_host_has_no_baseline_but_its_reference() {
    let folder = folder_with(&[("right.cpp", &right(2))]);
    let output = expect_exit(&mut verify(folder.path(), &["gaussian", "--baselines"]), 0);
    assert!(stdout(&output).contains("there is no other way to run the reference"), "{}", stdout(&output));
    let (_, output) = expect_right(&mut verify(folder.path(), &["gaussian", "right.cpp", "--baselines"]));
    let text = stdout(&output);
    assert!(text.contains("fastest baseline: the reference, "), "{text}");
    let (_, output) =
        expect_right(&mut verify(folder.path(), &["gaussian", "right.cpp", "--baselines=library,cuda_graph"]));
    assert!(stdout(&output).contains("fastest baseline: the reference, "), "{}", stdout(&output));
    let output = expect_exit(&mut verify(folder.path(), &["gaussian", "--baselines=fastest"]), 2);
    assert!(stderr(&output).contains("torch.compile:max-autotune"), "{}", stderr(&output));
    let both = ["gaussian", "right.cpp", "--baselines", "--against", "right.cpp"];
    let output = expect_exit(&mut verify(folder.path(), &both), 2);
    assert!(stderr(&output).contains("--against"), "{}", stderr(&output));
}
