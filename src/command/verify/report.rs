//! What `verify` says, for people and for programs.

use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::baseline::{Baseline, BaselineKind, FastestBaseline};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::evidence::Evidence;
use nightshift_protocol::judgement::Judgement;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::PrecisionPolicy;
use nightshift_protocol::verdict::{Finding, Severity};
use serde::Serialize;

use crate::failure::Result;
use crate::output::{Output, printable};
use crate::present;
use crate::verify::{Judged, Verified, reason, reference_ns};

/// The code of a step that was cancelled.
const CANCELLED: &str = "step.cancelled";

/// Maximum number of findings of a program that are printed.
const MAX_FINDINGS: usize = 6;

/// Everything that was judged.
#[derive(Serialize)]
pub(super) struct Report {
    task: String,
    /// How precise programs have to be.
    precision: PrecisionPolicy,
    /// What programs were compared with.
    against: String,
    machine: MachineFacts,
    /// The fastest baseline is not known, and `--baselines` would measure it.
    #[serde(skip)]
    asks_for_baselines: bool,
    /// Other ways to run the reference; none where they were not measured on this machine.
    baselines: Option<Vec<Baseline>>,
    /// The fastest way to run the reference.
    fastest_baseline: Option<FastestBaseline>,
    programs: Vec<Program>,
}

/// One program, in three statements: the verdict on it, how complete the evidence is, and what failed beside it.
#[derive(Serialize)]
struct Program {
    #[serde(rename = "program")]
    file: String,
    /// The verdict; none when nothing can be said about the program.
    verdict: Option<&'static str>,
    /// Whether it is right; none when that is not known.
    right: Option<bool>,
    /// Its speedup over the fastest way to run the reference; none where that is not known.
    over_fastest: Option<Interval>,
    /// Whether it is faster than what it was compared with; none when that is not known.
    faster: Option<bool>,
    evidence: Option<Evidence>,
    /// What failed of the machine or the reference.
    fault: Option<StepFailure>,
    exit_code: i32,
    /// Everything that was found out.
    judgement: Option<Box<Judgement>>,
}

impl Report {
    pub(super) fn new(verified: Verified) -> Self {
        let Verified { bundle: task, against, baselines, unexamined, machine, programs: judged } = verified;
        // Another program has the place of the reference, and its speedup over the baselines is not known.
        let asks_for_baselines = against.is_none() && baselines.is_none();
        let baselines = baselines.filter(|_| against.is_none());
        let against = against.map_or_else(|| task.spec.reference.clone(), |path| path.display().to_string());
        let fastest_baseline = baselines.as_ref().and_then(|set| FastestBaseline::of(reference_ns(set, &judged)?, set));
        Self {
            task: task.spec.name.clone(),
            precision: task.spec.precision,
            against,
            machine,
            asks_for_baselines,
            baselines,
            fastest_baseline,
            programs: judged
                .into_iter()
                .map(|judged| Program::of(judged, fastest_baseline.as_ref(), &unexamined))
                .collect(),
        }
    }

    /// Returns a line that names the fastest baseline, or the option that measures it.
    fn fastest_line(&self) -> Option<String> {
        if self.programs.is_empty() && self.baselines.as_ref().is_some_and(Vec::is_empty) {
            return Some("there is no other way to run the reference of this task".to_owned());
        }
        let known = self
            .fastest_baseline
            .as_ref()
            .map(|fastest| format!("fastest baseline: {}", present::fastest_baseline(fastest)));
        let unknown = self
            .asks_for_baselines
            .then(|| "fastest baseline: not known; `--baselines` measures the others".to_owned());
        known.or(unknown)
    }

    /// Returns whether so many programs were judged, none of them cut short by a signal.
    pub(super) fn is_complete(&self, count: usize) -> bool {
        let was_cut = |program: &Program| program.fault.as_ref().is_some_and(|fault| fault.code == CANCELLED);
        self.programs.len() == count && !self.programs.iter().any(was_cut)
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        let codes = [ExitCode::NotFaster, ExitCode::Wrong, ExitCode::Rejected, ExitCode::NotJudged];
        let highest = self.programs.iter().map(|program| program.exit_code).max().unwrap_or(0);
        codes.into_iter().find(|code| *code as i32 == highest).unwrap_or(ExitCode::Ok)
    }

    pub(super) fn write(&self, output: Output) -> Result<()> {
        if output.is_json() {
            return output.json(self);
        }
        // Where nothing is faster than the reference, both speedups are the same.
        let is_apart = self.fastest_baseline.is_some_and(|fastest| fastest.kind != BaselineKind::Reference);
        let mut columns = vec!["program", "verdict", "speedup", "time", "compared with", "calls verified"];
        if is_apart {
            columns.insert(3, "over fastest");
        }
        let mut table = output.table(&columns);
        for program in &self.programs {
            // Times of a program that is not right mean nothing.
            let judgement = program.judgement.as_ref().filter(|judgement| judgement.outcome.is_correct());
            let measured = judgement.and_then(|judgement| judgement.measurement.as_ref());
            let cell = |value: Option<String>| value.unwrap_or_else(|| present::NONE.to_owned());
            let mut cells = vec![
                printable(&program.file),
                program.verdict.unwrap_or("not judged").to_owned(),
                cell(measured.map(|measured| present::interval(measured.speedup))),
                cell(measured.map(|measured| present::nanoseconds(measured.candidate_median_ns))),
                cell(measured.map(|measured| present::nanoseconds(measured.baseline_median_ns))),
                cell(measured.and_then(verified)),
            ];
            if is_apart {
                cells.insert(3, cell(program.over_fastest.map(present::interval)));
            }
            table.add_row(cells);
        }
        if !self.programs.is_empty() {
            output.text(&table.to_string())?;
        }
        for baseline in self.baselines.iter().flatten() {
            output.text(&printable(&present::baseline(baseline)))?;
        }
        if let Some(line) = self.fastest_line() {
            output.text(&line)?;
        }
        for program in &self.programs {
            for line in program.lines() {
                output.text(&line)?;
            }
        }
        let compared = if self.programs.is_empty() { "reference" } else { "compared with" };
        output.text(&format!(
            "{compared} {}; precision policy {}; sandbox in force: {}",
            printable(&self.against),
            self.precision.as_str(),
            self.machine.sandbox.summary()
        ))
    }
}

fn verified(measured: &Measurement) -> Option<String> {
    let verification = measured.verification?;
    Some(format!("{} of {}", verification.verified_calls, verification.timed_calls))
}

impl Program {
    fn of(judged: Judged, fastest: Option<&FastestBaseline>, unexamined: &[String]) -> Self {
        let file = judged.program.display().to_string();
        match judged.result {
            Ok(judgement) => {
                let outcome = judgement.outcome;
                Self {
                    file,
                    verdict: Some(outcome.as_str()),
                    right: Some(outcome.is_correct()),
                    over_fastest: judgement
                        .measurement
                        .as_ref()
                        .filter(|_| outcome.is_correct())
                        .and_then(|measured| Some(fastest?.speedup_of(measured.speedup))),
                    faster: outcome.is_correct().then_some(outcome == AttemptOutcome::CorrectFaster),
                    evidence: Some(judgement.evidence(unexamined)),
                    fault: None,
                    exit_code: exit_code(outcome) as i32,
                    judgement: Some(Box::new(judgement)),
                }
            }
            Err(failure) => Self {
                file,
                verdict: None,
                right: None,
                over_fastest: None,
                faster: None,
                evidence: None,
                fault: Some(failure),
                exit_code: ExitCode::NotJudged as i32,
                judgement: None,
            },
        }
    }

    /// What is to be said below the table.
    fn lines(&self) -> Vec<String> {
        let name = printable(&self.file);
        if let Some(fault) = &self.fault {
            return vec![format!("{name}: not judged: {} ({})", printable(&fault.message), fault.code)];
        }
        let Some(judgement) = &self.judgement else { return Vec::new() };
        let mut lines = Vec::new();
        if let Some(reason) = reason(judgement).filter(|_| !judgement.outcome.is_correct()) {
            lines.push(format!("{name}: {}", printable(&reason)));
        }
        let said = judgement.findings.iter().filter(|finding| {
            // What decided the verdict is said already.
            judgement.outcome.is_correct() || finding.severity != Severity::Violation
        });
        lines.extend(said.take(MAX_FINDINGS).map(|finding| format!("{name}: {}", told(finding))));
        if let Some(evidence) = &self.evidence {
            lines.extend(evidence.missing.iter().map(|missing| format!("{name}: evidence missing: {missing}")));
        }
        if let Some(profile) = &judgement.profile {
            lines.push(format!("{name}: held back by {}", present::bound(profile)));
        }
        if let Some(failure) = &judgement.profile_failure {
            lines.push(format!("{name}: no profile: {} ({})", printable(&failure.message), failure.code));
        }
        lines
    }
}

fn exit_code(outcome: AttemptOutcome) -> ExitCode {
    match outcome {
        AttemptOutcome::CorrectFaster => ExitCode::Ok,
        AttemptOutcome::CorrectNotFaster => ExitCode::NotFaster,
        AttemptOutcome::NotCompliant | AttemptOutcome::NoCode => ExitCode::Rejected,
        AttemptOutcome::Pending => ExitCode::NotJudged,
        AttemptOutcome::CompileFailed
        | AttemptOutcome::Crashed
        | AttemptOutcome::TimedOut
        | AttemptOutcome::MemoryExceeded
        | AttemptOutcome::RuntimeFailed
        | AttemptOutcome::Incorrect => ExitCode::Wrong,
    }
}

fn told(finding: &Finding) -> String {
    printable(&finding.line())
}
