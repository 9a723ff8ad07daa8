//! Capabilities of a machine that a step can ask for: compute capability, tools and labels.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest label, in characters.
pub const MAX_LABEL_CHARS: usize = 64;

/// The error for a text that names no value of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}")]
pub struct InvalidNeed {
    /// The text.
    pub text: String,
    /// The expected kind of text, with its article.
    pub what: &'static str,
}

pub(crate) fn invalid(text: &str, what: &'static str) -> InvalidNeed {
    InvalidNeed { text: text.to_owned(), what }
}

/// Compute capability of a GPU, for example `9.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    /// Before the dot.
    pub major: u32,
    /// After the dot.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ComputeCapability {
    type Err = InvalidNeed;

    fn from_str(text: &str) -> Result<Self, InvalidNeed> {
        let wrong = || invalid(text, "a compute capability such as 9.0");
        let (major, minor) = text.split_once('.').ok_or_else(wrong)?;
        Ok(Self { major: major.parse().map_err(|_| wrong())?, minor: minor.parse().map_err(|_| wrong())? })
    }
}

/// A tool of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// The CUDA compiler.
    Nvcc,
    /// Nsight Systems.
    Nsys,
    /// Nsight Compute.
    Ncu,
    /// The memory and race checker.
    ComputeSanitizer,
    /// `PyTorch`.
    Torch,
}

impl Tool {
    /// Every tool.
    pub const ALL: [Self; 5] = [Self::Nvcc, Self::Nsys, Self::Ncu, Self::ComputeSanitizer, Self::Torch];

    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nvcc => "nvcc",
            Self::Nsys => "nsys",
            Self::Ncu => "ncu",
            Self::ComputeSanitizer => "compute_sanitizer",
            Self::Torch => "torch",
        }
    }
}

impl FromStr for Tool {
    type Err = InvalidNeed;

    fn from_str(text: &str) -> Result<Self, InvalidNeed> {
        let found = Self::ALL.into_iter().find(|tool| tool.as_str() == text);
        found.ok_or_else(|| invalid(text, "a tool: nvcc, nsys, ncu, compute_sanitizer or torch"))
    }
}

/// A label of a machine: letters, digits, `.`, `_`, `-` and `=`, at most [`MAX_LABEL_CHARS`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

impl Label {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Label {
    type Err = InvalidNeed;

    fn from_str(text: &str) -> Result<Self, InvalidNeed> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '=');
        if text.is_empty() || text.chars().count() > MAX_LABEL_CHARS || !text.chars().all(fits) {
            return Err(invalid(text, "a label: up to 64 letters, digits, `.`, `_`, `-` and `=`, as in pool=night"));
        }
        Ok(Self(text.to_owned()))
    }
}

macro_rules! text_conversions {
    ($name:ident, $self:ident => $text:expr) => {
        impl TryFrom<String> for $name {
            type Error = InvalidNeed;

            fn try_from(text: String) -> Result<Self, InvalidNeed> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from($self: $name) -> Self {
                $text
            }
        }
    };
}

text_conversions!(ComputeCapability, value => value.to_string());
text_conversions!(Label, value => value.0);
