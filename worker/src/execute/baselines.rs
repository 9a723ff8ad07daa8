//! What is found out about a reference beside whether it can be used: its profile, and other ways to run it, measured by the
//! protocol of programs.

use std::path::Path;

use nightshift_evaluator::context::ExecutionContext;
use nightshift_evaluator::measure::{MeasureOptions, Programs, measure};
use nightshift_evaluator::prepare::{ReferenceFacts, ReferenceLibraries};
use nightshift_evaluator::trial::try_call;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::last_words::last_words;
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::step::{FurtherBaseline, PreparedTask, StepFailure, StepOutput};
use nightshift_protocol::task::{PYTHON_EXTENSION, Target, TaskBundle, TaskSpec};
use nightshift_sandbox::process::run_in_parallel;
use nightshift_toolchain::build::{Role, disk_failure};
use serde_json::json;

use super::devices::StepDevice;
use super::golden::is_recorded;
use super::step::{Step, secret_seeds};
use crate::reference_cache::{Findings, KnownReference, ReferenceCache, is_whole};

/// Rules by which references are examined and timed: what was found out under others is not used again. 2: default flags of `PyTorch`.
const RULES: u32 = 2;

/// What the baseline is called.
const COMPILED: &str = "torch.compile";

/// Stands behind a reference: the same model, compiled at its first call.
const COMPILE: &str = "\n\nclass ModelNew(Model):\n    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n        self.compile()\n";

/// A first call may compile for so long, in milliseconds.
const COMPILE_LIMIT_MS: u64 = 120_000;

/// Memory that it may take for that, in bytes: the compiler works in the process of the model.
const COMPILE_MEMORY_BYTES: u64 = 16 << 30;

impl Step<'_> {
    /// What a reference does on a device. What is known of a model of `PyTorch` from before is not found out again: neither
    /// the model nor `PyTorch` nor the device has changed then.
    pub(super) fn known_reference(
        &self,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
        context: &ExecutionContext<'_>,
        device: &StepDevice<'_>,
        (build, facts): (&BuildReport, &ReferenceFacts),
    ) -> Result<KnownReference, StepFailure> {
        let key = self.reference_key(task, device);
        if let Some(known) = self.recall(&self.bench.references, key.as_deref())? {
            return Ok(known);
        }
        // Most of either is loading and compiling, on the host; on the device they take turns.
        let (profile, compiled) = run_in_parallel(
            || self.profile_reference(task, libraries, device, build, facts),
            || self.compiled_baseline(task, libraries, context, device),
        );
        let known = KnownReference { profile: Some(Box::new(profile?)), baselines: compiled?.into_iter().collect() };
        if is_whole(known.profile.as_deref(), &known.baselines) {
            self.remember(&self.bench.references, key.as_deref(), &known)?;
        }
        Ok(known)
    }

    /// What a task came to when it was prepared before: the same task with the same `PyTorch`, tools and settings, on the
    /// same device of the same machine. None for references that are built here.
    pub(super) fn prepared_before(
        &self,
        task: &TaskBundle,
        machine: &MachineFacts,
    ) -> Result<Option<PreparedTask>, StepFailure> {
        self.recall(&self.bench.prepared, self.task_key(task, machine).as_deref())
    }

    /// Keeps what a task came to, unless looking again may find more.
    pub(super) fn keep_prepared(&self, task: &TaskBundle, prepared: &PreparedTask) -> Result<(), StepFailure> {
        let profiled = task.spec.target == Target::Cuda && self.cuda()?.profiles;
        if profiled && !is_whole(prepared.profile.as_deref(), &prepared.baselines) {
            return Ok(());
        }
        self.remember(&self.bench.prepared, self.task_key(task, &prepared.machine).as_deref(), prepared)
    }

    /// What is known by this key, with its artifacts in the store.
    fn recall<T: Findings>(&self, cache: &ReferenceCache, key: Option<&str>) -> Result<Option<T>, StepFailure> {
        let Some((found, artifacts)) = key.and_then(|key| cache.get(key)) else { return Ok(None) };
        for bytes in artifacts {
            self.artifacts.put(&bytes)?;
        }
        Ok(Some(found))
    }

    fn remember<T: Findings>(&self, cache: &ReferenceCache, key: Option<&str>, found: &T) -> Result<(), StepFailure> {
        let Some(key) = key else { return Ok(()) };
        let artifacts = found.artifacts().iter().map(|hash| self.artifacts.get(hash)).collect::<Result<Vec<_>, _>>()?;
        if let Err(error) = cache.put(key, found, &artifacts) {
            tracing::warn!(error = %error, "what was found out about a reference could not be kept");
        }
        Ok(())
    }

    /// Names a task, but for what is written for people and for the search, and everything else that its examination may
    /// depend on.
    fn task_key(&self, task: &TaskBundle, machine: &MachineFacts) -> Option<String> {
        if !Role::Reference.is_python(&task.spec) {
            return None;
        }
        let python = self.bench.host.python().ok()?;
        let cuda = self.bench.cuda.as_ref().ok();
        let nsys = cuda.and_then(|cuda| cuda.profilers().nsys.as_ref().ok().map(|tool| &tool.version));
        // Of the form of programs nothing depends on but whether answers are recorded for them.
        let (title, description, goal, form) = Default::default();
        let spec = TaskSpec { title, description, goal, form, ..task.spec.clone() };
        Some(key(&json!({
            "release": env!("CARGO_PKG_VERSION"), "rules": RULES, "spec": spec, "recorded": is_recorded(&task.spec), "source": task.reference_source, "machine": machine,
            "python": python.toolchain().fingerprint, "profiles": cuda.map(|cuda| cuda.profiles), "nsys": nsys,
        })))
    }

    /// Names a model, its shapes, `PyTorch`, the device and the tools. None for what is built here: that takes no time.
    fn reference_key(&self, task: &TaskBundle, device: &StepDevice<'_>) -> Option<String> {
        if !Role::Reference.is_python(&task.spec) {
            return None;
        }
        let python = self.bench.host.python().ok()?;
        let profilers = self.cuda().ok()?.profilers();
        Some(key(&json!({
            "release": env!("CARGO_PKG_VERSION"), "rules": RULES, "precision": task.spec.precision, "source": task.reference_source, "torch": task.spec.torch,
            "dims": task.spec.dims, "inputs": task.spec.inputs, "params": task.spec.params, "outputs": task.spec.outputs,
            "flops": task.spec.flops, "bytes": task.spec.bytes,
            "python": python.toolchain().fingerprint, "device": device.facts,
            "nsys": profilers.nsys.as_ref().ok().map(|tool| &tool.version),
        })))
    }

    /// The reference after `torch.compile` beside the reference as it is. None where it is no model of `PyTorch`, and on the
    /// host, where programs may not compile.
    fn compiled_baseline(
        &self,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
        context: &ExecutionContext<'_>,
        device: &StepDevice<'_>,
    ) -> Result<Option<FurtherBaseline>, StepFailure> {
        if !Role::Reference.is_python(&task.spec) || !self.cuda()?.profiles {
            return Ok(None);
        }
        let program = self.folder.join(format!("compiled.{PYTHON_EXTENSION}"));
        std::fs::write(&program, format!("{}{COMPILE}", task.reference_source))
            .map_err(|error| disk_failure(&program, &error))?;
        let mut spec: TaskSpec = task.spec.clone();
        spec.limits.call_timeout_ms = spec.limits.call_timeout_ms.max(COMPILE_LIMIT_MS);
        spec.limits.memory_bytes = spec.limits.memory_bytes.max(COMPILE_MEMORY_BYTES);
        let label = self.baseline_label(task);
        let programs = Programs {
            candidate: &program,
            baseline: &libraries.reference,
            truth: &libraries.truth,
            baseline_label: &label,
        };
        let machine = device.machine(&self.bench.machine);
        // One pair of processes: each would compile the model anew.
        let options = MeasureOptions { confirms: false, process_pairs: 1, ..MeasureOptions::confirmation() };
        let measured = measure(context, &spec, &programs, &machine, false, &options);
        let (measurement, reason) = match measured {
            Ok(StepOutput::Measured { measurement, findings }) if findings.is_empty() => (Some(measurement), None),
            Ok(StepOutput::Measured { findings, .. } | StepOutput::MeasureFailed { findings, .. })
                if !findings.is_empty() =>
            {
                (None, Some(findings.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>().join("; ")))
            }
            Ok(StepOutput::MeasureFailed { end, .. }) => {
                let said = said_by(context, &spec, &program).unwrap_or_default();
                (None, Some(format!("{}{said}", end.describe())))
            }
            Ok(_) => return Err(StepFailure::fatal("worker.internal", "a measurement gave something else")),
            // Without it a task is as good as with it.
            Err(failure) if failure.code.starts_with("worker.") => (None, Some(failure.message)),
            Err(failure) => return Err(failure),
        };
        Ok(Some(FurtherBaseline { name: COMPILED.to_owned(), measurement, reason }))
    }
}

fn key(named: &serde_json::Value) -> String {
    blake3::hash(named.to_string().as_bytes()).to_hex().to_string()
}

/// The error that a program prints when its first call fails: the measurement says that it did, and not why.
fn said_by(context: &ExecutionContext<'_>, spec: &TaskSpec, program: &Path) -> Option<String> {
    let printed = try_call(context, spec, program, &mut secret_seeds().ok()?).ok()??;
    what_went_wrong(&printed).map(|line| format!(": {line}"))
}

/// The line of a Python's last words that says most: what a compiler or a linker complains about, else its exception.
fn what_went_wrong(printed: &str) -> Option<String> {
    let complains = |line: &&str| [" error: ", "cannot find "].iter().any(|words| line.contains(words));
    printed.lines().find(complains).and_then(last_words).or_else(|| last_words(printed))
}

#[cfg(test)]
mod tests {
    use super::*;

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
