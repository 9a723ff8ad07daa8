//! A task: one program to make faster, with its reference, contract, tolerance and limits.

mod memory;
mod precision;
mod tensor;
mod torch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::memory::{
    LARGE_CALL_BYTES, MAX_CALLS_OF_A_WINDOW, MAX_ROTATED_BYTES, MemoryDemand, ONE_CALL_BYTES, TRIMMED_BYTES,
    usable_memory,
};
pub use self::precision::PrecisionPolicy;
pub use self::tensor::{
    ConcreteShapes, ConcreteTensor, DType, Dim, Distribution, ShapeError, ShapeVariant, TensorSpec,
};
pub use self::torch::{HANDED_OVER_AS_I32, PYTHON_EXTENSION, TaskProblem, TorchSpec};
use crate::capability::ComputeCapability;
pub use crate::target::Target;
use crate::target_baseline::TargetBaseline;

/// Largest number of bytes that the tensors of one shape may take together.
pub const MAX_TENSOR_BYTES: u64 = 24 << 30;

/// Name of the shape that the task's own dimensions make.
pub const DEFAULT_SHAPE: &str = "default";

/// Schema version of [`TaskSpec`] and [`TaskBundle`].
pub const TASK_SCHEMA: u32 = 1;

/// The form in which the candidates of a task are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CandidateForm {
    /// A library behind `nightshift.h`: C++ on the `cpu` target, CUDA C++ on `cuda`.
    #[default]
    Native,
    /// A Python file with a class `ModelNew` that takes the place of the reference's `Model`.
    Torch,
}

impl CandidateForm {
    /// `native` or `torch`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Torch => "torch",
        }
    }

    /// Whether it is the native form, which needs no mention.
    #[must_use]
    pub fn is_native(&self) -> bool {
        *self == Self::Native
    }
}

/// A library of NVIDIA's that a task may allow beside the CUDA runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CudaLibrary {
    /// Dense linear algebra.
    Cublas,
    /// The same with epilogues, layouts and a choice of algorithms.
    CublasLt,
    /// Layers of neural networks.
    Cudnn,
    /// Thrust, CUB and libcu++: headers.
    Cccl,
    /// CUTLASS and `CuTe`: headers.
    Cutlass,
}

impl CudaLibrary {
    /// Every library.
    pub const ALL: [Self; 5] = [Self::Cublas, Self::CublasLt, Self::Cudnn, Self::Cccl, Self::Cutlass];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cublas => "cublas",
            Self::CublasLt => "cublaslt",
            Self::Cudnn => "cudnn",
            Self::Cccl => "cccl",
            Self::Cutlass => "cutlass",
        }
    }
}

/// When an output counts as right: `|candidate - truth| <= atol + rtol * |truth|` for every element.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// Absolute part.
    pub atol: f64,
    /// Part relative to the truth.
    pub rtol: f64,
    /// The largest error may also not exceed this many times the reference's own largest error against the truth
    /// (never below the tolerance above when the reference is exact).
    #[serde(default = "default_reference_error_factor")]
    pub reference_error_factor: f64,
}

fn default_reference_error_factor() -> f64 {
    64.0
}

/// One operator of the reference, in execution order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OperatorSpec {
    /// Name that plans refer to.
    pub name: String,
    /// Class, for example `matmul`, `softmax`, `elementwise`.
    pub class: String,
    /// Floating-point operations of this operator in one call at the default shape, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<f64>,
    /// Bytes that this operator reads and writes in one call at the default shape, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// Shapes of the tensors that it reads, at the default shape, when known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Vec<u64>>,
    /// Shapes of its results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Vec<u64>>,
    /// Names of the operators before it whose results it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// Limits of one candidate process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskLimits {
    /// Memory of the candidate process beside its tensors, in bytes.
    #[serde(default = "default_memory_bytes")]
    pub memory_bytes: u64,
    /// Wall time of one call of the candidate, in milliseconds.
    #[serde(default = "default_call_timeout_ms")]
    pub call_timeout_ms: u64,
    /// Wall time of one compilation, in milliseconds.
    #[serde(default = "default_build_timeout_ms")]
    pub build_timeout_ms: u64,
}

fn default_memory_bytes() -> u64 {
    512 * 1024 * 1024
}

fn default_call_timeout_ms() -> u64 {
    5_000
}

fn default_build_timeout_ms() -> u64 {
    60_000
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self {
            memory_bytes: default_memory_bytes(),
            call_timeout_ms: default_call_timeout_ms(),
            build_timeout_ms: default_build_timeout_ms(),
        }
    }
}

/// What the task asks of the search. A campaign may override each value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskGoal {
    /// Stop when the confirmed speedup's lower bound reaches this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_speedup: Option<f64>,
    /// The baseline that the target is meant over; the fastest one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_baseline: Option<TargetBaseline>,
    /// Stop after this many attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Plan anew at most this often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replans: Option<u32>,
    /// Plan anew after this many attempts in a row that failed in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replan_after_failed: Option<u32>,
    /// Plan anew after this many correct attempts in a row without a gain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replan_after_stagnant: Option<u32>,
    /// A speedup counts as a gain when it exceeds the best by this share (0.05 is five percent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_gain: Option<f64>,
    /// Candidates of a round, for strategies that write several at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates_per_round: Option<u32>,
    /// Ask the Coder at most this often within an attempt to fix a program that does not build; 0 never asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_fix_turns: Option<u32>,
    /// Turns of an agent session, for strategies that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Try at most this many values of a program's tunables; 0 tries none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_variants: Option<u32>,
}

/// The contents of `task.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// Schema version: 1.
    pub schema: u32,
    /// Name, unique in a campaign: lower-case letters, digits, `-`, `_`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What the program computes, for the agents.
    pub description: String,
    /// Hardware target.
    pub target: Target,
    /// The form in which programs are written. Native by default.
    #[serde(default, skip_serializing_if = "CandidateForm::is_native")]
    pub form: CandidateForm,
    /// Reference source, relative to the folder.
    pub reference: String,
    /// Libraries that programs may use beside the CUDA runtime, on the `cuda` target. None by default.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub libraries: BTreeSet<CudaLibrary>,
    /// Least compute capability of the device, on the `cuda` target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_compute_capability: Option<ComputeCapability>,
    /// Named extents.
    #[serde(default)]
    pub dims: BTreeMap<String, u64>,
    /// Inputs, in the order of the call.
    pub inputs: Vec<TensorSpec>,
    /// Weights: handed to `ns_init` and, after the inputs, to every call.
    #[serde(default)]
    pub params: Vec<TensorSpec>,
    /// Outputs, in the order of the call.
    pub outputs: Vec<TensorSpec>,
    /// When an output counts as right.
    pub tolerance: Tolerance,
    /// How precise programs have to be, beside the tolerance.
    #[serde(default, skip_serializing_if = "PrecisionPolicy::is_default")]
    pub precision: PrecisionPolicy,
    /// Operators of the reference, in execution order.
    #[serde(default)]
    pub operators: Vec<OperatorSpec>,
    /// Floating-point operations of one call at the default shape, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<f64>,
    /// Bytes that one call must move at the default shape (compulsory traffic), when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// Further shapes that are checked.
    #[serde(default)]
    pub variants: Vec<ShapeVariant>,
    /// Limits of one candidate process.
    #[serde(default)]
    pub limits: TaskLimits,
    /// What the task asks of the search.
    #[serde(default)]
    pub goal: TaskGoal,
    /// How the reference is built and called, when it is a model of `PyTorch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchSpec>,
}

impl TaskSpec {
    /// Whether the reference is a file of Python, with a model of `PyTorch`.
    #[must_use]
    pub fn has_python_reference(&self) -> bool {
        Path::new(&self.reference).extension().is_some_and(|extension| extension == PYTHON_EXTENSION)
    }

    /// The element type that programs of this task see of a tensor: that of the model where programs are PyTorch's.
    #[must_use]
    pub fn program_dtype(&self, tensor: &TensorSpec) -> &'static str {
        let of_model = self.torch.as_ref().filter(|_| self.form == CandidateForm::Torch);
        match of_model.and_then(|torch| torch.types.get(&tensor.name)).map(String::as_str) {
            Some("int64") => "i64",
            Some("int16") => "i16",
            Some("int8") => "i8",
            Some("uint8") => "u8",
            Some("bool") => "bool",
            _ => tensor.dtype.as_str(),
        }
    }

    /// The tensors at the default shape.
    pub fn default_shapes(&self) -> Result<ConcreteShapes, ShapeError> {
        self.shapes(DEFAULT_SHAPE, &BTreeMap::new())
    }

    /// The tensors at every shape: the default first, then the variants.
    pub fn all_shapes(&self) -> Result<Vec<ConcreteShapes>, ShapeError> {
        let mut all = vec![self.default_shapes()?];
        for variant in &self.variants {
            all.push(self.shapes(&variant.name, &variant.dims)?);
        }
        Ok(all)
    }

    /// The same task at one of its shapes alone, which becomes the default one. What the task counts of a call, it counts of its
    /// default shape: at another one it is unknown. Returns nothing where there is no such shape.
    #[must_use]
    pub fn at_shape(&self, name: &str) -> Option<Self> {
        if name == DEFAULT_SHAPE {
            return Some(Self { variants: Vec::new(), ..self.clone() });
        }
        let variant = self.variants.iter().find(|variant| variant.name == name)?;
        let mut dims = self.dims.clone();
        dims.extend(variant.dims.clone());
        Some(Self { dims, variants: Vec::new(), flops: None, bytes: None, ..self.clone() })
    }

    /// Names of the shapes, the default one first.
    pub fn shape_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(DEFAULT_SHAPE).chain(self.variants.iter().map(|variant| variant.name.as_str()))
    }

    fn shapes(&self, name: &str, overrides: &BTreeMap<String, u64>) -> Result<ConcreteShapes, ShapeError> {
        let mut total_bytes = 0_u64;
        let mut concrete = |specs: &[TensorSpec]| -> Result<Vec<ConcreteTensor>, ShapeError> {
            specs
                .iter()
                .map(|spec| {
                    let tensor = self.concrete(spec, overrides)?;
                    total_bytes = total_bytes
                        .checked_add(tensor.size_bytes())
                        .filter(|bytes| *bytes <= MAX_TENSOR_BYTES)
                        .ok_or_else(|| ShapeError::TooLarge { tensor: spec.name.clone(), limit: MAX_TENSOR_BYTES })?;
                    Ok(tensor)
                })
                .collect()
        };
        Ok(ConcreteShapes {
            name: name.to_owned(),
            inputs: concrete(&self.inputs)?,
            params: concrete(&self.params)?,
            outputs: concrete(&self.outputs)?,
        })
    }

    fn concrete(&self, spec: &TensorSpec, overrides: &BTreeMap<String, u64>) -> Result<ConcreteTensor, ShapeError> {
        let mut bytes = spec.dtype.size_bytes();
        let mut shape = Vec::with_capacity(spec.shape.len());
        for dim in &spec.shape {
            let extent = match dim {
                Dim::Fixed(n) => *n,
                Dim::Named(name) => *overrides
                    .get(name)
                    .or_else(|| self.dims.get(name))
                    .ok_or_else(|| ShapeError::UnknownDim { tensor: spec.name.clone(), dim: name.clone() })?,
            };
            if extent == 0 {
                return Err(ShapeError::Zero { tensor: spec.name.clone() });
            }
            bytes = bytes
                .checked_mul(extent)
                .filter(|bytes| *bytes <= MAX_TENSOR_BYTES)
                .ok_or_else(|| ShapeError::TooLarge { tensor: spec.name.clone(), limit: MAX_TENSOR_BYTES })?;
            shape.push(extent);
        }
        Ok(ConcreteTensor {
            name: spec.name.clone(),
            dtype: spec.dtype,
            shape,
            distribution: spec.distribution.clone(),
        })
    }
}

/// A task as it is stored and sent to workers: the specification and the sources it names. Its artifact hash is the
/// task's identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TaskBundle {
    /// The contents of `task.toml`.
    pub spec: TaskSpec,
    /// Text of the reference program.
    pub reference_source: String,
    /// Text of a program that calls a library for the same work, where the folder has a `library.cu`: a baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_source: Option<String>,
}
