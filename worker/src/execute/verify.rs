//! Judging programs of one task in one process, without server, campaign or database.

use std::path::{Path, PathBuf};

use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::measure::MeasureOptions;
use nightshift_evaluator::prepare::ReferenceLibraries;
use nightshift_profilers::host::profile;
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::baseline::{Baseline, BaselineKind};
use nightshift_protocol::judgement::Judgement;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{CandidateForm, Target, TaskBundle};
use nightshift_protocol::verdict::{ProcessEnd, has_violation};
use nightshift_sandbox::process::CancelFlag;
use nightshift_toolchain::build::{Role, disk_failure};
use tempfile::TempDir;

use super::step::{Step, first_error, ran_out_of_memory, secret_seeds};
use super::{Workbench, ran_out};
use crate::artifacts::{StepArtifacts, Transfer};

/// A program to be judged.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Its text.
    pub source: String,
    /// Whether it is a library or a file of Python.
    pub form: CandidateForm,
}

/// What is wanted beside a verdict.
#[derive(Debug, Clone, Copy, Default)]
pub struct VerifyOptions {
    /// Whether a right program is profiled, too.
    pub profile: bool,
    /// Whether programs run only where files and network are out of their reach.
    pub require_sandbox: bool,
}

/// A program that was built, or was not.
#[derive(Debug)]
pub struct BuiltProgram {
    judgement: Judgement,
    library: Option<PathBuf>,
    task: TaskBundle,
    folder: TempDir,
}

/// Judges programs of one task. Its reference is built once.
pub struct Verifier<'a> {
    bench: &'a Workbench,
    cancel: &'a CancelFlag,
    task: TaskBundle,
    folder: TempDir,
    reference: PathBuf,
    truth: PathBuf,
    baseline: Option<(PathBuf, String)>,
    options: VerifyOptions,
}

impl std::fmt::Debug for Verifier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier")
            .field("task", &self.task.spec.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<'a> Verifier<'a> {
    /// Builds a task's reference.
    ///
    /// # Errors
    /// `task.reference_does_not_compile`, and what keeps this machine from building.
    pub fn new(
        bench: &'a Workbench,
        task: TaskBundle,
        options: VerifyOptions,
        cancel: &'a CancelFlag,
    ) -> Result<Self, StepFailure> {
        bench.admit(options.require_sandbox)?;
        let folder = bench.step_folder()?;
        let step = step(bench, folder.path(), cancel);
        let build = |role: Role| -> Result<PathBuf, StepFailure> {
            let (report, path) = step.build_as(role, &task.reference_source, &task)?;
            path.ok_or_else(|| {
                let (role, name, error) = (role.name(), &task.spec.name, first_error(&report));
                StepFailure::fatal(
                    "task.reference_does_not_compile",
                    format!("the {role} of `{name}` does not compile: {error}"),
                )
            })
        };
        let (reference, truth) = (build(Role::Reference)?, build(Role::Truth)?);
        Ok(Self { bench, cancel, task, folder, reference, truth, baseline: None, options })
    }

    /// Compares programs with another one from now on, in the place of the reference. Returns what is wrong with it when it is
    /// not right itself: a speedup over it would mean nothing.
    pub fn against(&mut self, submission: &Submission, label: &str) -> Result<Option<Judgement>, StepFailure> {
        let mut built = self.build(submission)?;
        let Some(path) = built.library.clone() else { return Ok(Some(built.judgement)) };
        self.check(&mut built, &path)?;
        if built.judgement.outcome != AttemptOutcome::Pending {
            return Ok(Some(built.judgement));
        }
        let kept = self.folder.path().join(format!("against-{}", path.file_name().unwrap_or_default().display()));
        std::fs::copy(&path, &kept).map_err(|error| disk_failure(&kept, &error))?;
        self.baseline = Some((kept, label.to_owned()));
        Ok(None)
    }

    /// Returns the other baselines of the task: from the cache, and those of `measured` that are not there measured now. Returns
    /// nothing where none is known.
    ///
    /// # Errors
    /// The failure that keeps this machine from measuring them.
    pub fn baselines(&self, measured: &[BaselineKind]) -> Result<Option<Vec<Baseline>>, StepFailure> {
        let step = step(self.bench, self.folder.path(), self.cancel);
        let libraries = ReferenceLibraries { reference: self.reference.clone(), truth: self.truth.clone() };
        let baselines = || {
            let Some(device) = step.device(&self.task, &[&libraries.reference, &libraries.truth])? else {
                return Ok(Some(Vec::new()));
            };
            let place = step.place(Some(&device));
            let context = step.context(&place);
            let known = step.known_baselines(&self.task, &libraries, &context, &device, measured)?;
            Ok(known.map(|known| known.baselines))
        };
        step.in_memory(&self.task, baselines, |_| false)
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &MachineFacts {
        self.bench.machine()
    }

    /// Builds a program. Several can be built at the same time.
    pub fn build(&self, submission: &Submission) -> Result<BuiltProgram, StepFailure> {
        let folder = self.bench.step_folder()?;
        let mut task = self.task.clone();
        task.spec.form = submission.form;
        let step = step(self.bench, folder.path(), self.cancel);
        step.expect_programs(&task);
        let (report, library) = step.build_as(Role::Candidate, &submission.source, &task)?;
        let judgement = Judgement {
            outcome: if library.is_some() { AttemptOutcome::Pending } else { AttemptOutcome::CompileFailed },
            findings: Vec::new(),
            build: Some(report),
            check: None,
            measurement: None,
            measurement_end: None,
            profile: None,
            profile_failure: None,
        };
        Ok(BuiltProgram { judgement, library, task, folder })
    }

    /// Checks, times and profiles a program. A failure concerns the machine or the reference, never the program. Where only the
    /// profile fails, the judgement says so.
    pub fn judge(&self, mut built: BuiltProgram) -> Result<Judgement, StepFailure> {
        let Some(path) = built.library.clone() else { return Ok(built.judgement) };
        self.check(&mut built, &path)?;
        let BuiltProgram { mut judgement, task, folder, .. } = built;
        if judgement.outcome != AttemptOutcome::Pending {
            return Ok(judgement);
        }
        let step = step(self.bench, folder.path(), self.cancel);
        self.measure(&step, &task, &path, &mut judgement)?;
        if self.options.profile && judgement.outcome.is_correct() {
            let profiled = || Self::profiled(&step, &task, &path, &judgement);
            (judgement.profile, judgement.profile_failure) = with_failure(step.in_memory(&task, profiled, |_| false));
        }
        Ok(judgement)
    }

    fn check(&self, built: &mut BuiltProgram, library: &Path) -> Result<(), StepFailure> {
        let step = step(self.bench, built.folder.path(), self.cancel);
        let (task, libraries) = (&built.task, self.libraries(library.to_path_buf()));
        let checked = || {
            let device = step.device(task, &[&libraries.candidate, &libraries.reference, &libraries.truth])?;
            let place = step.place(device.as_ref());
            let context = step.context(&place);
            check(&context, &task.spec, &libraries, self.options.require_sandbox, &mut secret_seeds()?)
        };
        let report = step.in_memory(task, checked, |report| {
            !has_violation(&report.findings) && ran_out_of_memory(&report.end, &report.printed)
        })?;
        let judgement = &mut built.judgement;
        judgement.findings.extend(report.findings.iter().cloned());
        judgement.outcome = if has_violation(&judgement.findings) {
            AttemptOutcome::NotCompliant
        } else if report.end != ProcessEnd::Finished {
            AttemptOutcome::of_end(&report.end)
        } else if report.cases.is_empty() || report.cases.iter().any(|case| !case.passed) {
            AttemptOutcome::Incorrect
        } else {
            AttemptOutcome::Pending
        };
        judgement.check = Some(report);
        Ok(())
    }

    fn measure(
        &self,
        step: &Step<'_>,
        task: &TaskBundle,
        library: &Path,
        judgement: &mut Judgement,
    ) -> Result<(), StepFailure> {
        let libraries = self.libraries(library.to_path_buf());
        let label = self.baseline.as_ref().map_or_else(|| step.baseline_label(task), |(_, label)| label.clone());
        let baseline = self.baseline.as_ref().map_or(&self.reference, |(path, _)| path);
        let options = match task.spec.target {
            Target::Cpu => MeasureOptions::on_host(true),
            Target::Cuda => MeasureOptions::confirmation(),
        };
        let timed =
            || step.measure_against(task, &libraries, (baseline, &label), &options, self.options.require_sandbox);
        let timed = step.in_memory(task, timed, ran_out)?;
        match timed {
            StepOutput::Measured { measurement, findings } => {
                judgement.findings.extend(findings);
                judgement.outcome = match (has_violation(&judgement.findings), measurement.speedup.low > 1.0) {
                    (true, _) => AttemptOutcome::NotCompliant,
                    (false, true) => AttemptOutcome::CorrectFaster,
                    (false, false) => AttemptOutcome::CorrectNotFaster,
                };
                judgement.measurement = Some(*measurement);
            }
            StepOutput::MeasureFailed { end, findings, .. } => {
                judgement.findings.extend(findings);
                judgement.outcome = if has_violation(&judgement.findings) {
                    AttemptOutcome::NotCompliant
                } else {
                    AttemptOutcome::of_end(&end)
                };
                judgement.measurement_end = Some(end);
            }
            _ => return Err(StepFailure::fatal("worker.internal", "a measurement gave something else")),
        }
        Ok(())
    }

    fn profiled(
        step: &Step<'_>,
        task: &TaskBundle,
        library: &Path,
        judgement: &Judgement,
    ) -> Result<Option<Profile>, StepFailure> {
        let Some((build, measurement)) = judgement.build.as_ref().zip(judgement.measurement.as_ref()) else {
            return Ok(None);
        };
        let output = match task.spec.target {
            Target::Cuda => step.profile_on_device(task, library, build, measurement)?,
            Target::Cpu => {
                let profile = profile(&step.peaks()?, &task.spec, &build.report, measurement);
                StepOutput::Profiled { profile: Box::new(profile) }
            }
        };
        match output {
            StepOutput::Profiled { profile } => Ok(Some(*profile)),
            _ => Err(StepFailure::fatal("worker.internal", "a profile gave something else")),
        }
    }

    fn libraries(&self, candidate: PathBuf) -> Libraries {
        Libraries { candidate, reference: self.reference.clone(), truth: self.truth.clone() }
    }
}

fn step<'s>(bench: &'s Workbench, folder: &'s Path, cancel: &'s CancelFlag) -> Step<'s> {
    let artifacts = StepArtifacts::new(&bench.artifacts, Transfer { cancel, traceparent: None });
    Step { bench, folder, artifacts, device: None, cancel }
}

/// A profile, or why there is none.
fn with_failure(profiled: Result<Option<Profile>, StepFailure>) -> (Option<Profile>, Option<StepFailure>) {
    match profiled {
        Ok(profile) => (profile, None),
        Err(failure) => (None, Some(failure)),
    }
}
