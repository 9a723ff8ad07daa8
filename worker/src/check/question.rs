//! What a program is asked at one shape: which questions, and what they are made of.

use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor};

use crate::golden::Recorded;
use crate::inputs::{InputKind, SecretSeeds, TensorData, generate, generate_all};

/// Most tensors that are changed one at a time.
pub(crate) const MAX_PERTURBED_TENSORS: usize = 16;

/// Changes of the declared inputs that are tried, with the names of their cases.
const SCALED_KINDS: [(InputKind, &str); 3] = [
    (InputKind::ScaledUp, "scaled_up"),
    (InputKind::ScaledDown, "scaled_down"),
    (InputKind::SignsFlipped, "signs_flipped"),
];

/// What a program is asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// Inputs as the task declares them.
    Declared,
    /// The same once more.
    Repeat,
    /// Others, at the same addresses.
    SamePointers,
    /// Others, of another size or sign.
    Scaled(InputKind, &'static str),
    /// The first ones but for the input of this number.
    ChangedInput(usize),
    /// The first ones, with the weights of this number changed.
    ChangedParam(usize),
}

impl Question {
    /// In the order in which they are asked. Weights come last: nothing after them needs the first ones.
    pub(super) fn all(shapes: &ConcreteShapes, perturb: bool) -> Vec<Self> {
        let count = |tensors: usize| 0..if perturb { tensors.min(MAX_PERTURBED_TENSORS) } else { 0 };
        [Self::Declared, Self::Repeat, Self::SamePointers]
            .into_iter()
            .chain(SCALED_KINDS.map(|(kind, name)| Self::Scaled(kind, name)))
            .chain(count(shapes.inputs.len()).map(Self::ChangedInput))
            .chain(count(shapes.params.len()).map(Self::ChangedParam))
            .collect()
    }

    pub(super) fn name(self, shapes: &ConcreteShapes) -> String {
        let changed = |tensors: &[ConcreteTensor], number: usize| format!("changed:{}", name_of(tensors, number));
        match self {
            Self::Declared => "declared".to_owned(),
            Self::Repeat => "repeat".to_owned(),
            Self::SamePointers => "same_pointers".to_owned(),
            Self::Scaled(_, name) => name.to_owned(),
            Self::ChangedInput(number) => changed(&shapes.inputs, number),
            Self::ChangedParam(number) => changed(&shapes.params, number),
        }
    }

    /// What it takes beside the first inputs and weights.
    pub(super) fn material(self, shapes: &ConcreteShapes, base: &Base, seeds: &mut SecretSeeds) -> Material {
        let mut other = |kind: InputKind| Some(generate_all(&shapes.inputs, seeds.draw(), kind));
        match self {
            Self::Declared | Self::Repeat => Material::default(),
            Self::SamePointers => Material { inputs: other(InputKind::Declared), params: None },
            Self::Scaled(kind, _) => Material { inputs: other(kind), params: None },
            Self::ChangedInput(number) => {
                let mut inputs = base.inputs.clone();
                if let (Some(slot), Some(tensor)) = (inputs.get_mut(number), shapes.inputs.get(number)) {
                    *slot = generate(tensor, seeds.draw(), InputKind::Declared);
                }
                Material { inputs: Some(inputs), params: None }
            }
            Self::ChangedParam(number) => {
                let mut params = base.params.clone();
                if let (Some(slot), Some(tensor)) = (params.get_mut(number), shapes.params.get(number)) {
                    *slot = generate(tensor, seeds.draw(), InputKind::Declared);
                }
                Material { inputs: None, params: Some(params) }
            }
        }
    }
}

/// The first inputs and weights.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) inputs: Vec<TensorData>,
    pub(super) params: Vec<TensorData>,
}

impl Base {
    pub(super) fn draw(shapes: &ConcreteShapes, seeds: &mut SecretSeeds) -> Self {
        // Golden data rely on that order.
        let params = generate_all(&shapes.params, seeds.draw(), InputKind::Declared);
        Self { inputs: generate_all(&shapes.inputs, seeds.draw(), InputKind::Declared), params }
    }
}

/// What differs from them.
#[derive(Debug, Clone, Default)]
pub(super) struct Material {
    pub(super) inputs: Option<Vec<TensorData>>,
    pub(super) params: Option<Vec<TensorData>>,
}

/// All questions of a shape with their answers, for further programs.
#[derive(Debug)]
pub(super) struct Paper {
    pub(super) base: Base,
    /// For each question, in order.
    pub(super) materials: Vec<Material>,
    /// To each question; none where there is no finite one. What the reference said is not among them, but how far it was
    /// from the truth is.
    pub(super) answers: Vec<Option<Recorded>>,
}

/// Bytes that a shape's paper takes.
pub(super) fn paper_bytes(shapes: &ConcreteShapes, perturb: bool) -> u64 {
    let bytes = |tensors: &[ConcreteTensor]| tensors.iter().map(ConcreteTensor::size_bytes).sum::<u64>();
    let widened = shapes.outputs.iter().map(|output| output.elements().saturating_mul(8)).sum::<u64>();
    let questions = Question::all(shapes, perturb);
    let given = questions.iter().map(|question| match question {
        Question::Declared | Question::Repeat => 0,
        Question::SamePointers | Question::Scaled(..) => bytes(&shapes.inputs),
        Question::ChangedInput(number) => shapes.inputs.get(*number).map_or(0, ConcreteTensor::size_bytes),
        Question::ChangedParam(number) => shapes.params.get(*number).map_or(0, ConcreteTensor::size_bytes),
    });
    let answers = widened.saturating_mul(u64::try_from(questions.len()).unwrap_or(u64::MAX));
    bytes(&shapes.inputs) + bytes(&shapes.params) + given.sum::<u64>() + answers
}

/// The name of the tensor of that number.
pub(super) fn name_of(tensors: &[ConcreteTensor], number: usize) -> &str {
    tensors.get(number).map(|tensor| tensor.name.as_str()).unwrap_or_default()
}
