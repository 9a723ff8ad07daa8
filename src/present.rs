//! How values look in tables and lines.

pub(crate) mod change;
pub(crate) mod cost;
pub(crate) mod gpu;
pub(crate) mod limits;
pub(crate) mod score;

use chrono::{DateTime, Local};
use nightshift_protocol::api::{RunSummary, RunView, precision_policies};
use nightshift_protocol::attempt::{Attempt, AttemptOutcome, Bound, StopReason};
use nightshift_protocol::baseline::{Baseline, BaselineKind, FastestBaseline};
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::plan::SubtaskLimits;
use nightshift_protocol::profile::{Profile, SanitizeReport, SanitizerOutcome, SanitizerRun};
use nightshift_protocol::run::{RunStatus, StepStatus};
use nightshift_protocol::speedups::Speedups;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::verdict::Answer;

use crate::output::Tone;

/// Length of `2026-01-31 20:15`.
const MINUTE_CHARS: usize = 16;

/// What stands where nothing is known.
pub(crate) const NONE: &str = "-";

/// `2.34x`.
pub(crate) fn factor(value: f64) -> String {
    format!("{value:.2}x")
}

/// `2.34x [2.20, 2.41]`.
pub(crate) fn interval(value: Interval) -> String {
    format!("{} [{:.2}, {:.2}]", factor(value.estimate), value.low, value.high)
}

/// `torch.compile: 1.52 ms, 1.31x [1.30, 1.32] over the reference`.
pub(crate) fn baseline(baseline: &Baseline) -> String {
    let name = baseline.kind.label();
    match (&baseline.measurement, &baseline.reason) {
        (Some(measured), _) => format!(
            "{name}: {}, {} over the reference",
            nanoseconds(measured.candidate_median_ns),
            interval(measured.speedup)
        ),
        (None, Some(reason)) => format!("{name}: not measured: {reason}"),
        (None, None) => format!("{name}: not measured"),
    }
}

/// `CUDA graph: 1.52 ms, 1.31x [1.30, 1.32] over the reference`, or that there is nothing faster than the reference.
pub(crate) fn fastest_baseline(fastest: &FastestBaseline) -> String {
    let time = nanoseconds(fastest.median_ns);
    match fastest.kind {
        BaselineKind::Reference => format!("the {}, {time}", fastest.label_with_limits()),
        _ => format!("{}, {time}, {} over the reference", fastest.label_with_limits(), interval(fastest.speedup)),
    }
}

/// The best speedup of a run over the reference: `2.34x [2.20, 2.41]`.
pub(crate) fn best_over_reference(run: &RunSummary) -> String {
    run.digest.best_speedup.map_or_else(|| NONE.to_owned(), interval)
}

/// The best speedup of a run over the fastest baseline, with its name: `1.12x [1.10, 1.13] (CUDA graph)`.
pub(crate) fn best_over_fastest(run: &RunSummary) -> String {
    let over = run.digest.best_speedup_over_fastest.zip(run.digest.fastest_baseline);
    over.map_or_else(
        || NONE.to_owned(),
        |(speedup, fastest)| format!("{} ({})", interval(speedup), fastest.label_with_limits()),
    )
}

/// Returns geometric mean and `fast_1` of the best programs of runs, over each of both baselines in one line.
pub(crate) fn summary_over_baselines(runs: &[&RunSummary]) -> Vec<String> {
    if runs.len() < 2 {
        return Vec::new();
    }
    let line = |name: &str, runs: &[&RunSummary], over: fn(&RunSummary) -> Option<Interval>| {
        let speedups = Speedups::collect(runs.iter().map(|run| (run.digest.best_speedup, over(run))));
        let (solved, faster, tasks) = (speedups.solved(), speedups.above(1.0), speedups.tasks);
        let mean = factor(speedups.geometric_mean()?);
        Some(format!("over {name}: geometric mean {mean} of {solved} tasks, faster in {faster} of {tasks} (fast_1)"))
    };
    // A task counts over the fastest baseline where that is known, solved or not.
    let known: Vec<&RunSummary> = runs.iter().copied().filter(|run| run.digest.fastest_baseline.is_some()).collect();
    let over_reference = line("the reference", runs, |run| run.digest.best_speedup);
    let over_fastest = line("the fastest baseline", &known, |run| run.digest.best_speedup_over_fastest);
    let incomplete =
        known.iter().filter(|run| run.digest.fastest_baseline.is_some_and(|of| of.incomplete.is_some())).count();
    let incomplete = (incomplete > 0).then(|| {
        let tasks = count(incomplete, "task");
        format!("a fault of the machine left baselines of {tasks} unmeasured: a faster one may be missing")
    });
    let policies = precision_policies(runs.iter().copied());
    let mixed = (policies.len() > 1).then(|| format!("over several precision policies: {}", policies.join(", ")));
    [over_reference, over_fastest, incomplete, mixed].into_iter().flatten().collect()
}

/// What the sanitizer's checks came to: `memcheck clean, racecheck 2 errors, initcheck unavailable (not installed)`.
pub(crate) fn sanitizer(report: &SanitizeReport) -> String {
    let run = |run: &SanitizerRun| {
        let tool = run.tool.as_str();
        match run.outcome {
            SanitizerOutcome::Clean => format!("{tool} clean"),
            SanitizerOutcome::Warnings => format!("{tool} {} warnings", run.warnings),
            SanitizerOutcome::Errors => format!("{tool} {} errors", run.errors),
            SanitizerOutcome::Unavailable => {
                format!("{tool} unavailable ({})", run.reason.as_deref().unwrap_or("no reason given"))
            }
        }
    };
    if report.tools.is_empty() {
        "no check ran".to_owned()
    } else {
        report.tools.iter().map(run).collect::<Vec<_>>().join(", ")
    }
}

/// How many calls each sample is made of, where that is more than one.
pub(crate) fn calls_per_sample(measured: &Measurement) -> String {
    let calls = measured.device.as_ref().and_then(|device| device.calls_per_sample).filter(|calls| *calls > 1);
    calls.map_or_else(String::new, |calls| format!(" of {calls} calls"))
}

/// What holds a program back: by its counters, and without any by its place under the roofline.
pub(crate) fn bound(profile: &Profile) -> &str {
    let by = profile.bound.as_ref().map(|by| by.bound.map_or("unknown", Bound::as_str));
    by.unwrap_or(&profile.roofline_bound)
}

/// A duration in nanoseconds with a fitting unit.
pub(crate) fn nanoseconds(value: f64) -> String {
    match value {
        v if v < 1e3 => format!("{v:.0} ns"),
        v if v < 1e6 => format!("{:.1} µs", v / 1e3),
        v if v < 1e9 => format!("{:.2} ms", v / 1e6),
        v => format!("{:.2} s", v / 1e9),
    }
}

/// A moment in the zone of this machine, to the minute: for tables.
pub(crate) fn minute(at: TimestampMs) -> String {
    moment(at).chars().take(MINUTE_CHARS).collect()
}

/// A moment in the zone of this machine.
pub(crate) fn moment(at: TimestampMs) -> String {
    DateTime::from_timestamp_millis(at.0)
        .map_or_else(|| NONE.to_owned(), |at| at.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S").to_string())
}

/// How a run ended, or where it stands, in one word.
pub(crate) fn ended(run: &RunSummary) -> &str {
    match (run.status, &run.digest.stop_reason) {
        (RunStatus::Completed, Some(reason)) => reason.as_str(),
        (status, _) => status.as_str(),
    }
}

/// How a run ended, or what it does now.
pub(crate) fn status(run: &RunSummary) -> &str {
    if run.status == RunStatus::Running { run.digest.activity.as_str() } else { ended(run) }
}

/// The command that opens the gate that a run waits at.
pub(crate) fn gate_commands(run: &RunSummary) -> Option<String> {
    let gate = run.awaits.first()?;
    let id = run.id.short();
    (!run.status.is_final()).then(|| {
        format!("`nightshift approve {id} --gate {gate}`, or `nightshift reject {id} --gate {gate} --reason TEXT`")
    })
}

/// What a run failed of, or why its task was rejected.
pub(crate) fn reason(run: &RunSummary) -> Option<String> {
    match (run.status, &run.digest.stop_reason, &run.failure) {
        (RunStatus::Completed, Some(StopReason::TaskRejected { code, message }), _) => {
            Some(format!("{code}: {message}"))
        }
        (RunStatus::Failed, _, Some(failure)) => Some(format!("{}: {}", failure.code, failure.message)),
        _ => None,
    }
}

/// How a run ended, or where it stands, with the reason.
pub(crate) fn ending(run: &RunSummary) -> String {
    match reason(run) {
        Some(reason) => format!("{}: {reason}", ended(run)),
        None => ended(run).to_owned(),
    }
}

/// `1 attempt`, `2 attempts`.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns whether a run ended with a correct candidate.
pub(crate) fn succeeded(run: &RunSummary) -> bool {
    run.status == RunStatus::Completed && run.digest.best_attempt.is_some()
}

/// How a run's state is meant.
pub(crate) fn run_tone(run: &RunSummary) -> Tone {
    match run.status {
        RunStatus::Completed if succeeded(run) => Tone::Good,
        RunStatus::Completed | RunStatus::Failed => Tone::Bad,
        RunStatus::Paused | RunStatus::Cancelling | RunStatus::Cancelled => Tone::Caution,
        RunStatus::Running => Tone::Plain,
    }
}

/// How a step's state is meant.
pub(crate) fn step_tone(status: StepStatus) -> Tone {
    match status {
        StepStatus::Completed => Tone::Good,
        StepStatus::Failed => Tone::Bad,
        StepStatus::Cancelled => Tone::Caution,
        StepStatus::Scheduled | StepStatus::Leased => Tone::Plain,
    }
}

/// How an attempt's outcome is meant.
pub(crate) fn outcome_tone(outcome: AttemptOutcome) -> Tone {
    match outcome {
        AttemptOutcome::CorrectFaster => Tone::Good,
        AttemptOutcome::CorrectNotFaster => Tone::Caution,
        AttemptOutcome::Pending => Tone::Plain,
        _ => Tone::Bad,
    }
}

/// An answer of the verdict.
pub(crate) fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Pass => "yes",
        Answer::Fail => "no",
        Answer::Inconclusive => "unknown",
    }
}

/// Why a program did not compile, in the compiler's words where it has some: what it says of one that did is no reason.
pub(crate) fn compiler_error(attempt: &Attempt) -> Option<String> {
    let build = attempt.build.as_ref().filter(|_| attempt.outcome == AttemptOutcome::CompileFailed)?;
    let error = build.messages.iter().find(|message| message.severity == "error");
    Some(error.map_or_else(|| build.end.describe(), |error| error.message.clone()))
}

/// `2 correct_faster` and `1 crashed`, in the order in which they came first.
pub(crate) fn outcomes(attempts: &[Attempt]) -> Vec<String> {
    let mut counts: Vec<(AttemptOutcome, u32)> = Vec::new();
    for attempt in attempts {
        match counts.iter_mut().find(|(outcome, _)| *outcome == attempt.outcome) {
            Some((_, n)) => *n += 1,
            None => counts.push((attempt.outcome, 1)),
        }
    }
    counts.iter().map(|(outcome, n)| format!("{n} {}", outcome.as_str())).collect()
}

/// The price of model calls: what is known, and how many calls have no known price.
pub(crate) fn price<'a>(calls: impl Iterator<Item = &'a nightshift_protocol::model_call::ModelCallSummary>) -> String {
    let (mut microusd, mut priced, mut unknown) = (0_u64, 0_usize, 0_usize);
    for call in calls.filter(|call| !call.scripted) {
        match call.price_microusd {
            Some(price) => {
                microusd = microusd.saturating_add(price);
                priced += 1;
            }
            None => unknown += 1,
        }
    }
    let dollars = format!("{}.{:06} USD", microusd / 1_000_000, microusd % 1_000_000);
    match (priced, unknown) {
        (0, 0) => "no answer of a live model is on record".to_owned(),
        (_, 0) => dollars,
        (0, n) => format!("unknown ({} without a known price)", count(n, "call")),
        (_, n) => format!("{dollars}, and {} of unknown price", count(n, "call")),
    }
}

/// What the model calls of runs cost, those of failed steps included.
pub(crate) fn cost<'a>(views: impl Iterator<Item = &'a RunView>) -> String {
    let (mut calls, mut failed) = (Vec::new(), 0);
    for view in views {
        calls.extend(view.plans.iter().flat_map(|plan| &plan.calls));
        calls.extend(view.attempts.iter().flat_map(|attempt| &attempt.calls));
        calls.extend(&view.failed_calls);
        failed += view.failed_calls.iter().filter(|call| !call.scripted).count();
    }
    calls.retain(|call| !call.scripted);
    let mut line = price(calls.iter().copied());
    let sum = |count: fn(&ModelCallSummary) -> Option<u64>| {
        let known = calls.iter().filter_map(|call| count(call));
        known.fold(None, |sum: Option<u64>, tokens| Some(sum.unwrap_or(0).saturating_add(tokens)))
    };
    let read = sum(|call| call.input_tokens).unwrap_or(0);
    let written = sum(|call| call.output_tokens).unwrap_or(0);
    if read > 0 || written > 0 {
        let (cached, reasoning) = (sum(|call| call.cached_input_tokens), sum(|call| call.reasoning_tokens));
        line = format!("{line}; {}", cost::tokens(read, cached, written, reasoning));
    }
    if failed > 0 {
        line = format!("{line}; of these {} of steps that failed", count(failed, "call"));
    }
    line
}

/// What a subtask can give, in brackets.
pub(crate) fn plan_limits(limits: &SubtaskLimits) -> String {
    let roof = match limits.roofline_by.as_str() {
        "memory" => "by the roofline of the memory at most",
        "compute" => "by the roofline of the arithmetic at most",
        _ => "by the roofline at most",
    };
    let said = [
        (limits.expected_speedup, "expected"),
        (limits.amdahl_speedup, "by Amdahl's law at most"),
        (limits.roofline_speedup, roof),
    ];
    let said = said.into_iter().chain([(limits.wanted_target, "held down to that from a target of")]);
    let said: Vec<String> =
        said.filter_map(|(speedup, what)| speedup.map(|speedup| format!("{what} {speedup:.2}x"))).collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::artifact::ArtifactHash;
    use nightshift_protocol::machine::SandboxReport;
    use nightshift_protocol::measurement::CompilerReport;
    use nightshift_protocol::verdict::Verdict;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_compiler_says_of_a_program_that_compiled_is_no_error() {
        let message = |severity: &str, text: &str| json!({"file": "a.py", "line": 1, "column": 1, "severity": severity, "message": text});
        let error_of = |outcome: &str, messages: serde_json::Value| {
            let attempt = json!({
                "number": 1, "plan_version": 1, "subtask": 1, "stage": "draft", "outcome": outcome, "findings": [], "calls": [],
                "verdict": Verdict::default(),
                "build": {
                    "end": {"kind": "exited", "status": 2}, "messages": messages, "log": ArtifactHash::of(b""),
                    "toolchain": {"program": "c++", "path": "", "version": "1", "flags": [], "fingerprint": ""}, "build_key": "", "cached": false,
                    "duration_ms": 1, "report": CompilerReport::default(), "sandbox": SandboxReport::default(),
                },
            });
            compiler_error(&serde_json::from_value(attempt).unwrap())
        };
        let (warning, error) = (message("warning", "unused parameter"), message("error", "no such name"));
        assert_eq!(error_of("correct_faster", json!([warning])), None);
        assert_eq!(error_of("compile_failed", json!([warning, error])).as_deref(), Some("no such name"));
        let ended = error_of("compile_failed", json!([warning])).unwrap();
        assert!(ended.contains("status 2"), "{ended}");
    }

    #[test]
    fn durations_have_a_fitting_unit() {
        assert_eq!(nanoseconds(12.4), "12 ns");
        assert_eq!(nanoseconds(12_400.0), "12.4 µs");
        assert_eq!(nanoseconds(12_400_000.0), "12.40 ms");
        assert_eq!(nanoseconds(2.5e9), "2.50 s");
    }

    #[test]
    fn a_speedup_is_never_shown_without_its_interval() {
        assert_eq!(interval(Interval { estimate: 2.345, low: 2.2, high: 2.41 }), "2.35x [2.20, 2.41]");
    }
}
