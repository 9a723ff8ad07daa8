//! The folder of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Claim, LeftOut, OtherRun, Sample, text};
use crate::failure::{Failure, Result};
use crate::kernelbench::layout::{CONFIGURATION_FILE, Place, RESULTS_FILE, RUNS_FOLDER};

/// Largest `eval_results.json`, in bytes.
const MAX_RESULTS_BYTES: u64 = 64 << 20;

/// Largest `generation_config.yaml`, in bytes.
const MAX_CONFIGURATION_BYTES: u64 = 1 << 20;

/// Maximum number of characters of something that is no level which a message names.
const MAX_LEVEL_CHARS: usize = 40;

/// Maximum number of entries of a folder that are looked at.
const MAX_ENTRIES: usize = 200_000;

/// Folders of runs: this one, or those in it or in its `runs`.
pub(crate) fn find(path: &Path) -> Result<Vec<PathBuf>> {
    let shown = path.display();
    let found = std::fs::metadata(path)
        .map_err(|error| Failure::new("results.not_found", format!("`{shown}` cannot be read: {error}")))?;
    if !found.is_dir() {
        return Err(Failure::new("results.not_found", format!("`{shown}` is a file"))
            .hint("name the folder of a run: the one with eval_results.json"));
    }
    if is_run(path)? {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut runs = Vec::new();
    for parent in [path.to_path_buf(), path.join(RUNS_FOLDER)] {
        if parent.is_dir() {
            for folder in entries(&parent)? {
                // What cannot be looked into is named when it is read.
                if folder.is_dir() && is_run(&folder).unwrap_or(true) {
                    runs.push(folder);
                }
            }
        }
    }
    if runs.is_empty() {
        let message =
            format!("`{shown}` holds no run: neither {RESULTS_FILE} nor level_L_problem_P_sample_S_kernel.py");
        return Err(Failure::new("results.not_found", message)
            .hint("name the folder of a run, or the one with the folders of several"));
    }
    Ok(runs)
}

fn is_run(folder: &Path) -> Result<bool> {
    Ok(folder.join(RESULTS_FILE).exists() || entries(folder)?.iter().any(|path| Place::of(&name_of(path)).is_some()))
}

/// What lies in a folder, by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let unread = |error: std::io::Error| {
        Failure::new("results.unreadable", format!("`{}` cannot be read: {error}", folder.display()))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unread)? {
        found.push(entry.map_err(unread)?.path());
        if found.len() > MAX_ENTRIES {
            let message = format!("`{}` has more than {MAX_ENTRIES} entries", folder.display());
            return Err(Failure::new("results.too_large", message));
        }
    }
    found.sort();
    Ok(found)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads a run. Results name tasks by their number alone: the level is the one that is asked for, else the one of the
/// configuration, else the one of the programs.
pub(crate) fn read(folder: &Path, level: Option<u32>) -> Result<OtherRun> {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let mut left_out = Vec::new();
    let programs = programs(folder, &mut left_out)?;
    let results_file = folder.join(RESULTS_FILE);
    let results = if results_file.exists() { Some(text::object(&results_file, MAX_RESULTS_BYTES)?) } else { None };
    let level = match level {
        Some(level) => level,
        None => level_of(folder, &programs)?,
    };
    let mut run =
        OtherRun { name: name_of(&whole), folder: folder.to_path_buf(), level, samples: BTreeMap::new(), left_out };
    for (place, file) in programs {
        if place.level == level {
            run.samples.entry(place).or_default().file = Some(file);
        } else {
            let message = format!("the results of this folder are of level {level}");
            run.left_out.push(LeftOut::new(place.file_name(), "results.other_level", message));
        }
    }
    for (problem, said) in results.iter().flat_map(|results| &results.0) {
        take(&mut run, problem, said);
    }
    name_halves(&mut run, results.is_some());
    if run.samples.is_empty() {
        let refused =
            run.left_out.first().map_or_else(String::new, |first| format!(" ({}: {})", first.what, first.message));
        let message = format!("`{}` has neither a result nor a program that can be used{refused}", folder.display());
        return Err(Failure::new("results.empty", message));
    }
    Ok(run)
}

fn programs(folder: &Path, left_out: &mut Vec<LeftOut>) -> Result<Vec<(Place, PathBuf)>> {
    let mut programs = Vec::new();
    for path in entries(folder)? {
        let name = name_of(&path);
        match Place::of(&name) {
            Some(place) => programs.push((place, path)),
            None if path.extension().is_some_and(|extension| extension == "py") => {
                let message = "programs are called level_L_problem_P_sample_S_kernel.py";
                left_out.push(LeftOut::new(name, "results.bad_entry", message));
            }
            // Logs, prompts, and what other scripts found out.
            None => {}
        }
    }
    Ok(programs)
}

/// What a configuration says of the level.
fn level_line(configuration: &str) -> Option<String> {
    let said = configuration.lines().find_map(|line| line.strip_prefix("level:"))?;
    Some(said.trim().trim_matches(['"', '\'']).to_owned())
}

fn level_of(folder: &Path, programs: &[(Place, PathBuf)]) -> Result<u32> {
    let file = folder.join(CONFIGURATION_FILE);
    let said = if file.exists() { level_line(&text::read(&file, MAX_CONFIGURATION_BYTES)?) } else { None };
    if let Some(level) = said.as_ref().and_then(|level| level.parse().ok()) {
        return Ok(level);
    }
    let levels: BTreeSet<u32> = programs.iter().map(|(place, _)| place.level).collect();
    if let (Some(level), 1) = (levels.first(), levels.len()) {
        return Ok(*level);
    }
    let named: Vec<String> = levels.iter().map(u32::to_string).collect();
    let message = if let (Some(said), true) = (&said, named.is_empty()) {
        let said: String = said.chars().take(MAX_LEVEL_CHARS).collect();
        format!("`{}` gives the level `{said}`, which is no number of a level", file.display())
    } else if named.is_empty() {
        format!("nothing in `{}` says which level its results are of", folder.display())
    } else {
        let named = named.join(", ");
        format!("`{}` has programs of the levels {named}, and results name tasks by number alone", folder.display())
    };
    Err(Failure::new("results.no_level", message).hint("say it with --level"))
}

/// Takes what is said of one task: a list of samples, or, as in files of 2024 and 2025, one sample.
fn take(run: &mut OtherRun, problem: &str, said: &Value) {
    let what = format!("task {problem}");
    let Ok(number) = problem.parse() else {
        let message = "results are named by the number of their task";
        return run.left_out.push(LeftOut::new(what, "results.bad_entry", message));
    };
    match said {
        Value::Array(samples) => samples.iter().for_each(|said| take_sample(run, number, said, None)),
        Value::Object(_) => take_sample(run, number, said, Some(0)),
        _ => run.left_out.push(LeftOut::new(what, "results.bad_entry", "it is neither a list of samples nor a sample")),
    }
}

fn take_sample(run: &mut OtherRun, problem: u32, said: &Value, default: Option<u32>) {
    let number = match said.get("sample_id") {
        None => default,
        Some(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    let Some(sample) = number else {
        let message = "a sample has no `sample_id` that is a number";
        return run.left_out.push(LeftOut::new(format!("task {problem}"), "results.bad_entry", message));
    };
    let what = format!("task {problem}, sample {sample}");
    let (claim, bad_time) = match Claim::read(said) {
        Ok(read) => read,
        Err(message) => return run.left_out.push(LeftOut::new(what, "results.bad_entry", message)),
    };
    let place = Place { level: run.level, problem, sample };
    let known = run.samples.entry(place).or_default();
    if known.claim.is_some() {
        let message = "the same sample has another result before this one, which stays";
        return run.left_out.push(LeftOut::new(what, "results.duplicate_sample", message));
    }
    known.claim = Some(claim);
    if let Some(message) = bad_time {
        run.left_out.push(LeftOut::new(format!("{what}: its time"), "results.bad_time", message));
    }
}

/// Names what there is only one half of. Where a half is missing altogether it is said once.
fn name_halves(run: &mut OtherRun, has_results: bool) {
    let has_programs = run.samples.values().any(|sample| sample.file.is_some());
    let mut halves = Vec::new();
    if !has_results {
        let message = format!("there is no {RESULTS_FILE}: nothing is known of the programs");
        halves.push(LeftOut::new(run.name.clone(), "results.no_result", message));
    }
    if !has_programs && !run.samples.is_empty() {
        halves.push(LeftOut::new(run.name.clone(), "results.no_program", "no program lies beside the results"));
    }
    for (Place { problem, sample, .. }, found) in &run.samples {
        let what = format!("task {problem}, sample {sample}");
        match found {
            Sample { claim: Some(_), file: None } if has_programs => {
                halves.push(LeftOut::new(what, "results.no_program", "it has a result and no program"));
            }
            Sample { claim: None, file: Some(_) } if has_results => {
                halves.push(LeftOut::new(what, "results.no_result", "it has a program and no result"));
            }
            _ => {}
        }
    }
    run.left_out.extend(halves);
}

#[cfg(test)]
mod tests;
