//! `list --out` and `export --as` over a database that `__generate` filled.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

#[path = "support/binary.rs"]
mod binary;

use std::path::Path;

use binary::{expect_exit, json_lines, nightshift};
use nightshift_protocol::task::Target;
use serde_json::Value;

fn json(folder: &Path, args: &[&str]) -> Value {
    let mut lines = json_lines(&expect_exit(nightshift(folder).args(args).arg("--json"), 0));
    assert_eq!(lines.len(), 1, "{args:?}: {lines:?}");
    lines.remove(0)
}

fn text(folder: &Path, args: &[&str]) -> String {
    String::from_utf8(expect_exit(nightshift(folder).args(args), 0).stdout).unwrap()
}

#[test]
fn whole_lists_are_written_as_tables() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    json(&data, &["__generate", "--attempts", "120", "--complete", "0"]);
    let right = json(&data, &["list", "attempts", "--correct", "--limit", "1"])["total"].as_u64().unwrap();
    let csv = text(&data, &["list", "attempts", "--correct", "--format", "csv"]);
    assert!(csv.starts_with("campaign,run,attempt,task,"), "{csv}");
    // A reader of CSV counts rows; generated texts have no line breaks.
    assert_eq!(csv.lines().count() as u64, right + 1);

    let file = folder.path().join("runs.json");
    let name = file.to_str().unwrap();
    let written = json(&data, &["list", "runs", "--out", name]);
    assert_eq!((&written["format"], &written["file"]), (&Value::from("json"), &Value::from(name)));
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let listed = json(&data, &["list", "runs", "--limit", "500"]);
    assert_eq!(rows.len(), listed["items"].as_array().unwrap().len());
    assert_eq!(rows[0]["run"], listed["items"][0]["id"]);
    expect_exit(nightshift(&data).args(["list", "runs", "--out", name]), 2);
    json(&data, &["list", "campaigns", "--out", name, "--force"]);
    let parquet = folder.path().join("attempts.parquet");
    text(&data, &["list", "attempts", "--out", parquet.to_str().unwrap()]);
    assert!(std::fs::read(&parquet).unwrap().starts_with(b"PAR1"));

    for args in [
        &["list", "runs", "--out", "runs.txt"][..],
        &["list", "runs", "--format", "xlsx"],
        &["list", "runs", "--format", "csv", "--limit", "3"],
        &["list", "runs", "--format", "csv", "--json"],
        &["list", "servers", "--format", "csv"],
    ] {
        expect_exit(nightshift(&data).args(args), 2);
    }
}

#[test]
fn a_program_is_taken_away_as_a_project_and_as_a_model_new() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    json(&data, &["__generate", "--attempts", "20", "--complete", "1"]);
    let run = json(&data, &["list", "runs"])["items"].as_array().unwrap().last().unwrap()["id"].clone();
    let attempts = json(&data, &["list", "attempts", "--run", run.as_str().unwrap(), "--correct"]);
    let attempt = format!("{}/{}", run.as_str().unwrap(), attempts["items"][0]["number"]);
    let (project, python) = (folder.path().join("project"), folder.path().join("model_new.py"));
    let made = json(&data, &["export", &attempt, "--as", "cmake", "--out", project.to_str().unwrap()]);
    assert_eq!(made["files"].as_array().unwrap().len(), 7, "{made}");
    let source = std::fs::read_to_string(project.join("candidate.cu")).unwrap();
    assert!(text(&data, &["show", &attempt]).contains(source.lines().next().unwrap()), "it is the program: {source}");
    assert!(std::fs::read_to_string(project.join("CMakeLists.txt")).unwrap().contains("CUDAToolkit"));
    text(&data, &["export", &attempt, "--as", "model-new", "--out", python.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&python).unwrap().contains("class ModelNew"));

    expect_exit(nightshift(&data).args(["export", &attempt, "--as", "cmake", "--out", project.to_str().unwrap()]), 2);
    expect_exit(nightshift(&data).args(["export", run.as_str().unwrap(), "--as", "cmake", "--out", "x"]), 2);
    // A program that is not right is exported, too, and not without a word.
    let all = json(&data, &["list", "attempts", "--run", run.as_str().unwrap()]);
    let is_wrong = |row: &&Value| {
        row["outcome"] != "no_code" && !row["outcome"].as_str().is_some_and(|outcome| outcome.starts_with("correct"))
    };
    let wrong = all["items"].as_array().unwrap().iter().find(is_wrong).unwrap();
    let export = |attempt: &str, name: &str| {
        let out = folder.path().join(name);
        let args = ["export", attempt, "--as", "model-new", "--out", out.to_str().unwrap()];
        String::from_utf8(expect_exit(nightshift(&data).args(args), 0).stderr).unwrap()
    };
    let said = export(&format!("{}/{}", run.as_str().unwrap(), wrong["number"]), "wrong.py");
    let outcome = wrong["outcome"].as_str().unwrap();
    assert!(said.contains(&format!("was not found to be right ({outcome})")) && said.contains("--correct"), "{said}");
    assert!(!export(&attempt, "right.py").contains("warning"));
    let missing = format!("{}/999", run.as_str().unwrap());
    expect_exit(nightshift(&data).args(["export", &missing, "--as", "cmake", "--out", "x"]), 3);
}

#[test]
fn exported_programs_are_built_with_the_flags_of_workers() {
    // Of these one only leaves lines for profilers, one is CMake's own business, and one names the architecture.
    let counts = |flag: &String| flag != "-g1" && flag != "-nodlink" && !flag.starts_with("-gencode=");
    let of_workers = [
        (Target::Cpu, nightshift_toolchain::toolchain::flags()),
        (Target::Cuda, nightshift_toolchain::nvcc::flags(nightshift_toolchain::nvcc::DEFAULT_ARCH)),
    ];
    for (target, flags) in of_workers {
        let flags: Vec<String> = flags.into_iter().filter(counts).collect();
        assert_eq!(nightshift_optimizer::export::flags(target), flags, "{target:?}");
    }
}
