//! The steps that run programs: checks, measurements, sanitizers and profiles.

use nightshift_sandbox::access::temporary_folder;
use std::path::Path;
use std::sync::OnceLock;

use nightshift_evaluator::check::{Libraries, check};
use nightshift_evaluator::lock::DeviceMode;
use nightshift_evaluator::measure::{MeasureOptions, Programs, add_floor, measure};
use nightshift_evaluator::prepare::{ReferenceFacts, ReferenceLibraries};
use nightshift_evaluator::runner::ReplayRequest;
use nightshift_profilers::{self as profilers, Checks, ProfiledProgram, Profilers, Replay, mark_own};
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{ConcreteShapes, PYTHON_EXTENSION, ShapeError, Target, TaskBundle};
use nightshift_sandbox::process::{JailedCommand, ProcessError, run_jailed_on_device};
use nightshift_toolchain::build::{Role, disk_failure};

use super::devices::StepDevice;
use super::step::{Step, secret_seeds};

impl Step<'_> {
    pub(super) fn check(
        &self,
        task: &TaskBundle,
        libraries: &Libraries,
        sandbox_required: bool,
    ) -> Result<StepOutput, StepFailure> {
        let device = self.device(task, &[&libraries.candidate, &libraries.reference, &libraries.truth])?;
        let place = self.place(device.as_ref());
        let mut report = check(&self.context(&place), &task.spec, libraries, sandbox_required, &mut secret_seeds()?)?;
        if let Some(device) = &device {
            let found = self.wrong_access(task, &libraries.candidate, device, &report);
            report.findings.extend(found);
        }
        Ok(StepOutput::Checked { report: Box::new(report) })
    }

    pub(super) fn measure(
        &self,
        task: &TaskBundle,
        libraries: &Libraries,
        confirms: bool,
        sandbox_required: bool,
    ) -> Result<StepOutput, StepFailure> {
        let options = match (task.spec.target, confirms) {
            (Target::Cpu, confirms) => MeasureOptions::on_host(confirms),
            (Target::Cuda, true) => MeasureOptions::confirmation(),
            (Target::Cuda, false) => MeasureOptions::first(),
        };
        let label = self.baseline_label(task);
        self.measure_against(task, libraries, (&libraries.reference, &label), &options, sandbox_required)
    }

    /// Times a program against a baseline.
    pub(super) fn measure_against(
        &self,
        task: &TaskBundle,
        libraries: &Libraries,
        (baseline, baseline_label): (&Path, &str),
        options: &MeasureOptions,
        sandbox_required: bool,
    ) -> Result<StepOutput, StepFailure> {
        let Libraries { candidate, truth, .. } = libraries;
        let device = self.device(task, &[candidate, baseline, truth])?;
        let place = self.place(device.as_ref());
        let programs = Programs { candidate, baseline, truth, baseline_label };
        let machine =
            device.as_ref().map_or_else(|| self.bench.machine.clone(), |device| device.machine(&self.bench.machine));
        let mut output = measure(&self.context(&place), &task.spec, &programs, &machine, sandbox_required, options)?;
        match &device {
            None => Ok(self.with_roofline(&task.spec, output)),
            Some(device) => {
                add_floor(&mut output, &device.facts, &task.spec);
                Ok(output)
            }
        }
    }

    /// What the baseline is, for people.
    pub(super) fn baseline_label(&self, task: &TaskBundle) -> String {
        let reference = &task.spec.reference;
        match (Role::Reference.is_python(&task.spec), self.bench.host.python(self.cancel)) {
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
        let default = shapes.first().map(ConcreteShapes::size_bytes);
        let smallest = shapes.into_iter().min_by_key(ConcreteShapes::size_bytes).ok_or_else(|| no_device(task))?;
        // How long a call takes is known of the default shape alone.
        let call_ns = checks.shared_memory_call_ns.filter(|_| default == Some(smallest.size_bytes()));
        let checks = &Checks { shared_memory_call_ns: call_ns, ..*checks };
        let device = self.device(task, &[library])?.ok_or_else(|| no_device(task))?;
        let report = self.replayed(task, library, &device, &smallest, DeviceMode::Tool, |profilers, replay| {
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
        let median_ns = Some(measurement.candidate_median_ns);
        let profile = self.profiled(task, library, &device, build, median_ns, DeviceMode::Isolated)?;
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
        self.profiled(task, &libraries.reference, device, build, Some(facts.baseline_median_ns), DeviceMode::Exclusive)
    }

    fn profiled(
        &self,
        task: &TaskBundle,
        library: &Path,
        device: &StepDevice<'_>,
        build: &BuildReport,
        median_ns: Option<f64>,
        mode: DeviceMode,
    ) -> Result<Profile, StepFailure> {
        let shapes = task.spec.default_shapes().map_err(|error| not_usable(&error))?;
        let subject = ProfiledProgram {
            compiler: &build.report,
            cuda: build.cuda.as_ref(),
            gpu: Some(&device.facts),
            flops: task.spec.flops,
            bytes: task.spec.bytes,
            median_ns,
        };
        let mut in_python = false;
        let mut profile = self.replayed(task, library, device, &shapes, mode, |profilers, replay| {
            in_python = replay.in_python;
            profilers::profile(profilers, replay, &subject)
        })?;
        if in_python {
            let program = std::fs::read(library).map_err(|error| disk_failure(library, &error))?;
            mark_own(&mut profile, &program);
        }
        Ok(profile)
    }

    /// Writes one call of a program down, and lets tools repeat it in the sandbox, on the device.
    pub(super) fn replayed<T>(
        &self,
        task: &TaskBundle,
        library: &Path,
        device: &StepDevice<'_>,
        shapes: &ConcreteShapes,
        mode: DeviceMode,
        examine: impl FnOnce(&Profilers, &Replay<'_>) -> Result<T, StepFailure>,
    ) -> Result<T, StepFailure> {
        let profilers = self.cuda()?.profilers(self.cancel)?;
        let folder = temporary_folder(self.folder, "replay-").map_err(|error| disk_failure(self.folder, &error))?;
        let is_python = library.extension().is_some_and(|extension| extension == PYTHON_EXTENSION);
        let python = is_python.then(|| self.bench.host.python(self.cancel)).transpose();
        let request = ReplayRequest {
            spec: &task.spec,
            program: library,
            python: python.map_err(|reason| StepFailure::retriable("worker.no_torch", reason))?,
            libraries: &device.libraries,
            shapes,
        };
        let mut readable = request.readable();
        readable.push(folder.path().to_path_buf());
        // Only when a tool is there for it: with large tensors that takes longer than all else.
        let seeds = secret_seeds()?;
        let written: OnceLock<std::io::Result<()>> = OnceLock::new();
        let write = || match written.get_or_init(|| request.write(folder.path(), &mut seeds.clone())) {
            Ok(()) => Ok(()),
            Err(error) => Err(ProcessError::Setup(format!("a call could not be written down for the tools: {error}"))),
        };
        let run = |command: &JailedCommand| {
            write()?;
            // For each tool by itself: a step that wants to measure does not have to wait for all of them.
            let _slot = device.pool().slot(is_python, self.cancel);
            let _guard = device.lock().lock(mode, self.cancel)?;
            run_jailed_on_device(&self.bench.host.jail, command, &device.access, self.cancel)
        };
        let plan = request.plan_path(folder.path());
        let replay = Replay {
            run: &run,
            executable: &self.bench.host.jail.executable,
            plan: &plan,
            in_python: is_python,
            readable: &readable,
            library_path: &device.access.library_folders,
            env: &device.access.environment(),
            scratch: self.folder,
            put: &|bytes| Ok(self.artifacts.put(bytes)?),
        };
        let found = examine(&profilers, &replay);
        match written.into_inner() {
            // The tools say that they could not be run; what they lacked is what counts.
            Some(Err(error)) => Err(disk_failure(folder.path(), &error)),
            Some(Ok(())) | None => found,
        }
    }
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
