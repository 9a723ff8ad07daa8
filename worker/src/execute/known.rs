//! Results of earlier examinations of references: their profiles and baselines, and whole tasks.

use nightshift_evaluator::context::ExecutionContext;
use nightshift_evaluator::prepare::{ReferenceFacts, ReferenceLibraries};
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::baseline::{Baseline, BaselineKind};
use nightshift_protocol::machine::MachineFacts;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::{PreparedTask, StepFailure};
use nightshift_protocol::task::{Target, TaskBundle, TaskSpec};
use nightshift_toolchain::build::Role;
use serde::Serialize;
use serde_json::json;

use super::baselines::{Outcome, baseline_kinds};
use super::devices::StepDevice;
use super::step::Step;
use crate::reference_cache::{Findings, KnownBaselines, KnownProfile, ReferenceCache};

/// Version of the rules by which references are examined and timed: what was found under others is not used again.
const RULES: u32 = 6;

impl Step<'_> {
    /// Returns the profile of a reference. It comes from the cache where neither the model nor `PyTorch` nor the device has changed.
    pub(super) fn known_profile(
        &self,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
        device: &StepDevice<'_>,
        (build, facts): (&BuildReport, &ReferenceFacts),
    ) -> Result<Profile, StepFailure> {
        let key = self.reference_key(CachedKind::Profile, task, device);
        if let Some(KnownProfile { profile }) = self.recall(&self.bench.references, key.as_deref())? {
            return Ok(*profile);
        }
        let profile = Box::new(self.profile_reference(task, libraries, device, build, facts)?);
        let known = KnownProfile { profile };
        if known.is_whole() {
            self.remember(&self.bench.references, key.as_deref(), &known)?;
        }
        Ok(*known.profile)
    }

    /// Returns the other baselines of a task. Those of earlier measurements come from the cache, those of `measured` are
    /// measured now when they are not there. Returns nothing where none is known.
    pub(super) fn known_baselines(
        &self,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
        context: &ExecutionContext<'_>,
        device: &StepDevice<'_>,
        measured: &[BaselineKind],
    ) -> Result<Option<KnownBaselines>, StepFailure> {
        let kinds = baseline_kinds(task);
        let key = self.reference_key(CachedKind::Baselines, task, device);
        let mut known: KnownBaselines = self.recall(&self.bench.references, key.as_deref())?.unwrap_or_default();
        let (mut faults, mut imprecise) = (Vec::new(), Vec::new());
        for kind in kinds.iter().copied().filter(|kind| measured.contains(kind)) {
            if known.baselines.iter().any(|baseline| baseline.kind == kind) {
                continue;
            }
            let (measurement, reason) = match self.measure_baseline(kind, task, libraries, context, device)? {
                Outcome::Measured(measurement) => (Some(measurement), None),
                Outcome::Unusable(reason) => (None, Some(reason)),
                Outcome::Fault(reason) => {
                    faults.push(Baseline { kind, measurement: None, reason: Some(reason), is_fault: true });
                    continue;
                }
            };
            // What was disturbed counts for this task, and is measured again for the next one.
            if measurement.as_ref().is_some_and(|measurement| !measurement.precise) {
                imprecise.push(Baseline { kind, measurement, reason, is_fault: false });
                continue;
            }
            known.baselines.push(Baseline { kind, measurement, reason, is_fault: false });
            // Each one took minutes: an end of this step loses none.
            self.remember(&self.bench.references, key.as_deref(), &known)?;
        }
        known.faults = faults.len();
        known.baselines.extend(imprecise.into_iter().chain(faults));
        if known.baselines.is_empty() && !kinds.is_empty() {
            return Ok(None);
        }
        complete(&mut known.baselines, &kinds);
        Ok(Some(known))
    }

    /// Returns a task as it was prepared before: the same task with the same `PyTorch`, tools and settings, on the same device
    /// of the same machine. Returns nothing for references that are built here.
    pub(super) fn prepared_before(
        &self,
        task: &TaskBundle,
        machine: &MachineFacts,
    ) -> Result<Option<PreparedTask>, StepFailure> {
        self.recall(&self.bench.prepared, self.task_key(task, machine).as_deref())
    }

    /// Keeps a prepared task. `is_whole` tells that preparing it again would find no more.
    pub(super) fn keep_prepared(
        &self,
        task: &TaskBundle,
        prepared: &PreparedTask,
        is_whole: bool,
    ) -> Result<(), StepFailure> {
        let profiled = task.spec.target == Target::Cuda && self.cuda()?.profiles;
        if profiled && !is_whole {
            return Ok(());
        }
        self.remember(&self.bench.prepared, self.task_key(task, &prepared.machine).as_deref(), prepared)
    }

    /// Returns the result that is kept by this key, and puts its artifacts into the store.
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
        let python = self.bench.host.python(self.cancel).ok()?;
        let cuda = self.bench.cuda.as_ref().ok();
        let profilers = cuda.map(|cuda| cuda.profilers(self.cancel)).transpose().ok()?;
        let nsys = profilers.and_then(|profilers| profilers.nsys.as_ref().ok().map(|tool| tool.version.clone()));
        let (title, description, goal, form) = Default::default();
        let spec = TaskSpec { title, description, goal, form, ..task.spec.clone() };
        Some(key(&json!({
            "release": env!("CARGO_PKG_VERSION"), "rules": RULES, "spec": spec, "source": task.reference_source, "machine": machine,
            "python": python.toolchain().fingerprint, "profiles": cuda.map(|cuda| cuda.profiles), "nsys": nsys,
        })))
    }

    /// Names what is found out about a reference: its source, shapes and limits, `PyTorch` or the compiler, the device and the tools.
    fn reference_key(&self, what: CachedKind, task: &TaskBundle, device: &StepDevice<'_>) -> Option<String> {
        let cuda = self.cuda().ok()?;
        let python = if Role::Reference.is_python(&task.spec) {
            Some(&self.bench.host.python(self.cancel).ok()?.toolchain().fingerprint)
        } else {
            None
        };
        let profilers = cuda.profilers(self.cancel).ok()?;
        Some(key(&json!({
            "what": what, "release": env!("CARGO_PKG_VERSION"), "rules": RULES, "precision": task.spec.precision,
            "source": task.reference_source, "library": task.library_source, "torch": task.spec.torch, "dims": task.spec.dims,
            "inputs": task.spec.inputs, "params": task.spec.params, "outputs": task.spec.outputs, "flops": task.spec.flops,
            "bytes": task.spec.bytes, "python": python, "nvcc": cuda.nvcc.toolchain().fingerprint, "device": device.facts,
            "tolerance": task.spec.tolerance, "limits": task.spec.limits,
            // Baselines do not depend on the profiler.
            "nsys": profilers.nsys.as_ref().ok().filter(|_| what == CachedKind::Profile).map(|tool| &tool.version),
        })))
    }
}

/// Brings baselines into their order, and adds the ones that nothing is known of: the fastest of some may not be the fastest of all.
fn complete(baselines: &mut Vec<Baseline>, kinds: &[BaselineKind]) {
    let known: Vec<BaselineKind> = baselines.iter().map(|baseline| baseline.kind).collect();
    let reason = "not asked for: `nightshift verify --baselines` measures all";
    let unmeasured = |kind| Baseline { kind, measurement: None, reason: Some(reason.to_owned()), is_fault: false };
    baselines.extend(kinds.iter().copied().filter(|kind| !known.contains(kind)).map(unmeasured));
    baselines.sort_by_key(|baseline| kinds.iter().position(|kind| *kind == baseline.kind));
}

/// A kind of result that the cache keeps of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum CachedKind {
    Profile,
    Baselines,
}

fn key(named: &serde_json::Value) -> String {
    blake3::hash(named.to_string().as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_that_were_not_asked_for_are_listed_with_the_reason() {
        let reason = Some("no linker".to_owned());
        let failed = Baseline { kind: BaselineKind::Compile, measurement: None, reason, is_fault: false };
        let mut baselines = vec![failed.clone()];
        complete(&mut baselines, &BaselineKind::OF_TORCH);
        assert_eq!(baselines.iter().map(|baseline| baseline.kind).collect::<Vec<_>>(), BaselineKind::OF_TORCH);
        assert_eq!(baselines[1], failed);
        let not_asked_for =
            |baseline: &&Baseline| baseline.reason.as_deref().is_some_and(|said| said.starts_with("not asked for"));
        assert_eq!(baselines.iter().filter(not_asked_for).count(), 3);
    }
}
