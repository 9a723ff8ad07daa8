//! Tensors of a task: their types, extents and values, and sets of extents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Element type of a tensor. The numbers are those of `nightshift.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Two's complement, 32 bits.
    I32,
    /// IEEE 754 binary16. Tasks for GPUs only.
    F16,
    /// The upper half of an IEEE 754 binary32. Tasks for GPUs only.
    Bf16,
}

impl DType {
    /// Its name, as task folders and plans say it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Bytes of one element.
    #[must_use]
    pub fn size_bytes(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F64 => 8,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Returns whether the ground truth computes this type in 64 bits: floats of 16 and 32 bits.
    #[must_use]
    pub fn is_widened(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Returns whether this is a float of 16 bits.
    #[must_use]
    pub fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16)
    }

    /// The number that `nightshift.h` gives this type.
    #[must_use]
    pub fn abi_code(self) -> i32 {
        match self {
            Self::F32 => 0,
            Self::F64 => 1,
            Self::I32 => 2,
            Self::F16 => 3,
            Self::Bf16 => 4,
        }
    }
}

/// One extent of a shape: a number, or the name of an entry of `dims`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DimText", into = "DimText")]
pub enum Dim {
    /// A fixed extent.
    Fixed(u64),
    /// Looked up in the task's `dims`, which a shape variant may override.
    Named(String),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "an extent is a whole number from 1, or the name of a dimension in quotation marks")]
enum DimText {
    Number(u64),
    Name(String),
}

impl TryFrom<DimText> for Dim {
    type Error = String;

    fn try_from(text: DimText) -> Result<Self, String> {
        match text {
            DimText::Number(n) => Ok(Self::Fixed(n)),
            DimText::Name(name) if name.is_empty() => Err("a dimension's name may not be empty".to_owned()),
            DimText::Name(name) => Ok(Self::Named(name)),
        }
    }
}

impl From<Dim> for DimText {
    fn from(dim: Dim) -> Self {
        match dim {
            Dim::Fixed(n) => Self::Number(n),
            Dim::Named(name) => Self::Name(name),
        }
    }
}

/// How the values of an input are drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Distribution {
    /// Normal distribution.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Uniform on `[low, high)`.
    Uniform {
        /// Smallest value.
        low: f64,
        /// First value above.
        high: f64,
    },
    /// `low`, `low + step` and so on below `high`, each as likely as the others: truth values, labels, whole numbers.
    Steps {
        /// Smallest value.
        low: f64,
        /// What no value reaches.
        high: f64,
        /// From one value to the next.
        step: f64,
    },
}

impl Default for Distribution {
    fn default() -> Self {
        Self::Normal { mean: 0.0, std: 1.0 }
    }
}

impl Distribution {
    /// How many values [`Self::Steps`] has; at least one.
    #[must_use]
    pub fn steps(low: f64, high: f64, step: f64) -> u64 {
        // A rounding error may not add a value.
        let count = ((high - low) / step - 1e-9).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let count = count as u64;
        count.max(1)
    }
}

/// One tensor of the contract. Row-major and contiguous.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Name, as the program's descriptor carries it.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<Dim>,
    /// How its values are drawn; outputs ignore it.
    #[serde(default)]
    pub distribution: Distribution,
}

/// Another set of extents that the program has to be right for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ShapeVariant {
    /// Name, for reports.
    pub name: String,
    /// Entries of `dims` that differ.
    pub dims: BTreeMap<String, u64>,
}

/// Why a shape cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A name that `dims` does not have.
    #[error("tensor `{tensor}` uses the dimension `{dim}`, which `dims` does not define")]
    UnknownDim {
        /// The tensor.
        tensor: String,
        /// The missing name.
        dim: String,
    },
    /// An extent of zero.
    #[error("tensor `{tensor}` has an extent of zero")]
    Zero {
        /// The tensor.
        tensor: String,
    },
    /// The number of elements or bytes does not fit.
    #[error("the tensors take more than {limit} bytes at tensor `{tensor}`: make the shape smaller")]
    TooLarge {
        /// The tensor at which the limit was passed.
        tensor: String,
        /// The limit in bytes.
        limit: u64,
    },
}

/// A tensor with its extents as numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConcreteTensor {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// How its values are drawn.
    pub distribution: Distribution,
}

impl ConcreteTensor {
    /// Number of elements. The constructor checked that it fits.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.elements() * self.dtype.size_bytes()
    }
}

/// All tensors of a call at one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ConcreteShapes {
    /// `default`, or the variant's name.
    pub name: String,
    /// Inputs.
    pub inputs: Vec<ConcreteTensor>,
    /// Weights.
    pub params: Vec<ConcreteTensor>,
    /// Outputs.
    pub outputs: Vec<ConcreteTensor>,
}

impl ConcreteShapes {
    /// Returns the size of all tensors in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.inputs.iter().chain(&self.params).chain(&self.outputs).map(ConcreteTensor::size_bytes).sum()
    }
}
