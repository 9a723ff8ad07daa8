//! `prepare_task`: builds a task's reference, and finds out what programs are compared with.

use nightshift_evaluator::phases::PhaseTimer;
use nightshift_evaluator::prepare::{Examined, ReferenceLibraries, prepare};
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::baseline::Baseline;
use nightshift_protocol::step::{PreparedTask, StepFailure, StepOutput};
use nightshift_protocol::task::TaskBundle;
use nightshift_toolchain::build::Role;

use super::baselines::baseline_kinds;
use super::step::{Step, secret_seeds};
use crate::reference_cache::KnownBaselines;

/// Maximum number of messages of the compiler that a rejected task repeats.
const MAX_QUOTED_MESSAGES: usize = 3;

impl Step<'_> {
    pub(super) fn prepare_task(&self, task: &TaskBundle) -> Result<StepOutput, StepFailure> {
        let mut cost = PhaseTimer::start();
        let build_as = |role| self.build_as(role, &task.reference_source, task);
        let (reference, reference_path) = build_as(Role::Reference)?;
        let Some(reference_path) = reference_path else { return Ok(does_not_compile(Role::Reference, reference)) };
        let (truth, truth_path) = build_as(Role::Truth)?;
        let Some(truth_path) = truth_path else { return Ok(does_not_compile(Role::Truth, truth)) };
        let (Some(reference_library), Some(truth_library)) = (reference.library.clone(), truth.library) else {
            return Err(StepFailure::retriable("worker.internal", "a build gave a library without its hash"));
        };
        let bench = self.bench;
        let libraries = ReferenceLibraries { reference: reference_path, truth: truth_path };
        let mut seeds = secret_seeds()?;
        let device = self.device(task, &[&libraries.reference, &libraries.truth])?;
        let place = self.place(device.as_ref());
        let context = self.context(&place);
        let machine = device.as_ref().map_or_else(|| bench.machine.clone(), |device| device.machine(&bench.machine));
        cost.end("building");
        if let Some(before) = self.prepared_before(task, &machine)? {
            cost.end("found as it was prepared before");
            let cost = cost.phases();
            let prepared = PreparedTask { reference, reference_library, truth_library, machine, cost, ..before };
            return Ok(StepOutput::TaskPrepared { prepared: Box::new(prepared) });
        }
        match prepare(&context, &task.spec, &libraries, &mut seeds)? {
            Examined::Usable(facts) => {
                cost.add(&facts.cost);
                let profile = device
                    .as_ref()
                    .map(|device| self.known_profile(task, &libraries, device, (&reference, &facts)).map(Box::new))
                    .transpose()?;
                cost.end("profile");
                // Compiling a model takes minutes: a worker that does not profile does not measure baselines either.
                let measured =
                    if device.is_some() && self.cuda()?.profiles { baseline_kinds(task) } else { Vec::new() };
                let known = device
                    .as_ref()
                    .map(|device| self.known_baselines(task, &libraries, &context, device, &measured))
                    .transpose()?;
                let KnownBaselines { baselines, faults } = match (known, &device) {
                    (Some(Some(known)), _) => known,
                    (_, None) => KnownBaselines::default(),
                    (_, Some(_)) => not_measured(task),
                };
                cost.end("other baselines");
                let is_whole = faults == 0 && profile.as_ref().is_some_and(|profile| profile.timeline.is_some());
                let prepared = PreparedTask {
                    reference,
                    reference_library,
                    truth_library,
                    baseline_median_ns: facts.baseline_median_ns,
                    reference_normalized_error: facts.reference_normalized_error,
                    warnings: facts.warnings,
                    machine,
                    profile,
                    baselines,
                    cost: cost.phases(),
                };
                self.keep_prepared(task, &prepared, is_whole)?;
                Ok(StepOutput::TaskPrepared { prepared: Box::new(prepared) })
            }
            Examined::Rejected { code, message, printed } => {
                let log = if printed.is_empty() { None } else { Some(self.artifacts.put(printed.as_bytes())?) };
                Ok(StepOutput::TaskRejected { code, message, log })
            }
        }
    }
}

/// The baselines of a task on a worker that measures none.
fn not_measured(task: &TaskBundle) -> KnownBaselines {
    let reason = "this worker measures no baselines (`worker.profilers = false`)";
    let unmeasured = |kind| Baseline { kind, measurement: None, reason: Some(reason.to_owned()), is_fault: false };
    KnownBaselines { baselines: baseline_kinds(task).into_iter().map(unmeasured).collect(), faults: 0 }
}

/// The reference does not compile: said with the first messages.
fn does_not_compile(role: Role, report: BuildReport) -> StepOutput {
    let how = if role == Role::Truth { " in double precision (with NS_REAL defined as double)" } else { "" };
    let errors = report.messages.iter().filter(|message| message.severity == "error");
    let quoted: Vec<String> = errors
        .take(MAX_QUOTED_MESSAGES)
        .map(|message| match message.line {
            0 => format!("{}: {}", message.file, message.message),
            line => format!("{}:{line}: {}", message.file, message.message),
        })
        .collect();
    let said = if quoted.is_empty() { report.end.describe() } else { quoted.join("; ") };
    StepOutput::TaskRejected {
        code: "task.reference_does_not_compile".to_owned(),
        message: format!("the task's reference does not compile{how}: {said}"),
        log: Some(report.log),
    }
}
