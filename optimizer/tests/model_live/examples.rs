//! The replies beside the bundled examples: each plan, diagnosis and rating can be used, and each is named like a call.

use std::path::{Path, PathBuf};

use nightshift_optimizer::agent::validate_plan;
use nightshift_optimizer::reply::extract_json;
use nightshift_optimizer::task_file::load_folder;
use nightshift_protocol::attempt::Diagnosis;
use nightshift_protocol::plan::Plan;

fn folders() -> Vec<PathBuf> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(examples)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("task.toml").exists())
        .collect();
    folders.sort();
    folders
}

#[test]
fn every_bundled_plan_and_diagnosis_can_be_used() {
    let folders = folders();
    assert!(folders.len() >= 5, "{folders:?}");
    for folder in folders {
        let task = load_folder(&folder).unwrap();
        let mut plans = 0;
        for entry in std::fs::read_dir(folder.join("replies")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            if name == "plan" || name.starts_with("replan") {
                let plan: Plan = extract_json(&text).unwrap_or_else(|problem| panic!("{}: {problem}", path.display()));
                let checked = validate_plan(&plan, &task.bundle.spec.operators);
                assert_eq!(checked, Ok(()), "{}", path.display());
                plans += 1;
            } else if name.ends_with(".diagnose") {
                let read = extract_json::<Diagnosis>(&text);
                assert!(read.is_ok(), "{}: {read:?}", path.display());
            } else {
                let step = name.trim_end_matches(".2").rsplit('.').next();
                assert!(matches!(step, Some("write_code" | "judge")), "{name}");
            }
        }
        assert!(plans >= 1, "{} has no plan", folder.display());
    }
}
