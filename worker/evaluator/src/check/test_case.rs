//! The cases of a check.

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, Tolerance};
use nightshift_sandbox::process::ProcessError;

use super::judge::ReferenceError;
use super::oracle::OracleError;
use crate::draw::{Draw, Few, InputKind};
use crate::memory::MemoryError;
use crate::program::ProgramError;
use crate::seeds::SecretSeeds;

/// The factor of values that are nearly zero.
const NEARLY_ZERO: f32 = 1e-6;

/// One in this many elements of a mostly zero input is not zero. The number is odd, so that the places follow no tiles.
const NOT_ZERO_ONE_IN: u64 = 61;

/// The reason for which a check ends early.
pub(super) enum Stop {
    /// The program is wrong at this shape: others say no more.
    Wrong,
    /// The program's process ended.
    Candidate(ProgramError),
    /// The machine or the reference failed.
    Failure(StepFailure),
}

impl From<ProgramError> for Stop {
    fn from(error: ProgramError) -> Self {
        Self::Candidate(error)
    }
}

impl From<MemoryError> for Stop {
    fn from(error: MemoryError) -> Self {
        Self::Failure(error.into())
    }
}

impl From<ProcessError> for Stop {
    fn from(error: ProcessError) -> Self {
        Self::Failure(error.into())
    }
}

impl From<StepFailure> for Stop {
    fn from(failure: StepFailure) -> Self {
        Self::Failure(failure)
    }
}

impl From<OracleError> for Stop {
    fn from(error: OracleError) -> Self {
        Self::Failure(error.into())
    }
}

/// Tensors of which a change mattered at some shape: at larger ones the others are changed. A softmax of one column is the same
/// whatever its input.
#[derive(Debug, Default)]
pub(super) struct Mattered {
    pub(super) inputs: Vec<usize>,
    pub(super) weights: Vec<usize>,
}

/// A case: the check makes one call for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TestCase {
    /// Inputs as the task declares them.
    Declared,
    /// The same inputs once more.
    Repeat,
    /// Other inputs at the same addresses; the outputs still hold what the call before wrote.
    SamePointers,
    /// Inputs of another size or sign.
    Scaled(InputKind, &'static str),
    /// Other weights.
    ChangedWeights,
    /// Other inputs, in a call of which only what is complete in the order of the stream counts.
    InStreamOrder,
    /// Other inputs at other addresses, in the second of two calls in a row.
    OtherAddresses,
    /// Inputs that are zero but for a few elements.
    MostlyZero,
    /// The first inputs but for a few elements of one.
    ChangedInput(usize),
    /// The first weights but for a few elements of one.
    ChangedWeight(usize),
    /// The first weights but for one, which is as large as it takes to matter.
    ScaledWeight(usize),
}

impl TestCase {
    /// The cases that are compared with the truth, in their order.
    pub(super) fn with_truth(shapes: &ConcreteShapes) -> Vec<Self> {
        let changed = (!shapes.params.is_empty()).then_some(Self::ChangedWeights);
        [
            Self::Declared,
            Self::Repeat,
            Self::SamePointers,
            Self::Scaled(InputKind::ScaledUp, "scaled_up"),
            Self::Scaled(InputKind::ScaledDown, "scaled_down"),
            Self::Scaled(InputKind::SignsFlipped, "signs_flipped"),
        ]
        .into_iter()
        .chain(changed)
        .collect()
    }

    pub(super) fn name(self, shapes: &ConcreteShapes) -> String {
        match self {
            Self::Declared => "declared".to_owned(),
            Self::Repeat => "repeat".to_owned(),
            Self::SamePointers => "same_pointers".to_owned(),
            Self::Scaled(_, name) => name.to_owned(),
            Self::ChangedWeights => "changed_weights".to_owned(),
            Self::InStreamOrder => "in_stream_order".to_owned(),
            Self::OtherAddresses => "other_addresses".to_owned(),
            Self::MostlyZero => "mostly_zero".to_owned(),
            Self::ChangedInput(number) => format!("changed:{}", shapes.inputs[number].name),
            Self::ChangedWeight(number) => format!("changed:{}", shapes.params[number].name),
            Self::ScaledWeight(number) => format!("scaled:{}", shapes.params[number].name),
        }
    }

    /// The tolerance for its outputs. Sums that cancel are off by a share of their summands, which are as large as the inputs.
    pub(super) fn tolerance(self, declared: &Tolerance) -> Tolerance {
        match self {
            Self::Scaled(kind, _) => Tolerance { atol: declared.atol * f64::from(kind.factor().max(1.0)), ..*declared },
            _ => *declared,
        }
    }
}

/// Which elements of a tensor the check changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    All,
    Few,
}

/// Draws of inputs that are zero but for a few elements, and of those that are nearly so.
pub(super) fn mostly_zero(count: usize, seeds: &mut SecretSeeds) -> (Vec<Draw>, Vec<Draw>) {
    let draws = Draw::all(count, seeds.draw(), InputKind::Declared);
    let few = |seed| Few { seed, one_in: NOT_ZERO_ONE_IN, scale: 1.0 };
    let zero: Vec<Draw> =
        draws.into_iter().map(|draw| Draw { scale: 0.0, ..draw }.with_few(few(seeds.draw()))).collect();
    let nearly = zero.iter().map(|draw| Draw { scale: NEARLY_ZERO, ..*draw }).collect();
    (zero, nearly)
}

/// Facts about the cases of a shape that later cases need.
#[derive(Default)]
pub(super) struct ShapeHistory {
    /// Fingerprint of the program's outputs to the declared inputs.
    pub(super) first: Option<u64>,
    /// The same of the call before.
    pub(super) previous: Option<u64>,
    /// Whether the outputs to the declared inputs were right.
    pub(super) first_passed: bool,
    /// Whether the outputs to the declared inputs were wrong, and those to the same inputs under other weights.
    pub(super) kept_weights: bool,
    /// The reference's error for the inputs of the last case; none where its outputs were not finite.
    pub(super) answer: Option<ReferenceError>,
    /// The reference's largest error so far.
    pub(super) reference_error: ReferenceError,
}
