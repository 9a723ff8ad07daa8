#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, json};
use tempfile::TempDir;

use super::*;
use crate::kernelbench::layout;
use crate::kernelbench::results::{figures, times};

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn sample(number: u32, correct: bool, runtime: f64) -> Value {
    json!({"sample_id": number, "compiled": true, "correctness": correct, "metadata": {"hardware": "GPU"},
           "runtime": runtime, "runtime_stats": {"mean": runtime}})
}

fn codes(run: &OtherRun) -> Vec<String> {
    run.left_out.iter().map(|left_out| format!("{}: {}", left_out.what, left_out.code)).collect()
}

const PROGRAM: &str = "class ModelNew: ...\n";

#[test]
fn what_is_exported_is_read_back_with_the_same_figures() {
    let sample = |problem: u32, number: u32, correct: bool, time_ns: u64| layout::Sample {
        level: 2,
        problem,
        file: format!("{problem}_a.py"),
        number,
        source: Some(PROGRAM.to_owned()),
        compiled: true,
        correct,
        times_ns: if correct { vec![time_ns, time_ns + 7, time_ns + 31] } else { Vec::new() },
        baseline_ns: vec![3_000_001, 3_000_200, 3_123_457],
        compiled_ns: BTreeMap::new(),
        speedup: correct.then(|| 3_041_234.0 / f64::from(u32::try_from(time_ns).unwrap())),
        over_fastest: None,
        hardware: "NVIDIA H200".to_owned(),
        device: "cuda:0".to_owned(),
        metadata: Map::new(),
    };
    let second = layout::Sample { baseline_ns: vec![9_000_000; 7], ..sample(7, 1, true, 99) };
    let failed = layout::Sample { source: None, compiled: false, ..sample(40, 0, false, 0) };
    let samples =
        [sample(7, 0, true, 1_234_567), second, sample(8, 0, true, 5_000_000), failed, sample(41, 0, false, 0)];
    let root = tempfile::tempdir().unwrap();
    for file in layout::files("night", &samples) {
        let path = root.path().join(&file.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, file.text).unwrap();
    }
    let runs = find(root.path()).unwrap();
    assert_eq!(runs, [root.path().join("runs/night_level2")]);
    let run = read(&runs[0], None).unwrap();
    let times = times::read(&root.path().join("results/timing/NVIDIA_H200/baseline_time_torch.json")).unwrap();
    let figures = figures::of(&run, Some(&times));
    let (found, written) = (figures.published().unwrap(), layout::fast(&samples).remove(0));
    assert_eq!((found.tasks, &found.share), (written.tasks, &written.share));
    // The files hold times, the ratio of whose means is close to the published speedup.
    assert!((found.geometric_mean.unwrap() / written.geometric_mean.unwrap() - 1.0).abs() < 1e-3);
    assert_eq!((figures.tasks, figures.compiled, figures.correct), (4, 3, 2));
    assert_eq!((figures.results, figures.programs, figures.evaluated), (5, 4, 4));
    assert_eq!(codes(&run), ["task 40, sample 0: results.no_program"]);
    assert!(figures.without_baseline.is_empty() && times.left_out.is_empty());
}

#[test]
fn tasks_without_a_result_count_and_so_do_those_without_a_time() {
    let results = json!({"1": [sample(0, true, 0.5)], "2": [sample(0, true, 2.0)], "3": [sample(1, true, 0.1)],
                         "4": [sample(0, true, -1.0)], "9": [sample(0, true, 0.1)]});
    let times = json!({"level1": {"1_a.py": {"mean": 1.0}, "2_b.py": {"mean": 1.0}, "3_c.py": {"mean": 1.0},
                       "4_d.py": {"mean": 1.0}, "5_e.py": {"mean": 1.0}}, "level2": {"1_a.py": {"mean": 1.0}}});
    let root = folder(&[
        ("eval_results.json", &results.to_string()),
        ("generation_config.yaml", "run_name: x\nlevel: 1\n"),
        ("times.json", &times.to_string()),
    ]);
    let run = read(root.path(), None).unwrap();
    let figures = figures::of(&run, Some(&times::read(&root.path().join("times.json")).unwrap()));
    let share = |threshold: &str| (figures.fast.as_ref().unwrap()[threshold] * 6.0).round();
    assert_eq!((figures.tasks, share("0"), share("0.5"), share("1.5")), (6, 2.0, 1.0, 1.0));
    assert_eq!((figures.evaluated, figures.correct), (4, 4), "program 1 of task 3 is not its program 0");
    assert_eq!((figures.without_baseline.clone(), figures.without_time.clone()), (vec![9], vec![4]));
    assert!((figures.geometric_mean.unwrap() - 1.0).abs() < 1e-9);
    let without = figures::of(&run, None);
    assert_eq!((without.fast, without.tasks, without.without_baseline), (None, 5, Vec::new()));
}

#[test]
fn results_of_both_forms_are_read() {
    let older = json!({"3": sample(0, true, 0.25), "11": {"compiled": false, "correctness": false}});
    let root = folder(&[("eval_results.json", &older.to_string())]);
    let run = read(root.path(), Some(3)).unwrap();
    assert_eq!(run.sample(3, 0).unwrap().claim.as_ref().unwrap().runtime_ms, Some(0.25));
    assert!(run.sample(11, 0).unwrap().claim.is_some());
    assert_eq!(codes(&run), [format!("{}: results.no_program", run.name)]);
}

#[test]
fn what_is_wrong_with_a_sample_is_named_and_leaves_the_others_alone() {
    let results = format!(
        r#"{{"1": [{0}, {0}, {{"sample_id": "x"}}, {{"sample_id": 5, "compiled": "yes"}}], "1": [{1}], "two": [], "3": 7,
             "4": [{{"sample_id": 0, "compiled": true, "correctness": true, "runtime": NaN, "metadata": {{"d": "NaN"}}}}]}}"#,
        sample(0, true, 0.5),
        sample(1, false, -1.0)
    );
    let root = folder(&[
        ("eval_results.json", &results),
        ("level_1_problem_1_sample_0_kernel.py", PROGRAM),
        ("level_1_problem_1_sample_8_kernel.py", PROGRAM),
        ("level_1_problem_4_sample_0_kernel.py", PROGRAM),
        ("kernel.py", PROGRAM),
        ("level_1_problem_1_sample_0_prompt.txt", "a prompt"),
    ]);
    let run = read(root.path(), None).unwrap();
    let wanted = [
        "kernel.py: results.bad_entry",
        "task 1, sample 0: results.duplicate_sample",
        "task 1: results.bad_entry",
        "task 1, sample 5: results.bad_entry",
        "task two: results.bad_entry",
        "task 3: results.bad_entry",
        "task 4, sample 0: its time: results.bad_time",
        "task 1, sample 1: results.no_program",
        "task 1, sample 8: results.no_result",
    ];
    assert_eq!(codes(&run).iter().collect::<BTreeSet<_>>().len(), wanted.len());
    assert_eq!(codes(&run), wanted);
    let claim = run.sample(4, 0).unwrap().claim.clone().unwrap();
    assert_eq!((claim.correct, claim.runtime_ms, &claim.said["metadata"]["d"]), (true, None, &json!("NaN")));
}

#[test]
fn the_level_is_found_or_asked_for() {
    let results = json!({"1": [sample(0, true, 0.5)]}).to_string();
    let level = |more: &[(&str, &str)], asked: Option<u32>| {
        let files = [&[("eval_results.json", results.as_str())], more].concat();
        read(folder(&files).path(), asked).map(|run| (run.level, codes(&run)))
    };
    let first = ("level_1_problem_1_sample_0_kernel.py", PROGRAM);
    let second = ("level_2_problem_1_sample_0_kernel.py", PROGRAM);
    assert_eq!(level(&[("generation_config.yaml", "a: 1\nlevel: '3'\n")], None).unwrap().0, 3);
    assert_eq!(level(&[first], None).unwrap(), (1, vec![]));
    assert_eq!(level(&[], None).unwrap_err().error.code, "results.no_level");
    let banana = ("generation_config.yaml", "level: banana\n");
    let none = level(&[banana], None).unwrap_err();
    assert_eq!(none.error.code, "results.no_level");
    assert!(none.error.message.contains("generation_config.yaml` gives the level `banana`"), "{none}");
    assert_eq!(level(&[banana, first], None).unwrap().0, 1, "the programs tell it");
    let mixed = level(&[first, second], None).unwrap_err();
    assert!(mixed.error.message.contains("levels 1, 2"), "{mixed}");
    let left_out = vec!["level_1_problem_1_sample_0_kernel.py: results.other_level".to_owned()];
    assert_eq!(level(&[first, second], Some(2)).unwrap(), (2, left_out));
}

#[test]
fn folders_without_anything_are_refused() {
    let empty = folder(&[("README.md", "")]);
    let code = |path: &Path| find(path).unwrap_err().error.code;
    assert_eq!(code(empty.path()), "results.not_found");
    assert_eq!(code(&empty.path().join("README.md")), "results.not_found");
    assert_eq!(code(&empty.path().join("none")), "results.not_found");
    let nothing = folder(&[("eval_results.json", "{}")]);
    assert_eq!(read(nothing.path(), Some(1)).unwrap_err().error.code, "results.empty");
    let no_json = folder(&[("eval_results.json", "{\"1\": [")]);
    assert_eq!(read(no_json.path(), Some(1)).unwrap_err().error.code, "results.malformed");
}

#[test]
fn several_runs_are_found_in_their_folder_and_above_it() {
    let program = "level_1_problem_1_sample_0_kernel.py";
    let root = folder(&[(&format!("runs/b/{program}"), PROGRAM), ("runs/a/eval_results.json", "{}"), ("runs/c/x", "")]);
    let runs = root.path().join("runs");
    assert_eq!(find(&runs).unwrap(), [runs.join("a"), runs.join("b")]);
    assert_eq!(find(root.path()).unwrap(), [runs.join("a"), runs.join("b")]);
}
