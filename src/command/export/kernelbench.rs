//! `nightshift export kernelbench`: results in the layout that `KernelBench`'s own scripts read.

use std::path::Path;

use nightshift_client::Client;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::RunId;
use nightshift_protocol::task::{CandidateForm, TaskBundle};
use nightshift_protocol::verdict::{Answer, WorstElement};
use serde_json::{Map, Value, json};

use super::not_written;
use crate::args::ExportKernelbench;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::kernelbench::layout::{self, Fast, Sample};
use crate::present;
use crate::resolve;

/// What a task is called that was not imported: there is no place for it in that layout.
const NOT_IMPORTED: &str = "task.not_imported";

pub(super) async fn run(context: &Context, args: ExportKernelbench) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let id = resolve::campaign(client, &args.campaign).await?;
        let campaign = client.campaign(&id).await?;
        let mut samples = Vec::new();
        let mut left_out = Vec::new();
        for run in &campaign.runs {
            let found = samples_of(client, &run.id, args.all).await?;
            match found {
                Some(found) => samples.extend(found),
                None => left_out.push(run.digest.task.clone()),
            }
        }
        if samples.is_empty() {
            return Err(Failure::new(
                NOT_IMPORTED,
                "no task of this campaign was imported from a level of KernelBench",
            )
            .hint("`nightshift import kernelbench` keeps the level and the number of each file"));
        }
        let name = run_name(&campaign.summary.name);
        let files = layout::files(&name, &samples);
        for file in &files {
            let path = args.out.join(&file.path);
            let folder = path.parent().unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder).map_err(|error| not_written(folder, &error))?;
            std::fs::write(&path, &file.text).map_err(|error| not_written(&path, &error))?;
        }
        let fast = layout::fast(&samples);
        let output = context.output;
        if output.is_json() {
            output.json(&json!({
                "folder": args.out, "files": files.len(), "samples": samples.len(), "left_out": left_out, "fast": fast,
            }))?;
        } else {
            output.text(&format!(
                "{}: {}, {}",
                args.out.display(),
                present::count(files.len(), "file"),
                present::count(samples.len(), "program")
            ))?;
            for level in &fast {
                output.text(&line(level))?;
            }
            if !left_out.is_empty() {
                output.note(&format!("not from a level of KernelBench, and left out: {}", left_out.join(", ")));
            }
        }
        Ok(ExitCode::Ok)
    })
    .await
}

fn line(level: &Fast) -> String {
    let shares: Vec<String> =
        level.share.iter().map(|(threshold, share)| format!("fast_{threshold} {:.0} %", share * 100.0)).collect();
    let mean = level.geometric_mean.map_or_else(|| present::NONE.to_owned(), present::factor);
    format!("level {}: {} of {}; geometric mean of right programs {mean}", level.level, shares.join(", "), level.tasks)
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
    let Some((level, problem, file)) = file.and_then(place) else { return Ok(None) };
    let best = view.best_attempt.and_then(|number| view.attempts.iter().find(|attempt| attempt.number == number));
    // Without a right one the last one says how far it came.
    let chosen: Vec<&Attempt> =
        if all { view.attempts.iter().collect() } else { best.or(view.attempts.last()).into_iter().collect() };
    let others = view.prepared.iter().flat_map(|prepared| &prepared.baselines);
    let compiled = others.filter(|baseline| baseline.name == "torch.compile").find_map(|b| b.measurement.as_deref());
    let mut samples = Vec::new();
    for (number, attempt) in chosen.into_iter().enumerate() {
        let source = match (&attempt.source, bundle.spec.form) {
            (None, _) => None,
            (Some(hash), CandidateForm::Torch) => Some(client.get_artifact(hash).await?),
            (Some(_), CandidateForm::Native) => Some(client.attempt_model_new(run, attempt.number).await?),
        };
        samples.push(Sample {
            level,
            problem,
            file: file.to_owned(),
            number: u32::try_from(number).unwrap_or(u32::MAX),
            source: source.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            compiled_ns: compiled.map(|measured| measured.candidate_samples_ns.clone()).unwrap_or_default(),
            ..judged(attempt)
        });
    }
    Ok(Some(samples))
}

/// Level, number and name of `level1/19_ReLU.py`.
fn place(file: &str) -> Option<(u32, u32, &str)> {
    let (level, name) = file.strip_prefix("level")?.split_once('/')?;
    Some((level.parse().ok()?, name.split_once('_')?.0.parse().ok()?, name))
}

/// What is known of an attempt, in that layout's words.
fn judged(attempt: &Attempt) -> Sample {
    let (verdict, measured) = (&attempt.verdict, attempt.published());
    let correct = verdict.numerically_correct == Answer::Pass && verdict.contract_compliant != Answer::Fail;
    let hardware = measured.map_or_else(String::new, |measured| {
        measured.machine.gpus.first().map_or_else(|| measured.machine.processor.clone(), |gpu| gpu.name.clone())
    });
    let has_gpu = measured.is_some_and(|measured| !measured.machine.gpus.is_empty());
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
    if let Some(message) = attempt.build.as_ref().and_then(|build| build.messages.first()) {
        say("compilation_error", json!(message.message));
    }
    if let Some(measured) = measured {
        let interval = measured.speedup;
        say("speedup", json!({"estimate": interval.estimate, "low": interval.low, "high": interval.high}));
        say("baseline", json!(measured.baseline));
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
        compiled_ns: Vec::new(),
        hardware,
        device: if has_gpu { "cuda:0" } else { "cpu" }.to_owned(),
        metadata,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_task_is_read_from_its_file() {
        assert_eq!(place("level1/19_ReLU.py"), Some((1, 19, "19_ReLU.py")));
        assert_eq!((place("19_ReLU.py"), place("level1/relu.py"), place("levels/1_a.py")), (None, None, None));
    }
}
