#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::kernelbench::claims;
use crate::kernelbench::results;

const TASK: &str = include_str!("../../../tests/fixtures/kernelbench-results/task.toml");

/// Tasks in `tasks`, and a run with these programs of task 19 in `run`.
fn bench(programs: &[&str]) -> (TempDir, OtherRun) {
    let root = tempfile::tempdir().unwrap();
    let (task, run) = (root.path().join("tasks/relu"), root.path().join("run"));
    for folder in [&task, &run] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(task.join("task.toml"), TASK).unwrap();
    std::fs::write(task.join("reference.py"), "class Model: ...\n").unwrap();
    let mut said = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        std::fs::write(run.join(format!("level_1_problem_19_sample_{number}_kernel.py")), program).unwrap();
        said.push(json!({"sample_id": number, "compiled": true, "correctness": number == 0, "runtime": 0.5}));
    }
    std::fs::write(run.join("eval_results.json"), json!({"19": said}).to_string()).unwrap();
    let read = results::read(&run, None).unwrap();
    (root, read)
}

fn written(root: &TempDir, run: &OtherRun, force: bool) -> (Vec<Written>, Vec<LeftOut>) {
    let stock = stock(&root.path().join("tasks")).unwrap();
    write_run(run, &stock, None, &root.path().join("out"), force).unwrap()
}

fn codes(left_out: &[LeftOut]) -> Vec<&str> {
    left_out.iter().map(|left_out| left_out.code.as_ref()).collect()
}

#[test]
fn programs_become_replies_that_give_them_to_the_letter() {
    let fenced = "\"\"\"\n```python\nx = 1\n```\n~~~\n\"\"\"\nclass ModelNew: ...";
    let (root, run) = bench(&["class ModelNew: ...\n", fenced, "class ModelNew:\r\n    \"\"\"\u{e4}\"\"\"\r\n"]);
    let (written, left_out) = written(&root, &run, false);
    assert_eq!((written.len(), written[0].programs, left_out), (1, 3, vec![]));

    let loaded = load_folder(&written[0].folder).unwrap();
    let spec = &loaded.bundle.spec;
    assert_eq!((spec.form, spec.goal.max_attempts, spec.goal.max_replans), (CandidateForm::Torch, Some(3), Some(0)));
    let text = std::fs::read_to_string(written[0].folder.join("task.toml")).unwrap();
    assert!(text.starts_with("# Written by `nightshift import kernelbench` from level1/19_ReLU.py,\n"), "{text}");

    let replies = loaded.replies.unwrap();
    assert_eq!(replies.len(), 4);
    let claims = claims::read(&root.path().join("out")).unwrap().remove(0);
    assert_eq!((claims.level, claims.problem, claims.task.as_str()), (1, 19, "kb-l1-19-relu"));
    for (claimed, (place, sample)) in claims.programs.iter().zip(&run.samples) {
        let reply = &replies[&format!("subtask1.attempt{}.write_code", claimed.attempt)];
        assert_eq!(place_of(reply), Some(*place));
        let program = extract_program(reply, None, CandidateForm::Torch).unwrap();
        let file = std::fs::read_to_string(sample.file.as_ref().unwrap()).unwrap();
        assert_eq!(program.trim_end_matches('\n'), file.trim_end_matches('\n'));
        assert_eq!(claimed.source, ArtifactHash::of(program.as_bytes()));
        assert_eq!(
            (claimed.sample, claimed.said.as_ref()),
            (place.sample, sample.claim.as_ref().map(|claim| &claim.said))
        );
    }
    let plan: Value = nightshift_optimizer::reply::extract_json(&replies["plan"]).unwrap();
    assert_eq!(plan["subtasks"][0]["scope"], json!(["relu"]));
    assert!(claims::has_programs_of_others(&written[0].folder));
    assert!(!claims::has_programs_of_others(&root.path().join("tasks/relu")));
}

#[test]
fn other_replies_give_no_program_of_others() {
    for reply in [
        "",
        "The next program.",
        "The program of `x.py`, as it is.",
        "The program of `level_1_problem_2_sample_3_kernel.py` is better.",
        "As I said: The program of `level_1_problem_2_sample_3_kernel.py`, as it is.",
    ] {
        assert_eq!(place_of(reply), None, "{reply}");
    }
}

#[test]
fn programs_that_no_reply_can_hold_are_named() {
    let edit = "x = '''\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n'''\n";
    let large = "#".repeat(MAX_SOURCE_BYTES + 1);
    let (root, run) = bench(&["class ModelNew: ...\n", edit, "x = '<think>'\ny = 1\n", "", &large]);
    let (written, left_out) = written(&root, &run, false);
    assert_eq!(written[0].programs, 1);
    assert_eq!(codes(&left_out), ["results.unusable_program"; 4]);
}

#[test]
fn folders_that_exist_stay_unless_told_otherwise() {
    let (root, mut run) = bench(&["class ModelNew: ...\n", "class ModelNew: pass\n"]);
    written(&root, &run, false);
    let (nothing, left_out) = written(&root, &run, false);
    assert_eq!((nothing.len(), codes(&left_out)), (0, vec!["usage.file_exists"]));
    run.samples.pop_last();
    let (anew, _) = written(&root, &run, true);
    assert_eq!(
        load_folder(&anew[0].folder).unwrap().replies.unwrap().len(),
        2,
        "no reply of the earlier writing stays"
    );
}

#[test]
fn programs_without_a_task_and_too_many_programs_are_named() {
    let programs = vec!["class ModelNew: ...\n"; usize::try_from(MAX_ATTEMPTS).unwrap() + 2];
    let (root, mut run) = bench(&programs);
    let (tasks, left_out) = written(&root, &run, false);
    assert_eq!((tasks[0].programs, codes(&left_out)), (programs.len() - 2, vec!["results.too_many_programs"; 2]));
    run.level = 2;
    let (nothing, left_out) = written(&root, &run, true);
    assert_eq!((nothing.len(), codes(&left_out)), (0, vec!["results.unknown_task"]));
}

#[test]
fn folders_that_hold_no_imported_task_are_named_or_refused() {
    let (root, _) = bench(&["class ModelNew: ...\n"]);
    let tasks = root.path().join("tasks");
    assert_eq!(stock(&root.path().join("run")).unwrap_err().error.code, "task.not_found");
    assert_eq!(stock(&root.path().join("none")).unwrap_err().error.code, "task.not_found");
    for (name, text) in
        [("again", TASK.to_owned()), ("broken", "schema = 1".to_owned()), ("own", TASK.replace("level1/", ""))]
    {
        std::fs::create_dir_all(tasks.join(name)).unwrap();
        std::fs::write(tasks.join(name).join("task.toml"), text).unwrap();
        std::fs::write(tasks.join(name).join("reference.py"), "class Model: ...\n").unwrap();
    }
    let stock = stock(&tasks).unwrap();
    let codes = codes(&stock.left_out);
    assert_eq!((codes.len(), codes[1], codes[2]), (3, "task.not_imported", "results.duplicate_task"));
    assert!(codes[0].starts_with("task."), "{codes:?}");
}
