//! Golden data: what reference and truth answered to inputs of some hidden seeds, so that a program can be checked where there
//! is no `PyTorch`.
//!
//! A recording is made by the check itself, with the reference in the place of the program: a later check that starts from the
//! same seed draws the same inputs in the same order and finds the answers in that order. Inputs and weights of the first call
//! are kept beside them, for people and other tools, where they are small; otherwise they are drawn anew from the seed.

mod safetensors;

use std::collections::BTreeMap;

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TaskSpec};
use serde::{Deserialize, Serialize};

use self::safetensors::{Stored, TensorFile};
use crate::draw::{Draw, InputKind, draw_on_host};
use crate::seeds::SecretSeeds;
use crate::tensor::HostTensor;

/// Form of the file. Raised when the check draws otherwise: answers would be those to other questions.
const FORM: &str = "2";

/// Seeds that are recorded.
pub const RECORDINGS: usize = 3;

/// Maximum number of bytes of a file.
pub const MAX_BYTES: u64 = 48 << 20;

/// Maximum number of bytes of inputs and weights that are kept with the answers.
const MAX_GIVEN_BYTES: u64 = 8 << 20;

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Outputs in double precision.
    pub truth: Vec<HostTensor>,
    /// The reference's outputs.
    pub reference: Vec<HostTensor>,
    /// The reference's own largest normalized error.
    pub reference_error: f64,
}

/// The questions and answers of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// Seed of its inputs.
    pub seed: u64,
    /// The answers in the order of the questions; none where there is no finite one.
    pub answers: Vec<Option<Recorded>>,
}

/// The metadata of a recording in the file.
#[derive(Serialize, Deserialize)]
struct StoredRecording {
    seed: u64,
    /// The reference's error for each answer; none where there is no finite one.
    errors: Vec<Option<f64>>,
}

/// Recordings as a file, and whether inputs and weights are in it.
pub fn write(
    spec: &TaskSpec,
    shapes: &ConcreteShapes,
    torch: &str,
    recordings: &[Recording],
) -> Result<(Vec<u8>, bool), StepFailure> {
    let given = shapes.inputs.iter().chain(&shapes.params).map(ConcreteTensor::size_bytes).sum::<u64>();
    let given_too = given.saturating_mul(u64::try_from(recordings.len()).unwrap_or(1)) <= MAX_GIVEN_BYTES;
    let mut file = TensorFile::default();
    for (number, recording) in recordings.iter().enumerate() {
        let mut keep = |name: String, tensor: &ConcreteTensor, data: &HostTensor| {
            file.tensors.insert(name, Stored { shape: tensor.shape.clone(), data: data.clone() });
        };
        if given_too {
            let (params, inputs) = first_call(shapes, recording.seed);
            let state = spec.torch.as_ref().map(|torch| torch.state.as_slice()).unwrap_or_default();
            for (position, (tensor, data)) in shapes.params.iter().zip(&params).enumerate() {
                keep(format!("seed{number}/state/{}", state.get(position).unwrap_or(&tensor.name)), tensor, data);
            }
            for (tensor, data) in shapes.inputs.iter().zip(&inputs) {
                keep(format!("seed{number}/inputs/{}", tensor.name), tensor, data);
            }
        }
        for (position, answer) in recording.answers.iter().enumerate() {
            let Some(answer) = answer else { continue };
            for (kind, outputs) in [("truth", &answer.truth), ("reference", &answer.reference)] {
                for (tensor, data) in shapes.outputs.iter().zip(outputs) {
                    keep(format!("seed{number}/answer{position}/{kind}/{}", tensor.name), tensor, data);
                }
            }
        }
    }
    let stored: Vec<StoredRecording> = recordings
        .iter()
        .map(|recording| StoredRecording {
            seed: recording.seed,
            errors: recording
                .answers
                .iter()
                .map(|answer| answer.as_ref().map(|answer| answer.reference_error))
                .collect(),
        })
        .collect();
    let arguments = spec.torch.as_ref().map_or("[]", |torch| torch.init.as_str());
    file.metadata = BTreeMap::from(
        [
            ("form", FORM.to_owned()),
            ("task", spec.name.clone()),
            ("torch", torch.to_owned()),
            ("init", arguments.to_owned()),
            ("given", if given_too { "stored" } else { "drawn anew from the seeds" }.to_owned()),
            ("recordings", serde_json::to_string(&stored).unwrap_or_default()),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    let bytes = file.to_bytes().map_err(|error| StepFailure::fatal("worker.internal", error.to_string()))?;
    Ok((bytes, given_too))
}

/// The recordings of a file, for this task.
pub fn read(bytes: &[u8], shapes: &ConcreteShapes) -> Result<Vec<Recording>, StepFailure> {
    recordings(bytes, shapes).map_err(|reason| {
        StepFailure::fatal("task.golden_unusable", format!("the golden data of the task cannot be used: {reason}"))
    })
}

fn recordings(bytes: &[u8], shapes: &ConcreteShapes) -> Result<Vec<Recording>, String> {
    let mut file = TensorFile::read(bytes)?;
    let said = |key: &str| file.metadata.get(key).cloned().unwrap_or_default();
    if said("form") != FORM {
        return Err(format!("they are of the form `{}`, and this release reads `{FORM}`", said("form")));
    }
    let stored: Vec<StoredRecording> = serde_json::from_str(&said("recordings")).map_err(|error| error.to_string())?;
    let mut found = Vec::with_capacity(stored.len());
    for (number, StoredRecording { seed, errors }) in stored.into_iter().enumerate() {
        let (_, inputs) = first_call(shapes, seed);
        let stored = |name: &str| file.tensors.get(name).map(|stored| &stored.data);
        // Where they are there, they have to be what is drawn here.
        let differs = shapes.inputs.iter().zip(&inputs).any(|(tensor, data)| {
            stored(&format!("seed{number}/inputs/{}", tensor.name)).is_some_and(|kept| kept != data)
        });
        if differs {
            return Err("this release draws other inputs from its seeds".to_owned());
        }
        let mut answers = Vec::with_capacity(errors.len());
        for (position, error) in errors.into_iter().enumerate() {
            let Some(reference_error) = error else {
                answers.push(None);
                continue;
            };
            let mut take = |kind: &str| {
                let taken = shapes.outputs.iter().map(|tensor| {
                    let name = format!("seed{number}/answer{position}/{kind}/{}", tensor.name);
                    let stored = file.tensors.remove(&name).ok_or_else(|| format!("{name} is missing"))?;
                    let fits = stored.shape == tensor.shape;
                    fits.then_some(stored.data).ok_or_else(|| format!("{name} has another shape"))
                });
                taken.collect::<Result<Vec<_>, String>>()
            };
            answers.push(Some(Recorded { truth: take("truth")?, reference: take("reference")?, reference_error }));
        }
        found.push(Recording { seed, answers });
    }
    if found.is_empty() { Err("they hold no recording".to_owned()) } else { Ok(found) }
}

/// Weights and inputs of the first call of a check that starts from a seed.
fn first_call(shapes: &ConcreteShapes, seed: u64) -> (Vec<HostTensor>, Vec<HostTensor>) {
    let mut seeds = SecretSeeds::fixed(seed);
    let mut drawn = |tensors: &[ConcreteTensor]| -> Vec<HostTensor> {
        let draws = Draw::all(tensors.len(), seeds.draw(), InputKind::Declared);
        tensors.iter().zip(draws).map(|(tensor, draw)| draw_on_host(tensor, draw)).collect()
    };
    (drawn(&shapes.params), drawn(&shapes.inputs))
}
