//! Measures the set of baselines: other ways to run a reference than as it is given.

use std::path::PathBuf;

use nightshift_evaluator::context::ExecutionContext;
use nightshift_evaluator::measure::{MeasureOptions, Programs, WORK_OUTSIDE_CALL, measure};
use nightshift_evaluator::prepare::ReferenceLibraries;
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::last_words::last_words;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{CudaLibrary, PYTHON_EXTENSION, PrecisionPolicy, TaskBundle, TaskSpec};
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity, has_violation};
use nightshift_toolchain::build::{Role, disk_failure};

use super::devices::StepDevice;
use super::step::{Step, first_error};

/// Appended to a reference: the same model, recorded as a CUDA graph.
const CUDA_GRAPH: &str = include_str!("baselines/cuda_graph.py");

/// Appended to a reference: the same model, compiled in the mode `MODE` at its first call.
const COMPILED: &str = include_str!("baselines/compiled.py");

/// How PyTorch says that the GPU's memory is full, in lower case.
const OUT_OF_MEMORY: &str = "out of memory";

/// Codes of failures that concern the machine or the reference, and not the way to run it.
const IS_FAULT: [&str; 5] = ["worker.", "gpu.", "sandbox.", "process.", "reference.failed"];

/// A first call may compile for so long, in milliseconds.
const COMPILE_LIMIT_MS: u64 = 240_000;

/// Memory that it may take for that, in bytes: the compiler works in the process of the model.
const COMPILE_MEMORY_BYTES: u64 = 16 << 30;

impl Step<'_> {
    /// Measures one of the other ways to run a reference. This takes up to minutes for a model of `PyTorch`.
    pub(super) fn measure_baseline(
        &self,
        kind: BaselineKind,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
        context: &ExecutionContext<'_>,
        device: &StepDevice<'_>,
    ) -> Result<Outcome, StepFailure> {
        match self.baseline_program(task, kind)? {
            Ok(program) if kind == BaselineKind::Library => self.measure_library(&program, task, libraries),
            Ok(program) => self.measure_program(&program, task, libraries, context, device),
            Err(reason) => Ok(Outcome::Unusable(reason)),
        }
    }

    /// Returns a baseline as a program that can be measured, or the reason why there is none.
    fn baseline_program(
        &self,
        task: &TaskBundle,
        kind: BaselineKind,
    ) -> Result<Result<BaselineProgram, String>, StepFailure> {
        let mut spec = task.spec.clone();
        if let (BaselineKind::Library, Some(source)) = (kind, &task.library_source) {
            spec.libraries = CudaLibrary::ALL.into_iter().collect();
            let with_libraries = TaskBundle { spec: spec.clone(), ..task.clone() };
            let (report, path) = self.build_as(Role::Library, source, &with_libraries)?;
            return Ok(match path {
                Some(path) => Ok(BaselineProgram { path, spec }),
                None => Err(format!("`library.cu` does not compile: {}", first_error(&report))),
            });
        }
        let appended = match kind.compile_mode() {
            Some(mode) => compiled(mode),
            None => CUDA_GRAPH.to_owned(),
        };
        let name = kind.as_str().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        let path = self.folder.join(format!("baseline_{name}.{PYTHON_EXTENSION}"));
        std::fs::write(&path, format!("{}{appended}", task.reference_source))
            .map_err(|error| disk_failure(&path, &error))?;
        Ok(Ok(BaselineProgram { path, spec: spec_of_model(spec) }))
    }

    /// Measures a program that calls libraries, which its process has to find.
    fn measure_library(
        &self,
        program: &BaselineProgram,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
    ) -> Result<Outcome, StepFailure> {
        let with_libraries = TaskBundle { spec: program.spec.clone(), ..task.clone() };
        let programs = [program.path.as_path(), &libraries.reference, &libraries.truth];
        let Some(device) = self.device(&with_libraries, &programs)? else {
            return Err(StepFailure::fatal("worker.internal", "a library was to be measured on the host"));
        };
        let place = self.place(Some(&device));
        self.measure_program(program, task, libraries, &self.context(&place), &device)
    }

    /// Measures a baseline by the protocol of programs: it has the place of the program, and the reference that of the baseline.
    fn measure_program(
        &self,
        program: &BaselineProgram,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
        context: &ExecutionContext<'_>,
        device: &StepDevice<'_>,
    ) -> Result<Outcome, StepFailure> {
        let BaselineProgram { path, spec } = program;
        let label = self.baseline_label(task);
        let programs = Programs {
            candidate: path,
            baseline: &libraries.reference,
            truth: &libraries.truth,
            baseline_label: &label,
        };
        let machine = device.machine(&self.bench.machine);
        // Each pair of processes would compile the model anew.
        let compiles = Role::Reference.is_python(spec);
        let process_pairs = if compiles { 1 } else { 3 };
        let options = MeasureOptions {
            confirms: false,
            compiles,
            process_pairs,
            most_process_pairs: process_pairs,
            ..MeasureOptions::confirmation()
        };
        let once = || measure(context, spec, &programs, &machine, false, &options);
        let mut output = once();
        if matches!(&output, Ok(StepOutput::Measured { findings, .. }) if accuses_by_time_alone(findings)) {
            output = once();
        }
        match output {
            Ok(StepOutput::Measured { measurement, findings }) if !has_violation(&findings) => {
                Ok(Outcome::Measured(measurement))
            }
            // A baseline is trusted: the machine was disturbed, and another time it may not be.
            Ok(StepOutput::Measured { findings, .. }) if accuses_by_time_alone(&findings) => {
                Ok(Outcome::Fault(violations(&findings)))
            }
            Ok(StepOutput::Measured { findings, .. } | StepOutput::MeasureFailed { findings, .. })
                if has_violation(&findings) =>
            {
                Ok(Outcome::Unusable(violations(&findings)))
            }
            // Another time it may be faster, or have more memory.
            Ok(StepOutput::MeasureFailed {
                end: end @ (ProcessEnd::TimedOut { .. } | ProcessEnd::MemoryExceeded { .. }),
                ..
            }) => Ok(Outcome::Fault(end.describe())),
            Ok(StepOutput::MeasureFailed { end, printed, .. }) => {
                let said = what_went_wrong(&printed).map(|line| format!(": {line}")).unwrap_or_default();
                let message = format!("{}{said}", end.describe());
                let is_fault = message.to_lowercase().contains(OUT_OF_MEMORY);
                Ok(if is_fault { Outcome::Fault(message) } else { Outcome::Unusable(message) })
            }
            Ok(_) => Err(StepFailure::fatal("worker.internal", "a measurement gave something else")),
            // The task can be used without this baseline.
            Err(failure) if is_fault(&failure.code) => Ok(Outcome::Fault(failure.message)),
            Err(failure) => Err(failure),
        }
    }
}

fn is_fault(code: &str) -> bool {
    IS_FAULT.iter().any(|prefix| code.starts_with(prefix))
}

/// Returns whether there are violations, all of which rest on times alone. Other work on the machine can cause them.
fn accuses_by_time_alone(findings: &[Finding]) -> bool {
    let mut violations = findings.iter().filter(|finding| finding.severity == Severity::Violation).peekable();
    violations.peek().is_some() && violations.all(|finding| finding.code == WORK_OUTSIDE_CALL)
}

/// Returns the messages of all violations.
fn violations(findings: &[Finding]) -> String {
    let violations = findings.iter().filter(|finding| finding.severity == Severity::Violation);
    violations.map(|finding| finding.message.as_str()).collect::<Vec<_>>().join("; ")
}

/// A baseline as a program, with the limits and libraries that it may use.
struct BaselineProgram {
    path: PathBuf,
    spec: TaskSpec,
}

/// The result of measuring a baseline.
pub(super) enum Outcome {
    Measured(Box<Measurement>),
    /// The reference cannot be run in this way, now or later.
    Unusable(String),
    /// The machine failed: another time it may work.
    Fault(String),
}

/// Returns the other ways to run a task's reference.
pub(super) fn baseline_kinds(task: &TaskBundle) -> Vec<BaselineKind> {
    if Role::Reference.is_python(&task.spec) {
        BaselineKind::OF_TORCH.to_vec()
    } else {
        task.library_source.iter().map(|_| BaselineKind::Library).collect()
    }
}

/// Returns the limits and the precision for another way to run a model. `PyTorch` chooses other kernels there than in eager mode, and its
/// default flags allow TF32 in some of them: users accept this error when they choose that way.
fn spec_of_model(mut spec: TaskSpec) -> TaskSpec {
    spec.limits.call_timeout_ms = spec.limits.call_timeout_ms.max(COMPILE_LIMIT_MS);
    spec.limits.memory_bytes = spec.limits.memory_bytes.max(COMPILE_MEMORY_BYTES);
    if matches!(spec.precision, PrecisionPolicy::Reference | PrecisionPolicy::Strict) {
        spec.precision = PrecisionPolicy::Tf32;
    }
    spec
}

/// Returns what is appended to a reference: the same model, compiled in this mode at its first call.
fn compiled(mode: &str) -> String {
    COMPILED.replace("MODE", mode)
}

/// Returns the most useful line of a Python process's output: an error of a compiler or linker, else the exception.
fn what_went_wrong(printed: &str) -> Option<String> {
    let complains = |line: &&str| [" error: ", "cannot find "].iter().any(|words| line.contains(words));
    printed.lines().find(complains).and_then(last_words).or_else(|| last_words(printed))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn another_way_to_run_a_model_may_use_tf32_and_take_minutes_to_compile() {
        let spec = |precision| -> TaskSpec {
            let tensor = serde_json::json!([{ "name": "x", "dtype": "f32", "shape": [4] }]);
            serde_json::from_value(serde_json::json!({
                "schema": 1, "name": "task", "title": "t", "description": "d", "target": "cuda", "reference": "model.py",
                "inputs": tensor, "outputs": tensor, "tolerance": { "atol": 1e-4, "rtol": 1e-4 }, "precision": precision,
            }))
            .unwrap()
        };
        for (policy, used) in
            [("reference", "tf32"), ("strict", "tf32"), ("bf16", "bf16"), ("kernelbench", "kernelbench")]
        {
            let spec = spec_of_model(spec(policy));
            assert_eq!(spec.precision.as_str(), used);
            assert!(
                spec.limits.call_timeout_ms >= COMPILE_LIMIT_MS && spec.limits.memory_bytes >= COMPILE_MEMORY_BYTES
            );
        }
        let text = compiled("max-autotune");
        assert!(text.contains("self.compile(mode=\"max-autotune\")") && !text.contains("MODE"), "{text}");
    }

    #[test]
    fn times_alone_and_faults_of_the_machine_do_not_make_a_baseline_unusable() {
        let finding =
            |code: &str, severity| Finding { code: code.to_owned(), severity, message: String::new(), line: None };
        let by_time = || finding(WORK_OUTSIDE_CALL, Severity::Violation);
        let wrong = finding("timed_output_wrong", Severity::Violation);
        let warned = finding("calls_overlap", Severity::Warning);
        assert!(accuses_by_time_alone(&[by_time(), warned.clone()]));
        assert!(!accuses_by_time_alone(&[by_time(), wrong]) && !accuses_by_time_alone(&[warned]));
        for code in ["sandbox.not_frozen", "process.os", "gpu.disturbed", "reference.failed", "worker.no_torch"] {
            assert!(is_fault(code), "{code}");
        }
        assert!(!is_fault("step.cancelled") && !is_fault("task.reference_failed"));
    }

    #[test]
    fn of_last_words_what_a_compiler_says_comes_first() {
        let linker = "collect2: fatal error: cannot find 'ld'";
        let raised = "torch._inductor.exc.InductorError: CalledProcessError: Command failed";
        let printed = format!("Traceback (most recent call last):\n{raised}\n\nSet TORCHDYNAMO_VERBOSE=1\n");
        assert_eq!(what_went_wrong(&format!("{linker}\n{printed}")).as_deref(), Some(linker));
        assert_eq!(what_went_wrong(&printed).as_deref(), Some(raised));
        assert_eq!(what_went_wrong("\n"), None);
    }
}
