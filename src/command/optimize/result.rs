//! What a search came to: times before and after, the faster program, and the evidence.

use std::path::Path;

use nightshift_client::Client;
use nightshift_protocol::api::{RunDetail, RunSummary};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::baseline::{BaselineKind, FastestBaseline};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::task::{CandidateForm, PrecisionPolicy, TaskBundle};
use nightshift_protocol::verdict::Answer;
use serde::Serialize;
use serde_json::{Value, json};

use super::Files;
use crate::command::export::not_written;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::follow::{Followed, Until};
use crate::output::printable;
use crate::{present, results};

/// What a file with `ModelNew` lacks to stand in for the model's own file.
const DROP_IN: &str = "\n\n\n# The name that the model has in its own file.\nModel = ModelNew\n";
/// Nanoseconds of a millisecond.
const NS_PER_MS: f64 = 1e6;

/// The best program of a run that is right.
struct Best<'a> {
    attempt: &'a Attempt,
    measured: &'a Measurement,
    /// None where no baseline was measured.
    fastest: Option<FastestBaseline>,
    /// None where no other baseline is faster than the reference, or where the time of that one is not known here.
    over_fastest: Option<Interval>,
}

impl<'a> Best<'a> {
    fn of(detail: &'a RunDetail) -> Option<Self> {
        let number = detail.view.best_attempt?;
        let attempt = detail.view.attempts.iter().find(|attempt| attempt.number == number)?;
        let measured = attempt.published()?;
        let fastest = detail.summary.digest.fastest_baseline;
        let is_other = fastest.is_some_and(|fastest| fastest.kind != BaselineKind::Reference);
        let prepared = detail.view.prepared.as_ref().filter(|_| is_other);
        let over_fastest = prepared.and_then(|prepared| prepared.over_fastest(measured));
        Some(Self { attempt, measured, fastest, over_fastest })
    }

    fn is_faster(&self) -> bool {
        self.measured.is_fast() == Answer::Pass
    }

    /// Returns the time of the fastest baseline, in nanoseconds, as [`fastest_baseline_ns`] does.
    fn fastest_ns(&self) -> Option<f64> {
        fastest_baseline_ns(self.measured.baseline_median_ns, self.fastest?, self.over_fastest.is_some())
    }
}

/// Returns the time of the fastest baseline, in nanoseconds, derived from the reference's time in the program's measurement. The
/// baseline's own measurement is older. None if both were measured on different kinds of machine.
fn fastest_baseline_ns(reference_ns: f64, fastest: FastestBaseline, is_comparable: bool) -> Option<f64> {
    let is_known = is_comparable || fastest.kind == BaselineKind::Reference;
    is_known.then(|| reference_ns / fastest.speedup.estimate)
}

/// Shows the result, and writes the program and the evidence where the program is faster than the reference. Returns the exit code.
pub(super) async fn write(
    context: &Context,
    client: &Client,
    followed: &Followed,
    task: &str,
    files: &Files,
) -> Result<ExitCode> {
    let Some(summary) = followed.runs().next() else {
        return Err(Failure::new("run.not_found", "the campaign has no run"));
    };
    let detail = client.run(&summary.id).await?;
    let best = Best::of(&detail);
    let faster = best.as_ref().filter(|best| best.is_faster());
    let result = Outcome::new(&detail, best.as_ref(), faster.map(|_| files));
    if let Some(faster) = faster {
        let bundle = bundle(client, &detail.view.task).await?;
        let program = program(client, &detail, faster.attempt, &bundle).await?;
        let evidence = serde_json::to_vec_pretty(&json!({ "result": result, "run": detail }))
            .map_err(|error| Failure::new("internal.unwritable", format!("the evidence cannot be written: {error}")))?;
        std::fs::write(&files.program, program).map_err(|error| not_written(&files.program, &error))?;
        std::fs::write(&files.evidence, evidence).map_err(|error| not_written(&files.evidence, &error))?;
    }
    let output = context.output;
    if output.is_json() {
        output.json(&result)?;
    } else {
        for line in lines(&detail, best.as_ref(), faster.map(|_| (task, files))) {
            output.text(&printable(&line))?;
        }
    }
    Ok(exit_code(followed.until, &detail.summary, best.as_ref()))
}

fn exit_code(until: Until, run: &RunSummary, best: Option<&Best<'_>>) -> ExitCode {
    match (until, best) {
        (Until::Interrupted, _) => ExitCode::Interrupted,
        (Until::Ended, Some(best)) if run.status == RunStatus::Completed => {
            if best.is_faster() {
                ExitCode::Ok
            } else {
                ExitCode::NotFaster
            }
        }
        _ => ExitCode::Incomplete,
    }
}

async fn bundle(client: &Client, task: &ArtifactHash) -> Result<TaskBundle> {
    serde_json::from_slice(&client.get_artifact(task).await?)
        .map_err(|error| Failure::new("task.unreadable", format!("the task of the run cannot be read: {error}")))
}

/// Returns the text of the file that takes the place of the task's own.
async fn program(client: &Client, detail: &RunDetail, attempt: &Attempt, task: &TaskBundle) -> Result<Vec<u8>> {
    let missing = || Failure::new("attempt.no_source", format!("attempt {} has no program", attempt.number));
    let is_model = task.spec.torch.is_some();
    let mut text = if is_model && task.spec.form == CandidateForm::Native {
        client.attempt_model_new(&detail.summary.id, attempt.number).await?
    } else {
        client.get_artifact(attempt.source.as_ref().ok_or_else(missing)?).await?
    };
    if is_model {
        text.truncate(text.trim_ascii_end().len());
        text.extend_from_slice(DROP_IN.as_bytes());
    }
    Ok(text)
}

/// Returns whether the evidence in a file is that of a search for this task, by its name, which was not over.
pub(super) fn is_unfinished(evidence: &Path, task: &str) -> bool {
    let read = std::fs::read(evidence).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let Some(result) = read.as_ref().map(|evidence| &evidence["result"]) else { return false };
    let status = serde_json::from_value::<RunStatus>(result["status"].clone());
    result["task"] == task && status.is_ok_and(|status| !status.is_final())
}

/// The result for programs.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    task: &'a str,
    campaign: &'a str,
    run: &'a str,
    status: RunStatus,
    /// How precise programs have to be.
    precision: Option<&'static str>,
    /// Number of the best attempt that is right.
    attempt: Option<u32>,
    attempts: u32,
    /// Whether its speedup was measured again in fresh processes.
    confirmed: bool,
    reference_ms: Option<f64>,
    fastest_baseline: Option<&'static str>,
    fastest_baseline_ms: Option<f64>,
    optimized_ms: Option<f64>,
    /// Speedup over the reference.
    speedup: Option<Interval>,
    speedup_over_fastest: Option<Interval>,
    /// The files that were written.
    program: Option<&'a Path>,
    evidence: Option<&'a Path>,
}

impl<'a> Outcome<'a> {
    fn new(detail: &'a RunDetail, best: Option<&Best<'_>>, files: Option<&'a Files>) -> Self {
        let digest = &detail.summary.digest;
        let measured = best.map(|best| best.measured);
        let fastest = best.and_then(|best| best.fastest);
        Self {
            task: &digest.task,
            campaign: detail.summary.campaign.as_str(),
            run: detail.summary.id.as_str(),
            status: detail.summary.status,
            precision: digest.precision.map(PrecisionPolicy::as_str),
            attempt: best.map(|best| best.attempt.number),
            attempts: digest.attempts,
            confirmed: best.is_some_and(|best| best.attempt.confirmation.is_some()),
            reference_ms: measured.map(|measured| measured.baseline_median_ns / NS_PER_MS),
            fastest_baseline: fastest.map(|fastest| fastest.kind.label()),
            fastest_baseline_ms: best.and_then(Best::fastest_ns).map(|ns| ns / NS_PER_MS),
            optimized_ms: measured.map(|measured| measured.candidate_median_ns / NS_PER_MS),
            speedup: measured.map(|measured| measured.speedup),
            speedup_over_fastest: detail.summary.digest.best_speedup_over_fastest,
            program: files.map(|files| files.program.as_path()),
            evidence: files.map(|files| files.evidence.as_path()),
        }
    }
}

/// The result for people.
fn lines(detail: &RunDetail, best: Option<&Best<'_>>, written: Option<(&str, &Files)>) -> Vec<String> {
    let digest = &detail.summary.digest;
    let mut lines = Vec::new();
    match best {
        None => lines.push(format!("{}: no right program was found in {} attempts", digest.task, digest.attempts)),
        Some(best) => {
            let confirmed = if best.attempt.confirmation.is_some() { "confirmed" } else { "not confirmed" };
            let speedup = present::interval(best.measured.speedup);
            let verdict = if best.is_faster() { "faster" } else { "not faster" };
            lines.push(format!("{}: {verdict}, {speedup} over the reference, {confirmed}", digest.task));
            lines.extend(times(best, digest.attempts));
            lines.extend(beaten_by_baseline(best));
        }
    }
    lines.extend(digest.precision.map(|policy| format!("precision policy: {}", policy.as_str())));
    lines.extend(results::troubles(detail));
    lines.extend(results::evidence(std::slice::from_ref(detail)));
    if let Some((task, files)) = written {
        let (program, evidence) = (files.program.display(), files.evidence.display());
        lines.push(format!("written: {program}, and the evidence, {evidence}"));
        lines.push(format!("`nightshift verify {task} {program}` judges it again"));
        if !detail.summary.status.is_final() {
            lines.push("the search is not over: the same command goes on with it, and replaces both files".to_owned());
        }
    }
    lines
}

/// Before and after in milliseconds, one line each.
fn times(best: &Best<'_>, attempts: u32) -> Vec<String> {
    let mut rows = vec![("reference".to_owned(), best.measured.baseline_median_ns, String::new())];
    if let Some(fastest) = best.fastest.filter(|fastest| fastest.kind != BaselineKind::Reference) {
        let note = match best.over_fastest {
            Some(over) => format!("the fastest baseline; {} over it", present::interval(over)),
            None => "the fastest baseline, measured on another kind of machine".to_owned(),
        };
        rows.push((fastest.label_with_limits(), best.fastest_ns().unwrap_or(fastest.median_ns), note));
    }
    let note = format!("attempt {} of {attempts}", best.attempt.number);
    rows.push(("optimized".to_owned(), best.measured.candidate_median_ns, note));
    let width = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, ns, note): &(String, f64, String)| {
        format!("  {name:width$}  {:>10} ms  {note}", milliseconds(*ns)).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Four digits, as in `1.492` and `0.01234`.
fn milliseconds(ns: f64) -> String {
    let ms = ns / NS_PER_MS;
    let digits_before = ms.log10().floor();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let decimals = (3.0 - digits_before).clamp(0.0, 7.0) as usize;
    format!("{ms:.decimals$}")
}

/// Says where another way to run the reference is as fast: it needs no new program.
fn beaten_by_baseline(best: &Best<'_>) -> Option<String> {
    let fastest = best.fastest?;
    let over = best.over_fastest.filter(|over| over.low <= 1.0)?;
    let word = if over.high < 1.0 { "faster than" } else { "as fast as" };
    Some(format!("{} is {word} this program, and needs no new one", fastest.label_with_limits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_agree_with_the_speedups_next_to_them() {
        let exact = |estimate| Interval { estimate, low: estimate, high: estimate };
        let graph = FastestBaseline {
            kind: BaselineKind::CudaGraph,
            median_ns: 400.0,
            speedup: exact(2.0),
            incomplete: None,
            process_pairs: None,
        };
        // The reference took 800 ns when its graph was measured, and 1000 ns next to the program.
        assert_eq!(fastest_baseline_ns(1000.0, graph, true), Some(500.0));
        assert_eq!(fastest_baseline_ns(1000.0, graph, false), None, "it was measured on another kind of machine");
        let itself = FastestBaseline {
            kind: BaselineKind::Reference,
            median_ns: 800.0,
            speedup: exact(1.0),
            incomplete: None,
            process_pairs: None,
        };
        assert_eq!(fastest_baseline_ns(1000.0, itself, false), Some(1000.0));
    }

    #[test]
    fn milliseconds_have_four_digits() {
        for (ns, text) in [(1_492_345.0, "1.492"), (12_345.0, "0.01235"), (123_456_789.0, "123.5"), (5e9, "5000")] {
            assert_eq!(milliseconds(ns), text);
        }
    }
}
