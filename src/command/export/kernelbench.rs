//! `nightshift export kernelbench`: results in the layout that `KernelBench`'s own scripts read.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nightshift_client::Client;
use nightshift_protocol::api::CampaignDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::RunId;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::task::{CandidateForm, TaskBundle};
use nightshift_protocol::verdict::{Answer, WorstElement};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::beside::{self, Comparison};
use super::not_written;
use crate::args::ExportKernelbench;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::kernelbench::claims;
use crate::kernelbench::layout::{self, Fast, LaidOut, Place, Sample};
use crate::kernelbench::scripted;
use crate::output::{Output, printable};
use crate::present;
use crate::resolve;

/// What a task is called that was not imported: there is no place for it in that layout.
const NOT_IMPORTED: &str = "task.not_imported";

pub(super) async fn run(context: &Context, args: ExportKernelbench) -> Result<ExitCode> {
    let claims = args.beside.as_deref().map(claims::read).transpose()?;
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let id = resolve::campaign(client, &args.campaign).await?;
        let campaign = client.campaign(&id).await?;
        let written = match &args.out {
            Some(out) => Some(write(client, &campaign, out, &args).await?),
            None => None,
        };
        let comparison = match &claims {
            Some(claims) => Some(beside::compare(client, &campaign, claims).await?),
            None => None,
        };
        let output = context.output;
        if output.is_json() {
            output.json(&Shown { written, beside: comparison })?;
        } else {
            written.map_or(Ok(()), |written| written.show(output))?;
            comparison.map_or(Ok(()), |comparison| comparison.show(output))?;
        }
        Ok(ExitCode::Ok)
    })
    .await
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    written: Option<Written>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<Comparison>,
}

/// What was written.
#[derive(Serialize)]
struct Written {
    folder: PathBuf,
    files: usize,
    samples: usize,
    /// Tasks that have no place in the layout.
    left_out: Vec<String>,
    /// Tasks whose runs have no attempt: they are not counted.
    without_attempts: Vec<String>,
    fast: Vec<Fast>,
}

impl Written {
    fn show(&self, output: Output) -> Result<()> {
        output.text(&format!(
            "{}: {}, {}",
            self.folder.display(),
            present::count(self.files, "file"),
            present::count(self.samples, "program")
        ))?;
        for level in &self.fast {
            output.text(&level.line())?;
            level.line_over_fastest().map_or(Ok(()), |line| output.text(&line))?;
        }
        if !self.left_out.is_empty() {
            output.note(&printable(&format!(
                "not from a level of KernelBench, and left out: {}",
                self.left_out.join(", ")
            )));
        }
        if !self.without_attempts.is_empty() {
            output.note(&printable(&format!(
                "without an attempt, and not counted: {}",
                self.without_attempts.join(", ")
            )));
        }
        Ok(())
    }
}

async fn write(client: &Client, campaign: &CampaignDetail, out: &Path, args: &ExportKernelbench) -> Result<Written> {
    let mut samples = Vec::new();
    let (mut left_out, mut without_attempts) = (Vec::new(), Vec::new());
    for run in &campaign.runs {
        match samples_of(client, &run.id, args.all).await? {
            Some(found) if found.is_empty() => without_attempts.push(run.digest.task.clone()),
            Some(found) => samples.extend(found),
            None => left_out.push(run.digest.task.clone()),
        }
    }
    if samples.is_empty() && !without_attempts.is_empty() {
        let message = format!("no run of this campaign has an attempt: {}", without_attempts.join(", "));
        return Err(Failure::new("attempt.not_found", message));
    }
    if samples.is_empty() {
        return Err(Failure::new(NOT_IMPORTED, "no task of this campaign was imported from a level of KernelBench")
            .hint("`nightshift import kernelbench` keeps the level and the number of each file"));
    }
    let files = layout::files(&run_name(&campaign.summary.name), &samples);
    put(&files, out, args.force)?;
    let fast = layout::fast(&samples);
    Ok(Written {
        folder: out.to_path_buf(),
        files: files.len(),
        samples: samples.len(),
        left_out,
        without_attempts,
        fast,
    })
}

/// Writes the files. Without `force` nothing is written where one of them, or a program in the folder of a run, is there already;
/// with it they are replaced, and programs of an earlier export do not stay among the new ones.
fn put(files: &[LaidOut], out: &Path, force: bool) -> Result<()> {
    let earlier = programs_beside(files, out)?;
    let taken = files.iter().map(|file| out.join(&file.path)).find(|path| path.symlink_metadata().is_ok());
    if let Some(taken) = taken.as_ref().or(earlier.first()).filter(|_| !force) {
        return Err(Failure::new("usage.file_exists", format!("`{}` exists already", taken.display()))
            .hint("choose another folder, or give --force to replace the run's files"));
    }
    for file in files {
        let path = out.join(&file.path);
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(|error| not_written(folder, &error))?;
        std::fs::write(&path, &file.text).map_err(|error| not_written(&path, &error))?;
    }
    for stale in earlier {
        std::fs::remove_file(&stale).map_err(|error| not_written(&stale, &error))?;
    }
    Ok(())
}

/// Programs that lie in the folders of the runs and are not among the files.
fn programs_beside(files: &[LaidOut], out: &Path) -> Result<Vec<PathBuf>> {
    let is_results = |file: &&LaidOut| file.path.ends_with(layout::RESULTS_FILE);
    let written: BTreeSet<PathBuf> = files.iter().map(|file| out.join(&file.path)).collect();
    let mut beside = Vec::new();
    for folder in files.iter().filter(is_results).filter_map(|file| file.path.parent()).map(|folder| out.join(folder)) {
        let unread = |error: std::io::Error| not_written(&folder, &error);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(unread(error)),
        };
        for entry in entries {
            let entry = entry.map_err(unread)?;
            let is_program = entry.file_name().to_str().and_then(Place::of).is_some();
            if is_program && !written.contains(&entry.path()) {
                beside.push(entry.path());
            }
        }
    }
    beside.sort();
    Ok(beside)
}

fn run_name(campaign: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    campaign.chars().map(plain).collect()
}

/// Programs of a run: its best one, or all in their order. None for a task that has no place in the layout.
async fn samples_of(client: &Client, run: &RunId, all: bool) -> Result<Option<Vec<Sample>>> {
    let view = client.run(run).await?.view;
    let bytes = client.get_artifact(&view.task).await?;
    let bundle: TaskBundle = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::new("task.unreadable", format!("a stored task cannot be read: {error}")))?;
    let file = bundle.spec.torch.as_ref().and_then(|torch| torch.file.as_deref());
    let Some((level, problem, file)) = file.and_then(layout::task_of) else { return Ok(None) };
    let best = view.best_attempt.and_then(|number| view.attempts.iter().find(|attempt| attempt.number == number));
    // Without a right one the last one says how far it came.
    let chosen: Vec<&Attempt> =
        if all { view.attempts.iter().collect() } else { best.or(view.attempts.last()).into_iter().collect() };
    let others = view.prepared.iter().flat_map(|prepared| &prepared.baselines);
    let compiled =
        others.filter(|baseline| baseline.kind == BaselineKind::Compile).find_map(|b| b.measurement.as_deref());
    let numbers = numbers(client, (level, problem), &chosen, all).await?;
    let mut samples = Vec::new();
    for (number, attempt) in numbers.into_iter().zip(chosen) {
        let source = match (&attempt.source, bundle.spec.form) {
            (None, _) => None,
            (Some(hash), CandidateForm::Torch) => Some(client.get_artifact(hash).await?),
            (Some(_), CandidateForm::Native) => Some(client.attempt_model_new(run, attempt.number).await?),
        };
        let mut sample = Sample {
            level,
            problem,
            file: file.to_owned(),
            number,
            source: source.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            ..judged(attempt, bundle.spec.form)
        };
        if let Some(prepared) = &view.prepared {
            add_baselines(&mut sample, prepared, attempt);
        }
        if let Some(prepared) = view.prepared.as_ref().filter(|_| sample.baseline_ns.is_empty()) {
            sample.baseline_ns = times_of_reference(prepared.baseline_median_ns, compiled);
            (sample.hardware, sample.device) = place_of(&prepared.machine);
        }
        samples.push(sample);
    }
    Ok(Some(samples))
}

/// Adds what is known of the baselines. The layout has files for the modes of `torch.compile`; the others are in the metadata.
fn add_baselines(sample: &mut Sample, prepared: &PreparedTask, attempt: &Attempt) {
    let measured = || prepared.baselines.iter().filter_map(|other| Some((other.kind, other.measurement.as_deref()?)));
    let of_mode = |(kind, measured): (BaselineKind, &Measurement)| {
        Some((kind.compile_mode()?, measured.candidate_samples_ns.clone()))
    };
    sample.compiled_ns = measured().filter_map(of_mode).collect();
    let baselines: Vec<Value> = measured()
        .map(|(kind, measured)| {
            json!({"name": kind, "median_ns": measured.candidate_median_ns, "speedup": measured.speedup})
        })
        .collect();
    if !baselines.is_empty() {
        sample.metadata.insert("baselines".to_owned(), json!(baselines));
    }
    let over_fastest = attempt.published().and_then(|measured| prepared.over_fastest(measured));
    if let (Some(fastest), Some(over_fastest)) = (prepared.fastest_baseline(), over_fastest) {
        sample.over_fastest = Some(over_fastest.estimate);
        sample.metadata.insert("fastest_baseline".to_owned(), json!(fastest.kind));
        let limits = json!({"incomplete": fastest.incomplete, "process_pairs": fastest.process_pairs});
        sample.metadata.insert("fastest_baseline_limits".to_owned(), limits);
        sample.metadata.insert("speedup_over_fastest".to_owned(), json!(over_fastest));
    }
}

/// Numbers of a task's programs: those of others keep theirs. A program alone is program 0, which scripts compare.
async fn numbers(client: &Client, task: (u32, u32), attempts: &[&Attempt], all: bool) -> Result<Vec<u32>> {
    let mut came_with = Vec::new();
    for attempt in attempts.iter().filter(|_| all) {
        came_with.push(came_with_number(client, task, attempt).await?);
    }
    came_with.resize(attempts.len(), None);
    Ok(layout::numbers(&came_with))
}

/// The number of a program that `import kernelbench-results` read: its recorded reply names its file.
async fn came_with_number(client: &Client, task: (u32, u32), attempt: &Attempt) -> Result<Option<u32>> {
    let writes = |call: &&ModelCallSummary| call.scripted && call.role.is_none_or(|role| role == AgentRole::Coder);
    let Some(call) = attempt.calls.iter().find(writes) else { return Ok(None) };
    let reply = match client.get_artifact(&call.reply).await {
        Ok(reply) => reply,
        // Old replies are deleted.
        Err(error) if error.code() == "artifact.not_found" => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let place = scripted::place_of(&String::from_utf8_lossy(&reply));
    Ok(place.filter(|place| (place.level, place.problem) == task).map(|place| place.sample))
}

/// Times of a reference that no program was timed beside: a task without one would be left out by the scripts that count, and
/// not count as failed.
fn times_of_reference(median_ns: f64, compiled: Option<&Measurement>) -> Vec<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time, and a cast saturates")]
    let median = Some(median_ns).filter(|time| *time >= 1.0).map(|time| time as u64);
    compiled.map_or_else(|| median.into_iter().collect(), |measured| measured.baseline_samples_ns.clone())
}

/// The GPU or the processor of a machine, and which device of that.
fn place_of(machine: &MachineFacts) -> (String, String) {
    match machine.gpus.first() {
        Some(gpu) => (gpu.name.clone(), "cuda:0".to_owned()),
        None => (machine.processor.clone(), "cpu".to_owned()),
    }
}

/// What is known of an attempt, in that layout's words.
fn judged(attempt: &Attempt, form: CandidateForm) -> Sample {
    let (verdict, measured) = (&attempt.verdict, attempt.published());
    // The verdict of a program that crashed while it was timed still says that its check passed.
    let correct = attempt.outcome.is_correct() && verdict.contract_compliant != Answer::Fail;
    let (hardware, device) = measured.map(|measured| place_of(&measured.machine)).unwrap_or_default();
    let mut metadata = Map::new();
    let mut say = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
    say("hardware", json!(hardware));
    if let Some(check) = &attempt.check {
        let passed = check.cases.iter().filter(|case| case.passed).count();
        say("correctness_trials", json!(format!("({passed} / {})", check.cases.len())));
        let difference = |worst: &WorstElement| Some((worst.candidate? - worst.truth).abs());
        let differences: Vec<f64> = check.cases.iter().filter_map(|case| difference(case.worst.as_ref()?)).collect();
        say("max_difference", json!(differences));
    }
    let findings: Vec<&str> = attempt.findings.iter().map(|finding| finding.code.as_str()).collect();
    if !findings.is_empty() {
        say("findings", json!(findings));
    }
    if let Some(error) = present::compiler_error(attempt) {
        say("compilation_error", json!(error));
    }
    if let Some(measured) = measured {
        let interval = measured.speedup;
        say("speedup", json!({"estimate": interval.estimate, "low": interval.low, "high": interval.high}));
        say("baseline", json!(measured.baseline));
        // The file holds a native program in a module, whose own time is not in the times.
        let timed = match form {
            CandidateForm::Native => "the native program without its module",
            CandidateForm::Torch => "ModelNew",
        };
        say("runtime_of", json!(timed));
    }
    Sample {
        level: 0,
        problem: 0,
        file: String::new(),
        number: 0,
        source: None,
        compiled: verdict.compiled == Answer::Pass,
        correct,
        times_ns: measured
            .filter(|_| correct)
            .map(|measured| measured.candidate_samples_ns.clone())
            .unwrap_or_default(),
        baseline_ns: measured.map(|measured| measured.baseline_samples_ns.clone()).unwrap_or_default(),
        compiled_ns: BTreeMap::new(),
        speedup: measured.map(|measured| measured.speedup.estimate),
        over_fastest: None,
        hardware,
        device,
        metadata,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::attempt::AttemptOutcome;
    use nightshift_protocol::baseline::Baseline;
    use nightshift_protocol::measurement::Interval;

    use super::*;

    #[test]
    fn an_earlier_export_is_replaced_as_a_whole_and_only_when_told() {
        let out = tempfile::tempdir().unwrap();
        let file = |path: &str| LaidOut { path: PathBuf::from(path), text: "new".to_owned() };
        let read = |path: &str| std::fs::read_to_string(out.path().join(path)).ok();
        let (results, program) =
            ("runs/a_level1/eval_results.json", "runs/a_level1/level_1_problem_1_sample_0_kernel.py");
        let (stale, other) = (
            "runs/a_level1/level_1_problem_1_sample_7_kernel.py",
            "runs/b_level1/level_1_problem_1_sample_7_kernel.py",
        );
        for path in [stale, other, "runs/a_level1/notes.txt"] {
            std::fs::create_dir_all(out.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(out.path().join(path), "old").unwrap();
        }
        let refused = put(&[file(program), file(results)], out.path(), false).unwrap_err();
        assert_eq!((refused.error.code.as_str(), read(results)), ("usage.file_exists", None), "{refused}");
        put(&[file(program), file(results)], out.path(), true).unwrap();
        assert_eq!((read(program), read(results), read(stale)), (Some("new".to_owned()), Some("new".to_owned()), None));
        assert!(
            read(other).is_some() && read("runs/a_level1/notes.txt").is_some(),
            "they are not of this run's programs"
        );

        let timing = "results/timing/cpu/baseline_time_torch.json";
        std::fs::create_dir_all(out.path().join(timing).parent().unwrap()).unwrap();
        std::fs::write(out.path().join(timing), "old").unwrap();
        let refused = put(&[file("runs/c_level1/eval_results.json"), file(timing)], out.path(), false).unwrap_err();
        assert!(refused.to_string().contains(timing), "{refused}");
        assert_eq!((read("runs/c_level1/eval_results.json"), read(timing)), (None, Some("old".to_owned())));
        put(&[file("runs/c_level1/eval_results.json")], out.path(), false).unwrap();
    }

    #[test]
    fn every_measured_baseline_is_exported_and_none_that_was_not() {
        let text = include_str!("../../../optimizer/tests/corpus/history/repaired_to_the_target.json");
        let recorded: Value = serde_json::from_str(text).unwrap();
        let view = nightshift_optimizer::strategy::view(&recorded["state"]).unwrap();
        let attempt = view.attempts.iter().find(|attempt| attempt.published().is_some()).unwrap();
        let baseline = |kind, estimate: f64| {
            let speedup = Interval { estimate, low: estimate - 0.1, high: estimate + 0.1 };
            let measurement = Measurement { speedup, ..attempt.published().unwrap().clone() };
            Baseline { kind, measurement: Some(Box::new(measurement)), reason: None, is_fault: false }
        };
        let missing =
            Baseline { kind: BaselineKind::CompileMaxAutotune, measurement: None, reason: None, is_fault: false };
        let baselines = vec![
            baseline(BaselineKind::CudaGraph, 2.0),
            baseline(BaselineKind::Compile, 1.2),
            baseline(BaselineKind::CompileReduceOverhead, 1.5),
            missing,
        ];
        let prepared = PreparedTask { baselines, ..view.prepared.clone().unwrap() };
        let mut sample = judged(attempt, CandidateForm::Native);
        add_baselines(&mut sample, &prepared, attempt);
        assert_eq!(sample.compiled_ns.keys().copied().collect::<Vec<_>>(), ["default", "reduce-overhead"]);
        let names: Vec<&str> =
            sample.metadata["baselines"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["cuda_graph", "torch.compile", "torch.compile:reduce-overhead"]);
        assert_eq!(sample.metadata["fastest_baseline"], "cuda_graph");
        assert_eq!(sample.metadata["runtime_of"], "the native program without its module");
        assert_eq!(judged(attempt, CandidateForm::Torch).metadata["runtime_of"], "ModelNew");
        assert_eq!(sample.speedup, attempt.speedup().map(|speedup| speedup.estimate));
        assert!((sample.over_fastest.unwrap() * 2.0 - attempt.speedup().unwrap().estimate).abs() < 1e-9);
        let unmeasured =
            vec![Baseline { kind: BaselineKind::Compile, measurement: None, reason: None, is_fault: false }];
        let mut sample = judged(attempt, CandidateForm::Native);
        add_baselines(&mut sample, &PreparedTask { baselines: unmeasured, ..prepared }, attempt);
        assert_eq!((sample.over_fastest, sample.metadata.get("baselines")), (None, None), "nothing is made up");
    }

    #[test]
    fn a_program_that_did_not_survive_its_confirmation_is_neither_right_nor_fast() {
        let text = include_str!("../../../optimizer/tests/corpus/history/repaired_to_the_target.json");
        let recorded: Value = serde_json::from_str(text).unwrap();
        let view = nightshift_optimizer::strategy::view(&recorded["state"]).unwrap();
        let mut attempt = view.attempts.into_iter().find(|attempt| attempt.published().is_some()).unwrap();
        assert!(
            judged(&attempt, CandidateForm::Native).correct
                && !judged(&attempt, CandidateForm::Native).times_ns.is_empty()
        );
        attempt.confirmation = None;
        for outcome in [AttemptOutcome::Crashed, AttemptOutcome::TimedOut, AttemptOutcome::Pending] {
            attempt.outcome = outcome;
            let sample = judged(&attempt, CandidateForm::Native);
            assert_eq!(attempt.verdict.numerically_correct, Answer::Pass, "its check passed");
            assert_eq!((sample.compiled, sample.correct, sample.times_ns), (true, false, Vec::new()), "{outcome:?}");
        }
    }

    #[test]
    fn a_reference_has_the_time_of_its_preparation_where_nothing_was_timed_beside_it() {
        assert_eq!(times_of_reference(1_234.5, None), [1_234]);
        assert!(times_of_reference(0.0, None).is_empty() && times_of_reference(f64::NAN, None).is_empty());
    }
}
