//! Golden data: made when a task is prepared, and used where there is no Python for its reference.

use std::path::Path;

use nightshift_evaluator::check::{check_recorded, record, recorded_answers};
use nightshift_evaluator::context::ExecutionContext;
use nightshift_evaluator::golden;
use nightshift_evaluator::prepare::ReferenceLibraries;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::step::{GoldenData, StepFailure, StepOutput};
use nightshift_protocol::task::{CandidateForm, ConcreteShapes, ConcreteTensor, TaskBundle, TaskSpec};
use nightshift_toolchain::build::Role;

use super::step::{Step, secret_seeds};

/// Bytes of an answer for each byte of 32-bit outputs: those, and the truth in twice as many.
const ANSWER_FACTOR: u64 = 3;

impl Step<'_> {
    /// Returns whether this machine cannot run the reference of a task.
    pub(super) fn lacks_python(&self, task: &TaskBundle) -> bool {
        Role::Reference.is_python(&task.spec) && self.bench.host.python().is_err()
    }

    /// The answers of some checks, for tasks whose programs need no Python themselves and whose answers are
    /// small enough.
    pub(super) fn golden_data(
        &self,
        task: &TaskBundle,
        libraries: &ReferenceLibraries,
        context: &ExecutionContext<'_>,
        seeds: &mut SecretSeeds,
    ) -> Result<Option<GoldenData>, StepFailure> {
        if !Role::Reference.is_python(&task.spec) || task.spec.form != CandidateForm::Native {
            return Ok(None);
        }
        let shapes = default_shapes(task)?;
        let wanted = recordings_that_fit(&shapes);
        let mut recordings = Vec::new();
        for _ in 0..wanted {
            let seed = seeds.draw();
            match record(context, &task.spec, &libraries.reference, &libraries.truth, seed)? {
                Some(recording) => recordings.push(recording),
                // What the reference itself does not pass decides nothing about programs.
                None => return Ok(None),
            }
        }
        if recordings.is_empty() {
            tracing::info!(task.name = task.spec.name, "the answers of a task are too large to be kept");
            return Ok(None);
        }
        let torch = self.bench.host.python().map(|python| python.torch.clone()).unwrap_or_default();
        let (bytes, given_stored) = golden::write(&task.spec, &shapes, &torch, &recordings)?;
        Ok(Some(GoldenData {
            artifact: self.artifacts.put(&bytes)?,
            size_bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            seeds: u32::try_from(recordings.len()).unwrap_or(u32::MAX),
            given_stored,
        }))
    }

    /// Checks a program by one of the recordings.
    pub(super) fn check_by_golden_data(
        &self,
        task: &TaskBundle,
        library: &Path,
        golden: &ArtifactHash,
        sandbox_required: bool,
    ) -> Result<StepOutput, StepFailure> {
        let bytes = self.artifacts.get(golden)?;
        let mut recordings = golden::read(&bytes, &default_shapes(task)?)?;
        let count = u64::try_from(recordings.len()).unwrap_or(1).max(1);
        let chosen = usize::try_from(secret_seeds()?.draw() % count).unwrap_or(0);
        let recording = recordings.swap_remove(chosen);
        let device = self.device(task, &[library])?;
        let place = self.place(device.as_ref());
        let report = check_recorded(&self.context(&place), &task.spec, library, recording, sandbox_required)?;
        Ok(StepOutput::Checked { report: Box::new(report) })
    }
}

fn default_shapes(task: &TaskBundle) -> Result<ConcreteShapes, StepFailure> {
    let shapes = task.spec.default_shapes();
    shapes.map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))
}

/// Returns whether answers are recorded for a task.
pub(super) fn is_recorded(spec: &TaskSpec) -> bool {
    spec.form == CandidateForm::Native && spec.default_shapes().is_ok_and(|shapes| recordings_that_fit(&shapes) > 0)
}

/// How many recordings fit into a file.
fn recordings_that_fit(shapes: &ConcreteShapes) -> usize {
    let answers = u64::try_from(recorded_answers(shapes)).unwrap_or(u64::MAX);
    let outputs = shapes.outputs.iter().map(ConcreteTensor::size_bytes).sum::<u64>();
    let answer = outputs.saturating_mul(ANSWER_FACTOR).saturating_mul(answers);
    usize::try_from(golden::MAX_BYTES / answer.max(1)).unwrap_or(usize::MAX).min(golden::RECORDINGS)
}
