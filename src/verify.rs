//! Judging programs of one task in this process: what `nightshift verify` and the MCP server share.

mod task;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nightshift_optimizer::screen::screen_candidate;
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::baseline::Baseline;
use nightshift_protocol::judgement::Judgement;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{CandidateForm, PYTHON_EXTENSION, Target, TaskBundle};
use nightshift_protocol::verdict::Severity;
use nightshift_sandbox::process::{CancelFlag, WATCH_INTERVAL};
use nightshift_worker::artifacts::MemoryArtifacts;
use nightshift_worker::execute::{MeasureOptions, ProcessDemand, Submission, Verifier, VerifyOptions, Workbench};
use nightshift_worker::lease::WorkerConfig;

use crate::args::Verify;
use crate::failure::{Failure, Result};
use crate::output::{Output, printable};

pub(crate) use task::{LoadedTask, load as load_task};

/// Native programs that are checked and timed at the same time on a GPU: while one is timed alone, others start and end.
const NATIVE_AT_ONCE: usize = 3;

/// Maximum number of programs of `PyTorch` at the same time: each starts Python processes for seconds, on a core of its own.
const TORCH_AT_ONCE: usize = 8;

/// How often a program is judged again after a fault of the machine that may pass, and how long `verify` waits before the first time.
const MOST_RETRIES: u32 = 2;
const RETRY_AFTER: Duration = Duration::from_secs(3);

/// Largest program that is read, in bytes: screening refuses less.
const MAX_PROGRAM_BYTES: u64 = 16 << 20;

/// The judged programs, with the reference of the comparison.
pub(crate) struct Verified {
    /// The task.
    pub(crate) bundle: TaskBundle,
    /// The program that has the place of the reference.
    pub(crate) against: Option<PathBuf>,
    /// Other ways to run the reference; none where they were not measured.
    pub(crate) baselines: Option<Vec<Baseline>>,
    /// What the judgements leave out of what the task asks for, each in one sentence.
    pub(crate) unexamined: Vec<String>,
    /// This machine.
    pub(crate) machine: MachineFacts,
    /// The programs, in their order.
    pub(crate) programs: Vec<Judged>,
}

/// One program with what came of it.
pub(crate) struct Judged {
    /// Its file.
    pub(crate) program: PathBuf,
    /// The judgement, or what failed of the machine or the reference.
    pub(crate) result: std::result::Result<Judgement, StepFailure>,
}

impl Judged {
    /// What came of it, in one word.
    pub(crate) fn word(&self) -> &str {
        match &self.result {
            Ok(judgement) => judgement.outcome.as_str(),
            Err(failure) => &failure.code,
        }
    }
}

/// Judges the programs that the arguments name, in this thread and further ones.
pub(crate) fn judge_programs(
    args: &Verify,
    config: &WorkerConfig,
    cancel: &CancelFlag,
    output: Output,
) -> Result<Verified> {
    let builds = usize::try_from(config.cpu_slots).unwrap_or(1);
    // What is wrong with what was typed is said before anything is started.
    let with_text = |path: &PathBuf| -> Result<(PathBuf, Submission)> { Ok((path.clone(), read(path)?)) };
    let submissions = args.programs.iter().map(with_text).collect::<Result<Vec<_>>>()?;
    let against = args.against.as_ref().map(with_text).transpose()?;
    let began = Instant::now();
    let LoadedTask { bundle, unexamined } = task::load(args, config, cancel, output)?;
    tracing::debug!(took_ms = began.elapsed().as_millis(), "the task is loaded");
    for (path, submission) in submissions.iter().chain(&against) {
        fits(path, submission, &bundle)?;
    }
    let at_once = at_once(&bundle, builds);
    let demand = demand(&bundle, &submissions, against.as_ref().map(|(_, against)| against), at_once);
    let only = Some((bundle.spec.target, demand));
    let bench = Workbench::open_for(config, Box::new(MemoryArtifacts::default()), only, cancel)
        .map_err(|error| Failure::new(error.code(), error.to_string()))?;
    let options = VerifyOptions { profile: args.profile, require_sandbox: !args.allow_unsandboxed };
    let mut verifier = Verifier::new(&bench, bundle.clone(), options, cancel).map_err(|failure| step(&failure))?;
    if let Some((path, submission)) = &against {
        stand_against(&mut verifier, path, submission, &bundle)?;
    }
    tracing::debug!(took_ms = began.elapsed().as_millis(), "compilers, sandbox and reference are ready");
    if !args.baselines.is_empty() && bundle.spec.target == Target::Cuda {
        output.note("measuring the baselines, once for this task on this machine");
    }
    let baselines = verifier.baselines(&args.baselines.concat()).map_err(|failure| step(&failure))?;
    let programs = judge_all(&verifier, &bundle, &submissions, (builds, at_once, cancel), output);
    let (against, machine) = (against.map(|(path, _)| path), verifier.machine().clone());
    drop(verifier);
    Ok(Verified { bundle, against, baselines, unexamined, machine, programs })
}

/// A program as it lies in a file. Bytes that are no text are told by the screening.
fn read(path: &Path) -> Result<Submission> {
    let unreadable = |reason: String| {
        Failure::new("request.program_unreadable", format!("the program `{}` cannot be read: {reason}", path.display()))
            .hint("name files of source text: C++ or CUDA that exports `ns_run`, or Python with a `ModelNew`")
    };
    let data = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !data.is_file() {
        return Err(unreadable("it is a folder or a device, not a file".to_owned()));
    }
    if data.len() > MAX_PROGRAM_BYTES {
        return Err(unreadable(format!("it has {} bytes, and at most {MAX_PROGRAM_BYTES} are read", data.len())));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let source = String::from_utf8(bytes).map_err(|error| unreadable(format!("it is not UTF-8 text ({error})")))?;
    let source = source.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(source);
    let is_python = path.extension().is_some_and(|extension| extension == PYTHON_EXTENSION);
    let form = if is_python { CandidateForm::Torch } else { CandidateForm::Native };
    Ok(Submission { source, form })
}

/// Returns whether a program of this form can be one for the task.
fn fits(path: &Path, submission: &Submission, task: &TaskBundle) -> Result<()> {
    if submission.form == CandidateForm::Torch && task.spec.torch.is_none() {
        return Err(Failure::new(
            "request.program_form",
            format!(
                "`{}` is a file of Python, and the reference of `{}` is no model of PyTorch",
                path.display(),
                task.spec.name
            ),
        )
        .hint("programs for it are written in C++ or CUDA and export `ns_run` (docs/how-to/own-task.md)"));
    }
    Ok(())
}

/// Compares with another program, if it is right.
fn stand_against(verifier: &mut Verifier<'_>, path: &Path, submission: &Submission, task: &TaskBundle) -> Result<()> {
    let label = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let wrong = |judgement: &Judgement| {
        Failure::new(
            "request.against_not_right",
            format!(
                "`{}` is {} itself, so that nothing can be compared with it: {}",
                path.display(),
                judgement.outcome.as_str(),
                reason(judgement).unwrap_or_else(|| "no reason was given".to_owned())
            ),
        )
    };
    if let Some(refused) = screened(submission, task).filter(|judgement| judgement.outcome != AttemptOutcome::Pending) {
        return Err(wrong(&refused));
    }
    match verifier.against(submission, &label).map_err(|failure| step(&failure))? {
        Some(judgement) => Err(wrong(&judgement)),
        None => Ok(()),
    }
}

/// What the screening says; none where it says nothing.
fn screened(submission: &Submission, task: &TaskBundle) -> Option<Judgement> {
    let mut spec = task.spec.clone();
    spec.form = submission.form;
    let findings = screen_candidate(&submission.source, &spec);
    if findings.is_empty() {
        return None;
    }
    let refused = findings.iter().any(|finding| finding.severity == Severity::Violation);
    let outcome = if refused { AttemptOutcome::NotCompliant } else { AttemptOutcome::Pending };
    Some(Judgement {
        outcome,
        findings,
        build: None,
        check: None,
        measurement: None,
        measurement_end: None,
        profile: None,
        profile_failure: None,
    })
}

/// Programs that are checked and timed at the same time.
fn at_once(task: &TaskBundle, builds: usize) -> usize {
    match (task.spec.target, &task.spec.torch) {
        (Target::Cpu, _) => 1,
        (Target::Cuda, None) => NATIVE_AT_ONCE,
        (Target::Cuda, Some(_)) => (builds / 2).clamp(NATIVE_AT_ONCE, TORCH_AT_ONCE),
    }
}

/// Processes on a GPU that checks and measurements will ask for.
fn demand(
    task: &TaskBundle,
    submissions: &[(PathBuf, Submission)],
    against: Option<&Submission>,
    at_once: usize,
) -> ProcessDemand {
    let reference = if task.spec.torch.is_some() { CandidateForm::Torch } else { CandidateForm::Native };
    let baseline = against.map_or(reference, |against| against.form);
    let mut demand = ProcessDemand::default();
    let mut add = |form: CandidateForm, count: usize| match form {
        CandidateForm::Native => demand.native += count,
        CandidateForm::Torch => demand.python += count,
    };
    // Reference and truth stay loaded.
    add(reference, 2 * at_once.min(submissions.len()));
    if let Some(against) = against {
        add(against.form, 1);
    }
    for (_, Submission { form, .. }) in submissions {
        // For the check, and for the measurement with its baseline; where that is of another form, an empty process tells what
        // surrounds the calls of the program.
        // A native process starts in a moment. Python starts for seconds, so the processes of pairs that a wide interval may ask for are
        // started ahead, too; else they are not used.
        let options = MeasureOptions::confirmation();
        let pairs = match form {
            CandidateForm::Native => options.process_pairs,
            CandidateForm::Torch => options.most_process_pairs,
        };
        add(*form, 1 + pairs * if *form == baseline { 1 } else { 2 });
        add(baseline, pairs);
    }
    demand
}

fn judge_all(
    verifier: &Verifier<'_>,
    task: &TaskBundle,
    submissions: &[(PathBuf, Submission)],
    (builds, at_once, cancel): (usize, usize, &CancelFlag),
    output: Output,
) -> Vec<Judged> {
    let permits = Permits { free: Mutex::new(at_once), changed: Condvar::new() };
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(submissions.len())));
    let work = || {
        while let Some((path, submission)) = {
            let number = next.fetch_add(1, Ordering::Relaxed);
            submissions.get(number).filter(|_| !cancel.is_cancelled())
        } {
            let result = judge(verifier, task, (path, submission), &permits, cancel, output);
            let judged = Judged { program: path.clone(), result };
            if submissions.len() > 1 && !cancel.is_cancelled() {
                output.note(&format!("{}: {}", path.display(), judged.word()));
            }
            done.lock().unwrap_or_else(PoisonError::into_inner).push(judged);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..builds.max(at_once).min(submissions.len()) {
            // Processes of programs end with the thread that started them.
            scope.spawn(work);
        }
    });
    let mut judged = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    judged.sort_by_key(|judged| submissions.iter().position(|(path, _)| *path == judged.program));
    judged
}

fn judge(
    verifier: &Verifier<'_>,
    task: &TaskBundle,
    (path, submission): (&Path, &Submission),
    permits: &Permits,
    cancel: &CancelFlag,
    output: Output,
) -> std::result::Result<Judgement, StepFailure> {
    let screened = screened(submission, task);
    if let Some(refused) = screened.as_ref().filter(|screened| screened.outcome != AttemptOutcome::Pending) {
        return Ok(refused.clone());
    }
    let mut faults = 0;
    let mut judgement = loop {
        match judge_once(verifier, submission, permits) {
            Err(fault) if may_pass(&fault) && faults < MOST_RETRIES && !cancel.is_cancelled() => {
                faults += 1;
                output.note(&format!("{}: tried again: {}", path.display(), fault.message));
                sleep_unless_cancelled(RETRY_AFTER * faults, cancel);
            }
            other => break other?,
        }
    };
    let noticed = screened.map(|screened| screened.findings).unwrap_or_default();
    judgement.findings.splice(0..0, noticed);
    Ok(judgement)
}

/// Returns whether the fault may be over in a moment on this machine: other programs on it need memory or disturb measurements for a while.
fn may_pass(fault: &StepFailure) -> bool {
    matches!(fault.code.as_str(), "gpu.out_of_memory" | "gpu.disturbed" | "sandbox.not_frozen")
}

fn judge_once(
    verifier: &Verifier<'_>,
    submission: &Submission,
    permits: &Permits,
) -> std::result::Result<Judgement, StepFailure> {
    let began = Instant::now();
    let built = verifier.build(submission)?;
    let built_ms = began.elapsed().as_millis();
    let (waited_ms, judgement) = permits.with(|| (began.elapsed().as_millis() - built_ms, verifier.judge(built)));
    let judgement_ms = began.elapsed().as_millis() - built_ms - waited_ms;
    tracing::debug!(built_ms, waited_ms, judgement_ms, "a program was judged");
    judgement
}

fn sleep_unless_cancelled(time: Duration, cancel: &CancelFlag) {
    let until = Instant::now() + time;
    while Instant::now() < until && !cancel.is_cancelled() {
        std::thread::sleep(WATCH_INTERVAL);
    }
}

/// Lets so many threads work at the same time.
struct Permits {
    free: Mutex<usize>,
    changed: Condvar,
}

impl Permits {
    fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.changed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        drop(free);
        let done = work();
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_one();
        done
    }
}

/// A failure of the machine or of the reference.
fn step(failure: &StepFailure) -> Failure {
    Failure::new(&failure.code, failure.message.clone())
}

/// Why a program is not right.
pub(crate) fn reason(judgement: &Judgement) -> Option<String> {
    judgement.failure_reason().as_deref().map(printable)
}

/// Median time of the reference, from a measurement that it was part of.
pub(crate) fn reference_ns(baselines: &[Baseline], judged: &[Judged]) -> Option<f64> {
    let of_programs = judged.iter().filter_map(|judged| judged.result.as_ref().ok()?.measurement.as_ref());
    let of_baselines = baselines.iter().filter_map(|baseline| baseline.measurement.as_deref());
    of_programs.chain(of_baselines).map(|measured| measured.baseline_median_ns).next()
}
