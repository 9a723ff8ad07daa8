//! `tune`: builds, times and checks the variants of a program, without asking any model.
//!
//! A variant is a source of its own, with its values in the declarations. So it is built under its own address like any
//! program, and what was built, timed and checked here is byte for byte what the attempt goes on with.

use std::path::PathBuf;
use std::time::Instant;

use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::measure::{MeasureOptions, Programs, measure};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{BuildReport, CheckReport};
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::TaskBundle;
use nightshift_protocol::tunable::{self, BadTunables};
use nightshift_protocol::tune::{TuneBudget, TuneReport, TunedProgram};
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity};

use super::step::{Step, first_error, secret_seeds};
use crate::tune::{Timed, Timing, Trials, search};
use nightshift_toolchain::build::{Role, disk_failure};

/// Pairs of the first round on the host; each further round takes twice as many.
const HOST_PAIRS: usize = 5;
/// The same on a device, where calls are short.
const DEVICE_PAIRS: usize = 10;
/// Time of the first round, in milliseconds; each further round may take twice as long.
const ROUND_WALL_MS: u64 = 100;
/// Half the width of an interval at which a timing ends early.
const WANTED_RELATIVE_HALF_WIDTH: f64 = 0.005;

impl Step<'_> {
    /// Searches the tunables of a program.
    pub(super) fn tune(
        &self,
        task: &TaskBundle,
        source: &ArtifactHash,
        (reference, truth): (PathBuf, PathBuf),
        budget: TuneBudget,
        sandbox_required: bool,
    ) -> Result<StepOutput, StepFailure> {
        let began = Instant::now();
        let text = String::from_utf8_lossy(&self.artifacts.get(source)?).into_owned();
        let tunables = tunable::parse(&text).map_err(|bad| unusable(&bad))?;
        let limit = usize::try_from(budget.max_variants).unwrap_or(usize::MAX);
        let variants = tunable::variants(&tunables, limit);
        let mut trials = Bench {
            step: self,
            task,
            text: &text,
            reference,
            truth,
            sandbox_required,
            began,
            built: variants.iter().map(|_| None).collect(),
            checked: None,
        };
        let searched = search(&mut trials, variants, budget)?;
        let Bench { mut built, checked, .. } = trials;
        let winner = searched.winner.and_then(|number| built.get_mut(number).and_then(Option::take));
        let program = match (winner, checked) {
            (Some(winner), Some(check)) => Some(Box::new(TunedProgram {
                source: self.artifacts.put(winner.source.as_bytes())?,
                build: winner.report,
                check,
            })),
            _ => None,
        };
        let report = TuneReport {
            configurations: tunable::configurations(&tunables),
            tunables,
            variants: searched.variants,
            rounds: searched.rounds,
            end: searched.end,
            wall_ms: elapsed_ms(began),
            declared: source.clone(),
        };
        tracing::info!(
            tune.variants = report.variants.len(),
            tune.rounds = report.rounds,
            duration_ms = report.wall_ms,
            "the tunables of a program were searched"
        );
        Ok(StepOutput::Tuned { report: Box::new(report), program })
    }
}

/// A variant that compiled.
struct Variant {
    source: String,
    report: BuildReport,
    library: PathBuf,
}

/// Tries variants on this machine.
struct Bench<'a> {
    step: &'a Step<'a>,
    task: &'a TaskBundle,
    text: &'a str,
    reference: PathBuf,
    truth: PathBuf,
    sandbox_required: bool,
    began: Instant,
    built: Vec<Option<Variant>>,
    /// The check of the variant that was checked last.
    checked: Option<CheckReport>,
}

impl Bench<'_> {
    fn variant(&self, number: usize) -> Result<&Variant, StepFailure> {
        self.built
            .get(number)
            .and_then(Option::as_ref)
            .ok_or_else(|| StepFailure::retriable("worker.internal", format!("variant {number} was never built")))
    }

    fn timed(&self, number: usize, timing: Timing) -> Result<StepOutput, StepFailure> {
        let (step, task) = (self.step, self.task);
        let candidate = &self.variant(number)?.library;
        let doubled = timing.length().saturating_sub(1).min(16);
        let longer = 1_usize << doubled;
        let max_wall_ms = ROUND_WALL_MS << doubled;
        let device = step.device(task, &[candidate, &self.reference, &self.truth])?;
        let place = step.place(device.as_ref());
        let windows = if device.is_some() { DEVICE_PAIRS } else { HOST_PAIRS } * longer;
        let options = MeasureOptions {
            min_windows: windows,
            max_windows: windows,
            wanted_relative_half_width: WANTED_RELATIVE_HALF_WIDTH,
            max_wall_ms,
            quiet: timing == Timing::Final,
            ..MeasureOptions::first()
        };
        let programs = Programs { candidate, baseline: &self.reference, truth: &self.truth, baseline_label: "" };
        let machine = &step.bench.machine;
        measure(&step.context(&place), &task.spec, &programs, machine, self.sandbox_required, &options)
    }
}

impl Trials for Bench<'_> {
    fn elapsed_ms(&self) -> u64 {
        elapsed_ms(self.began)
    }

    fn build(&mut self, number: usize, values: &[i64]) -> Result<Option<String>, StepFailure> {
        let source = tunable::with_values(self.text, values).map_err(|bad| unusable(&bad))?;
        let (report, path) = self.step.build_as(Role::Candidate, &source, self.task)?;
        let Some(path) = path else { return Ok(Some(first_error(&report))) };
        // The next build takes the place of this one.
        let library = self.step.folder.join(format!("variant{number}.so"));
        std::fs::rename(&path, &library).map_err(|error| disk_failure(&library, &error))?;
        self.built[number] = Some(Variant { source, report, library });
        Ok(None)
    }

    fn time(&mut self, number: usize, timing: Timing) -> Result<Timed, StepFailure> {
        Ok(match self.timed(number, timing)? {
            StepOutput::Measured { measurement, findings } => match violation(&findings) {
                Some(why) => Timed::Wrong(why),
                None => Timed::Speedup(measurement.speedup),
            },
            StepOutput::MeasureFailed { end, findings, .. } => {
                violation(&findings).map_or_else(|| Timed::Failed(end.describe()), Timed::Wrong)
            }
            _ => return Err(StepFailure::retriable("worker.internal", "a timing gave something else")),
        })
    }

    fn check(&mut self, number: usize) -> Result<Option<String>, StepFailure> {
        let libraries = Libraries {
            candidate: self.variant(number)?.library.clone(),
            reference: self.reference.clone(),
            truth: self.truth.clone(),
        };
        let device = self.step.device(self.task, &[&libraries.candidate, &libraries.reference, &libraries.truth])?;
        let place = self.step.place(device.as_ref());
        let context = self.step.context(&place);
        let report = check(&context, &self.task.spec, &libraries, self.sandbox_required, &mut secret_seeds()?)?;
        let why = why_not_passed(&report);
        self.checked = Some(report);
        Ok(why)
    }
}

fn elapsed_ms(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn unusable(bad: &BadTunables) -> StepFailure {
    StepFailure::fatal("worker.bad_tunables", format!("the tunables of the program cannot be read: {bad}"))
}

fn violation(findings: &[Finding]) -> Option<String> {
    let found = findings.iter().find(|finding| finding.severity == Severity::Violation)?;
    Some(format!("{}: {}", found.code, found.message))
}

fn why_not_passed(report: &CheckReport) -> Option<String> {
    if let Some(why) = violation(&report.findings) {
        return Some(why);
    }
    if let Some(case) = report.cases.iter().find(|case| !case.passed) {
        return Some(format!("shape {}, inputs {}: {} wrong elements", case.shape, case.inputs, case.wrong_elements));
    }
    (report.end != ProcessEnd::Finished || report.cases.is_empty()).then(|| report.end.describe())
}
