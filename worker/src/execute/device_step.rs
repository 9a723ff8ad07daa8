//! The steps that run programs: on the host, or on the device that was granted.

use std::path::Path;
use std::sync::OnceLock;

use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{ConcreteShapes, ShapeError, Target, TaskBundle};

use super::cuda::{StepDevice, write_replay_plan};
use super::{Step, secret_seeds};
use crate::check::{Libraries, check_on};
use crate::measure::{DeviceMeasureOptions, MeasureOptions, Programs, add_floor, floor_ns, measure, measure_on_device};
use crate::prepare::{ReferenceFacts, ReferenceLibraries};
use crate::profilers::{self, Checks, Profilers, Replay, Subject};
use crate::runner::{Grounds, Quiet, REPLAY_FILE, Stay, is_python, python_folders, replay_torch_plan};
use crate::torch::provenance::mark_own;
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{JailedCommand, ProcessError, run_jailed_on_device};
use nightshift_toolchain::build::{Role, disk_failure};

impl Step<'_> {
    /// The device of this step; none on the host.
    pub(super) fn device(&self, task: &TaskBundle, libraries: &[&Path]) -> Result<Option<StepDevice<'_>>, StepFailure> {
        match task.spec.target {
            Target::Cpu => Ok(None),
            Target::Cuda => self.cuda()?.device(self.device, &task.spec, libraries).map(Some),
        }
    }

    /// Where sessions of this step are started.
    pub(super) fn grounds<'b>(&'b self, device: Option<&'b StepDevice<'_>>) -> Grounds<'b> {
        let (gate, standby) = device.map(|device| (device.gate, device.standby)).unzip();
        let device = device.map(|device| &device.device);
        Grounds { host: &self.bench.host, device, cancel: self.cancel, gate, standby }
    }

    pub(super) fn check(
        &self,
        task: &TaskBundle,
        libraries: &Libraries,
        sandbox_required: bool,
    ) -> Result<StepOutput, StepFailure> {
        let device = self.device(task, &[&libraries.candidate, &libraries.reference, &libraries.truth])?;
        let mut seeds = secret_seeds()?;
        let grounds = self.grounds(device.as_ref());
        let report = check_on(&grounds, &task.spec, libraries, sandbox_required, &mut seeds)?;
        Ok(StepOutput::Checked { report: Box::new(report) })
    }

    pub(super) fn measure(
        &self,
        task: &TaskBundle,
        libraries: &Libraries,
        confirms: bool,
        sandbox_required: bool,
    ) -> Result<StepOutput, StepFailure> {
        let label = self.baseline_label(task);
        let Some(device) = self.device(task, &[&libraries.candidate, &libraries.reference, &libraries.truth])? else {
            let output = measure(
                &self.bench.host,
                &task.spec,
                &libraries.candidate,
                &libraries.reference,
                &libraries.truth,
                &self.bench.machine,
                &label,
                sandbox_required,
                &MeasureOptions::default(),
                self.cancel,
            )?;
            return Ok(self.with_roofline(&task.spec, output));
        };
        let programs = Programs {
            candidate: &libraries.candidate,
            baseline: &libraries.reference,
            truth: &libraries.truth,
            baseline_label: &label,
            confirms,
        };
        let mut output = measure_on_device(
            &self.grounds(Some(&device)),
            &task.spec,
            &programs,
            &device.machine(&self.bench.machine),
            device.watch.as_ref(),
            sandbox_required,
            &if confirms { DeviceMeasureOptions::default() } else { DeviceMeasureOptions::first() },
        )?;
        add_floor(&mut output, floor_ns(device.facts, &task.spec));
        Ok(output)
    }

    /// What the baseline is, for people.
    pub(super) fn baseline_label(&self, task: &TaskBundle) -> String {
        let reference = &task.spec.reference;
        match (Role::Reference.is_python(&task.spec), self.bench.host.python()) {
            (true, Ok(python)) => format!("{reference}, eager PyTorch {}", python.torch),
            (true, Err(_)) => format!("{reference}, eager PyTorch"),
            (false, _) => format!("{reference}, built with the flags of the candidate"),
        }
    }

    /// Looks for errors of memory and for races, at the smallest shape: the tools slow programs down a hundredfold.
    pub(super) fn sanitize(
        &self,
        task: &TaskBundle,
        library: &Path,
        checks: &Checks<'_>,
    ) -> Result<StepOutput, StepFailure> {
        if Role::Candidate.is_python(&task.spec) {
            return Ok(StepOutput::Sanitized { report: Box::new(profilers::nothing_sanitized(checks)) });
        }
        let shapes = task.spec.all_shapes().map_err(|error| not_usable(&error))?;
        let bytes = |shapes: &ConcreteShapes| {
            let tensors = shapes.inputs.iter().chain(&shapes.params).chain(&shapes.outputs);
            tensors.map(nightshift_protocol::task::ConcreteTensor::size_bytes).sum::<u64>()
        };
        let default = shapes.first().map(bytes);
        let smallest = shapes.into_iter().min_by_key(bytes).ok_or_else(|| no_device(task))?;
        // How long a call takes is known of the default shape alone.
        let call_ns = checks.shared_memory_call_ns.filter(|_| default == Some(bytes(&smallest)));
        let checks = &Checks { shared_memory_call_ns: call_ns, ..*checks };
        let device = self.device(task, &[library])?.ok_or_else(|| no_device(task))?;
        let report = self.replayed(task, library, &device, &smallest, Company::Others, |profilers, replay| {
            profilers::sanitize(profilers, replay, checks)
        })?;
        Ok(StepOutput::Sanitized { report: Box::new(report) })
    }

    /// Profiles a candidate at the default shape.
    pub(super) fn profile_on_device(
        &self,
        task: &TaskBundle,
        library: &Path,
        build: &BuildReport,
        measurement: &Measurement,
    ) -> Result<StepOutput, StepFailure> {
        let device = self.device(task, &[library])?.ok_or_else(|| no_device(task))?;
        let profile =
            self.profiled(task, library, &device, build, Some(measurement.candidate_median_ns), Company::Alone)?;
        Ok(StepOutput::Profiled { profile: Box::new(profile) })
    }

    /// Profiles the reference, for the Planner.
    pub(super) fn profile_reference(
        &self,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
        device: &StepDevice<'_>,
        build: &BuildReport,
        facts: &ReferenceFacts,
    ) -> Result<Profile, StepFailure> {
        // Its step has the device for itself, and something else of that step may be compiling.
        self.profiled(task, &libraries.reference, device, build, Some(facts.baseline_median_ns), Company::Others)
    }

    fn profiled(
        &self,
        task: &TaskBundle,
        library: &Path,
        device: &StepDevice<'_>,
        build: &BuildReport,
        median_ns: Option<f64>,
        company: Company,
    ) -> Result<Profile, StepFailure> {
        let shapes = task.spec.default_shapes().map_err(|error| not_usable(&error))?;
        let subject = Subject {
            compiler: &build.report,
            cuda: build.cuda.as_ref(),
            gpu: Some(device.facts),
            flops: task.spec.flops,
            bytes: task.spec.bytes,
            median_ns,
        };
        let mut profile = self.replayed(task, library, device, &shapes, company, |profilers, replay| {
            profilers::profile(profilers, replay, &subject)
        })?;
        if is_python(library) {
            let program = std::fs::read(library).map_err(|error| disk_failure(library, &error))?;
            mark_own(&mut profile, &program);
        }
        Ok(profile)
    }

    /// Writes one call of a program down, and lets tools repeat it in the jail, on the device.
    fn replayed<T>(
        &self,
        task: &TaskBundle,
        library: &Path,
        device: &StepDevice<'_>,
        shapes: &ConcreteShapes,
        company: Company,
        examine: impl FnOnce(&Profilers, &Replay<'_>) -> Result<T, StepFailure>,
    ) -> Result<T, StepFailure> {
        let folder = temporary_folder(self.folder, "replay-").map_err(|error| disk_failure(self.folder, &error))?;
        let host = &self.bench.host;
        let torch = replay_torch_plan(host, library, task.spec.torch.as_ref()).map_err(|error| {
            error.into_end().map_or_else(|failure| failure, |end| StepFailure::fatal("worker.internal", end.describe()))
        })?;
        let python = python_folders(host, torch.as_ref());
        let in_python = torch.is_some();
        let plan = folder.path().join(REPLAY_FILE);
        // Only when a tool is there for it: with large tensors that takes longer than all else.
        let seeds = secret_seeds()?;
        let written: OnceLock<std::io::Result<()>> = OnceLock::new();
        let write = || {
            let write =
                || write_replay_plan(folder.path(), library, torch.clone(), &device.device, shapes, &mut seeds.clone());
            match written.get_or_init(write) {
                Ok(()) => Ok(()),
                Err(error) => {
                    Err(ProcessError::Setup(format!("a call could not be written down for the tools: {error}")))
                }
            }
        };
        let access = &device.device.access;
        let grounds = self.grounds(Some(device));
        let run = |command: &JailedCommand| {
            write()?;
            // For each tool by itself: who wants to time does not have to wait for all of them.
            let _turn = match company {
                Company::Alone => (None, grounds.alone(Quiet::Complete)),
                Company::Others => (grounds.beside_others(Stay::Long), None),
            };
            let _place = device.standby.place(in_python);
            run_jailed_on_device(&self.bench.host.jail, command, access, self.cancel)
        };
        let readable: Vec<_> = [folder.path().to_path_buf(), library.to_path_buf()].into_iter().chain(python).collect();
        let replay = Replay {
            run: &run,
            executable: &self.bench.host.jail.executable,
            plan: &plan,
            readable: &readable,
            in_python,
            library_path: &access.library_folders,
            env: &access.environment(),
            scratch: self.folder,
            put: &|bytes| self.artifacts.put(bytes),
        };
        let found = examine(&self.cuda()?.profilers, &replay);
        match written.into_inner() {
            // The tools say that they could not be run; what they lacked is what counts.
            Some(Err(error)) => Err(disk_failure(folder.path(), &error)),
            Some(Ok(())) | None => found,
        }
    }
}

/// Who may be at work on the device while a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Alone,
    Others,
}

fn not_usable(error: &ShapeError) -> StepFailure {
    StepFailure::fatal("task.shape_not_usable", error.to_string())
}

fn no_device(task: &TaskBundle) -> StepFailure {
    StepFailure::fatal(
        "worker.unsupported_step",
        format!("a step of this kind needs a GPU, and `{}` is a task for the `cpu` target", task.spec.name),
    )
}
