//! The evidence on one program: its summary, and its sections as texts.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use nightshift_protocol::attempt::{
    Attempt, AttemptOutcome, Bound, BuildReport, CheckReport, Diagnosis, derived_verdict, failure_reason,
};
use nightshift_protocol::baseline::FastestBaseline;
use nightshift_protocol::evidence::Evidence;
use nightshift_protocol::judgement::Judgement;
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::profile::{Profile, SanitizeReport};
use nightshift_protocol::step::{PreparedTask, StepFailure};
use nightshift_protocol::task::PrecisionPolicy;
use nightshift_protocol::verdict::{Answer, Finding, Severity, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ports::Judged;
use crate::text::{line, lines, name};

/// A part of the evidence on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Section {
    /// Its source.
    Source,
    /// The compiler's output, and the resources of its kernels.
    Compiler,
    /// Each correctness check, failed ones first.
    Check,
    /// Findings of the memory and race checker.
    Sanitizer,
    /// The measurement, without individual samples.
    Measurement,
    /// What limits it: timeline, roofline, tools that were used or missing.
    Profile,
    /// Hardware counters by kernel.
    Kernels,
    /// The Verifier's diagnosis, and the run's next step.
    Diagnosis,
    /// The difference to the attempt that it was derived from.
    Difference,
}

impl Section {
    /// Every section, the most useful first.
    pub(crate) const ALL: [Self; 9] = [
        Self::Source,
        Self::Compiler,
        Self::Check,
        Self::Sanitizer,
        Self::Measurement,
        Self::Profile,
        Self::Kernels,
        Self::Diagnosis,
        Self::Difference,
    ];

    /// Returns the name in arguments and addresses.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Compiler => "compiler",
            Self::Check => "check",
            Self::Sanitizer => "sanitizer",
            Self::Measurement => "measurement",
            Self::Profile => "profile",
            Self::Kernels => "kernels",
            Self::Diagnosis => "diagnosis",
            Self::Difference => "difference",
        }
    }

    /// Returns the section of that name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|section| section.as_str() == text)
    }
}

/// The evidence on one program.
pub(crate) struct Program<'a> {
    outcome: AttemptOutcome,
    verdict: Verdict,
    findings: &'a [Finding],
    build: Option<&'a BuildReport>,
    check: Option<&'a CheckReport>,
    sanitize: Option<&'a SanitizeReport>,
    measurement: Option<&'a Measurement>,
    profile: Option<&'a Profile>,
    diagnosis: Option<&'a Diagnosis>,
    route: Option<String>,
    evidence: Evidence,
    reason: Option<String>,
    fastest: Option<FastestBaseline>,
    over_fastest: Option<Interval>,
    roofline_share: Option<f64>,
    policy: Option<PrecisionPolicy>,
    profile_failure: Option<&'a StepFailure>,
}

/// The summary of a program: verdict, evidence and fault.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProgramSummary {
    /// The verdict in one word, for example `correct_faster`, `compile_failed`, `incorrect`; none if nothing was
    /// judged.
    outcome: Option<String>,
    /// The individual answers; none if nothing was judged.
    verdict: Option<VerdictAnswers>,
    /// Precision policy of a verification; none for an attempt, which is judged under that of its run.
    policy: Option<&'static str>,
    /// Checked shapes.
    shapes: Vec<String>,
    /// The first reason why it is not correct.
    reason: Option<String>,
    /// Completeness of the evidence for the verdict; none if nothing was judged.
    evidence: Option<EvidenceAnswer>,
    /// Failure of the machine or the reference. It says nothing about the program.
    fault: Option<Fault>,
    /// Speedup over the reference, with its 95 % interval; none if the program was not timed or is not correct.
    speedup: Option<SpeedupAnswer>,
    /// Speedup over the fastest baseline, the fastest way to run the reference without a new program; none if unknown.
    speedup_over_fastest: Option<SpeedupAnswer>,
    /// Name of that baseline.
    fastest_baseline: Option<String>,
    /// Median time of one call, in nanoseconds.
    program_median_ns: Option<f64>,
    /// Median time of one call of the reference, in nanoseconds.
    reference_median_ns: Option<f64>,
    /// Whether the measurement is precise enough.
    precise: Option<bool>,
    /// Timed calls with verified results, and all timed calls.
    verified_calls: Option<String>,
    /// Fraction of the roofline that it reaches, 0 to 1.
    roofline_share: Option<f64>,
    /// Bottleneck: memory, compute, latency, launch, host or unknown; none without a profile.
    bound: Option<String>,
    /// Why there is no profile although one was requested. It says nothing about the program.
    profile_failure: Option<Fault>,
    /// Observations about compliance.
    findings: Vec<String>,
    /// Machine of the measurement.
    machine: Option<String>,
}

/// The answers of a verdict: `yes`, `no`, or `unknown` if the evidence does not decide.
#[derive(Debug, Serialize, JsonSchema)]
struct VerdictAnswers {
    /// Was the source built?
    compiled: &'static str,
    /// Are the results right?
    numerically_correct: &'static str,
    /// Were the rules of the contract kept?
    contract_compliant: &'static str,
    /// Is the whole interval of the speedup above 1?
    fast: &'static str,
    /// Fraction of its time in code that was built from its source, 0 to 1.
    custom_kernel_time_share: Option<f64>,
}

/// Completeness of the evidence.
#[derive(Debug, Serialize, JsonSchema)]
struct EvidenceAnswer {
    /// Whether all evidence for the verdict exists.
    complete: bool,
    /// What is missing.
    missing: Vec<String>,
}

/// A failure that the program did not cause.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Fault {
    /// A stable code.
    pub(crate) code: String,
    /// What failed.
    pub(crate) message: String,
}

impl Fault {
    fn of(failure: &StepFailure) -> Self {
        Self { code: name(&failure.code), message: line(&failure.message) }
    }
}

/// A speedup with its interval.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub(crate) struct SpeedupAnswer {
    /// The estimate.
    estimate: f64,
    /// Lower bound.
    low: f64,
    /// Upper bound.
    high: f64,
}

impl From<Interval> for SpeedupAnswer {
    fn from(interval: Interval) -> Self {
        Self { estimate: rounded(interval.estimate), low: rounded(interval.low), high: rounded(interval.high) }
    }
}

/// Rounds to five significant digits, which exceeds the precision of any measurement.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

impl<'a> Program<'a> {
    /// Creates the program of an attempt at this task; none while the task is not prepared.
    pub(crate) fn of_attempt(attempt: &'a Attempt, prepared: Option<&PreparedTask>) -> Self {
        let route = attempt.route.as_ref().map(|decision| format!("{}: {}", decision.route.as_str(), decision.reason));
        Self {
            outcome: attempt.outcome,
            verdict: attempt.verdict.clone(),
            findings: &attempt.findings,
            build: attempt.build.as_ref(),
            check: attempt.check.as_ref(),
            sanitize: attempt.sanitize.as_ref(),
            measurement: attempt.published(),
            profile: attempt.profile.as_ref(),
            diagnosis: attempt.diagnosis.as_ref(),
            route,
            evidence: attempt.evidence(),
            reason: failure_reason(
                attempt.outcome,
                &attempt.findings,
                attempt.build.as_ref(),
                attempt.check.as_ref(),
                None,
            ),
            fastest: prepared.and_then(PreparedTask::fastest_baseline),
            over_fastest: attempt.published().and_then(|measured| prepared?.over_fastest(measured)),
            roofline_share: attempt.roofline_share(),
            policy: None,
            profile_failure: None,
        }
    }

    /// Creates the program of a verification.
    fn of_judgement(found: &'a Judgement, judged: &Judged) -> Self {
        let fastest = judged.fastest;
        Self {
            outcome: found.outcome,
            verdict: derived_verdict(
                found.outcome,
                &found.findings,
                found.build.as_ref(),
                found.check.as_ref(),
                found.measurement.as_ref(),
            ),
            findings: &found.findings,
            build: found.build.as_ref(),
            check: found.check.as_ref(),
            sanitize: None,
            measurement: found.measurement.as_ref(),
            profile: found.profile.as_ref(),
            diagnosis: None,
            route: None,
            evidence: found.evidence(&judged.unexamined),
            reason: found.failure_reason(),
            fastest,
            over_fastest: found.measurement.as_ref().and_then(|measured| Some(fastest?.speedup_of(measured.speedup))),
            roofline_share: found.profile.as_ref().and_then(|profile| profile.roofline_share),
            policy: Some(judged.precision),
            profile_failure: found.profile_failure.as_ref(),
        }
    }

    pub(crate) fn summary(&self) -> ProgramSummary {
        let is_correct = self.outcome.is_correct();
        // Times of an incorrect program are meaningless.
        let timed = self.measurement.filter(|_| is_correct);
        let judged = self.outcome != AttemptOutcome::Pending;
        ProgramSummary {
            outcome: Some(self.outcome.as_str().to_owned()),
            verdict: Some(VerdictAnswers {
                compiled: answer(self.verdict.compiled),
                numerically_correct: answer(self.verdict.numerically_correct),
                contract_compliant: answer(self.verdict.contract_compliant),
                fast: answer(self.verdict.fast),
                custom_kernel_time_share: self.verdict.custom_kernel_time_share.map(rounded),
            }),
            policy: self.policy.map(PrecisionPolicy::as_str),
            shapes: lines(shapes(self.check)),
            reason: self.reason.as_deref().filter(|_| judged && !is_correct).map(line),
            evidence: Some(EvidenceAnswer { complete: self.evidence.complete, missing: lines(&self.evidence.missing) }),
            fault: None,
            speedup: timed.map(|timed| timed.speedup.into()),
            speedup_over_fastest: timed.and(self.over_fastest).map(SpeedupAnswer::from),
            fastest_baseline: self.fastest.map(|fastest| fastest.kind.label().to_owned()),
            program_median_ns: timed.map(|timed| rounded(timed.candidate_median_ns)),
            reference_median_ns: timed.map(|timed| rounded(timed.baseline_median_ns)),
            precise: timed.map(|timed| timed.precise),
            verified_calls: timed
                .and_then(|timed| timed.verification.map(|of| format!("{} of {}", of.verified_calls, of.timed_calls))),
            roofline_share: self.roofline_share.map(rounded),
            bound: self.profile.map(|profile| bound(profile).to_owned()),
            profile_failure: self.profile_failure.map(Fault::of),
            findings: lines(self.findings.iter().map(finding)),
            machine: timed.map(|timed| machine(&timed.machine)),
        }
    }

    /// Returns the sections with content, except source and difference.
    pub(crate) fn sections(&self) -> Vec<Section> {
        Section::ALL.into_iter().filter(|section| self.section(*section).is_some()).collect()
    }

    /// Returns a section as text; none if it is empty. Source and difference are separate texts.
    pub(crate) fn section(&self, section: Section) -> Option<String> {
        match section {
            Section::Source | Section::Difference => None,
            Section::Compiler => self.build.map(compiler),
            Section::Check => self.check.map(checks),
            Section::Sanitizer => self.sanitize.map(|report| json(&report)),
            Section::Measurement => self.measurement.map(measurement),
            Section::Profile => self.profile.map(digest),
            Section::Kernels => self.profile.map(|profile| &profile.kernels).filter(|all| !all.is_empty()).map(json),
            Section::Diagnosis => {
                let route = self.route.as_ref().map(|route| format!("next: {route}"));
                let diagnosis = self.diagnosis.map(json);
                (route.is_some() || diagnosis.is_some())
                    .then(|| diagnosis.into_iter().chain(route).collect::<Vec<_>>().join("\n"))
            }
        }
    }
}

/// Returns the summary of a verification.
pub(crate) fn summary(judged: &Judged) -> ProgramSummary {
    match &judged.result {
        Ok(found) => Program::of_judgement(found, judged).summary(),
        Err(failure) => of_fault(failure),
    }
}

/// Returns a section of a verification.
pub(crate) fn section(judged: &Judged, section: Section) -> Option<String> {
    let found = judged.result.as_ref().ok()?;
    Program::of_judgement(found, judged).section(section)
}

/// Returns the sections of a verification.
pub(crate) fn sections(judged: &Judged) -> Vec<Section> {
    let found = judged.result.as_ref().ok();
    found.map(|found| Program::of_judgement(found, judged).sections()).unwrap_or_default()
}

fn of_fault(failure: &StepFailure) -> ProgramSummary {
    ProgramSummary {
        outcome: None,
        verdict: None,
        policy: None,
        shapes: Vec::new(),
        reason: None,
        evidence: None,
        fault: Some(Fault::of(failure)),
        speedup: None,
        speedup_over_fastest: None,
        fastest_baseline: None,
        program_median_ns: None,
        reference_median_ns: None,
        precise: None,
        verified_calls: None,
        roofline_share: None,
        bound: None,
        profile_failure: None,
        findings: Vec::new(),
        machine: None,
    }
}

/// Returns the names of the checked shapes.
fn shapes(check: Option<&CheckReport>) -> Vec<&str> {
    let mut names: Vec<&str> = check.iter().flat_map(|check| &check.cases).map(|case| case.shape.as_str()).collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    names
}

fn answer(answer: Answer) -> &'static str {
    match answer {
        Answer::Pass => "yes",
        Answer::Fail => "no",
        Answer::Inconclusive => "unknown",
    }
}

fn finding(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Violation => "violation",
    };
    format!("{severity}: {}", finding.line())
}

/// Returns the bottleneck of a program: by its counters, or else by its position under the roofline.
pub(crate) fn bound(profile: &Profile) -> &str {
    let by = profile.bound.as_ref().map(|by| by.bound.map_or("unknown", Bound::as_str));
    by.unwrap_or(&profile.roofline_bound)
}

/// Returns the processor, and any GPUs.
pub(crate) fn machine(facts: &nightshift_protocol::machine::MachineFacts) -> String {
    let gpus: Vec<&str> = facts.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    let gpus = if gpus.is_empty() { String::new() } else { format!("; {}", gpus.join(", ")) };
    name(&format!("{}{gpus}", facts.processor))
}

fn compiler(build: &BuildReport) -> String {
    let mut text = format!(
        "{} {} {}\n{}\n",
        build.toolchain.program,
        build.toolchain.version,
        build.toolchain.flags.join(" "),
        build.end.describe()
    );
    for message in &build.messages {
        let _ = writeln!(
            text,
            "{}:{}:{}: {}: {}",
            message.file, message.line, message.column, message.severity, message.message
        );
    }
    let _ = writeln!(text, "report: {}", json(&build.report));
    if let Some(cuda) = &build.cuda {
        let _ = writeln!(text, "kernels: {}", json(cuda));
    }
    text
}

fn checks(check: &CheckReport) -> String {
    let (passed, failed): (Vec<_>, Vec<_>) = check.cases.iter().partition(|case| case.passed);
    let mut text = format!("{}\n{} of {} checks failed\n", check.ending(), failed.len(), check.cases.len());
    for case in failed.into_iter().chain(passed) {
        let _ = writeln!(text, "{}", serde_json::to_string(case).unwrap_or_default());
    }
    if !check.printed.is_empty() {
        let _ = writeln!(text, "printed by the program:\n{}", check.printed);
    }
    text
}

/// Returns the measurement without individual samples, which are many; the interval summarizes them.
fn measurement(measurement: &Measurement) -> String {
    let mut value = serde_json::to_value(measurement).unwrap_or(Value::Null);
    if let Value::Object(fields) = &mut value {
        for samples in ["baseline_samples_ns", "candidate_samples_ns"] {
            fields.remove(samples);
        }
    }
    json(&value)
}

/// Returns a profile ordered by usefulness: first the bottleneck, then the rest.
pub(crate) fn digest(profile: &Profile) -> String {
    let mut text = format!("bound: {}\n", bound(profile));
    for evidence in profile.bound.iter().flat_map(|bound| &bound.evidence) {
        let _ = writeln!(text, "  {evidence}");
    }
    if let Some(share) = profile.roofline_share {
        let _ = writeln!(text, "roofline: {:.1} % of the {} peak", share * 100.0, profile.roofline_bound);
    }
    if let Some(intensity) = profile.arithmetic_intensity {
        let _ = writeln!(text, "arithmetic intensity: {intensity:.3} operations per byte");
    }
    let _ = writeln!(
        text,
        "peaks: {:.3e} operations/s, {:.3e} bytes/s",
        profile.peak_flops_per_s, profile.peak_bytes_per_s
    );
    for kernel in &profile.kernels {
        let share = kernel.time_share.map_or_else(String::new, |share| format!(", {:.1} % of the time", share * 100.0));
        let limit = kernel.bound.bound.map_or("unknown", Bound::as_str);
        let _ = writeln!(text, "kernel {}: bound by {limit}{share}", line(&kernel.name));
        for evidence in &kernel.bound.evidence {
            let _ = writeln!(text, "  {evidence}");
        }
    }
    for missing in &profile.missing {
        let _ = writeln!(text, "missing: {missing}");
    }
    let _ = writeln!(text, "compiler report: {}", json(&profile.compiler));
    if let Some(timeline) = &profile.timeline {
        let _ = writeln!(text, "timeline: {}", json(timeline));
    }
    let _ = writeln!(text, "tools: {}", json(&profile.tiers));
    text
}

pub(crate) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
