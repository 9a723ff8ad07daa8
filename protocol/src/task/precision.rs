//! Precision policies of tasks: the tolerance of a program's outputs, and the arithmetic that the program may use.

use serde::{Deserialize, Serialize};

use super::{DType, TaskSpec, Tolerance};

/// How precise the programs of a task have to be. The truth is the reference in double precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PrecisionPolicy {
    /// Within the task's tolerance, and nearly as precise as the reference is under its own flags.
    #[default]
    Reference,
    /// The same, for a reference whose products are not rounded to TF32.
    Strict,
    /// As precise as the reference is with inputs and weights that are rounded to TF32.
    Tf32,
    /// The same for 16-bit floats.
    Fp16,
    /// The same for the upper half of 32-bit floats.
    Bf16,
    /// Within the tolerance that `KernelBench` publishes now: 0.0001, and 0.01 for 16 bits.
    Kernelbench,
    /// Within the tolerance of `KernelBench`'s first release: 0.01.
    KernelbenchFirst,
}

/// A factor that never limits: the tolerance alone decides.
const NO_LIMIT: f64 = 1e9;

impl PrecisionPolicy {
    /// Every policy.
    pub const ALL: [Self; 7] =
        [Self::Reference, Self::Strict, Self::Tf32, Self::Fp16, Self::Bf16, Self::Kernelbench, Self::KernelbenchFirst];

    /// Returns its name, as in `task.toml`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Strict => "strict",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Kernelbench => "kernelbench",
            Self::KernelbenchFirst => "kernelbench_first",
        }
    }

    /// Returns whether it is the one of tasks that name none.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether errors are limited by a multiple of the reference's own.
    #[must_use]
    pub fn limits_by_reference(self) -> bool {
        matches!(self, Self::Reference | Self::Strict)
    }

    /// Says what a program may do, in a sentence or two, for people and agents.
    #[must_use]
    pub fn allows(self) -> &'static str {
        match self {
            Self::Reference => {
                "Errors may be a multiple of the reference's own, as it runs with its framework's default flags. Tensor cores and flags \
                 of PyTorch are allowed as far as the result stays within that."
            }
            Self::Strict => {
                "Errors may be a multiple of those that the reference has in single precision, without TF32. Rounding factors to TF32 or \
                 less is hardly within that; products split into several parts are."
            }
            Self::Tf32 => {
                "Inputs, weights and intermediate results may be rounded to TF32 (10 bits after the point) before products; sum in single \
                 precision. Set PyTorch's flags for TF32 as you like."
            }
            Self::Fp16 => {
                "Inputs, weights and intermediate results may be rounded to 16-bit floats before products; sum in single precision, and keep \
                 values within the range of 16-bit floats."
            }
            Self::Bf16 => {
                "Inputs, weights and intermediate results may be rounded to bfloat16 (7 bits after the point) before products; sum in single \
                 precision."
            }
            Self::Kernelbench | Self::KernelbenchFirst => {
                "The tolerance alone decides: any arithmetic is allowed that stays within it."
            }
        }
    }

    /// Returns how many low bits of a 32-bit float's significand its format does not have; none where it rounds nothing.
    #[must_use]
    pub fn dropped_bits(self) -> Option<u32> {
        match self {
            Self::Tf32 | Self::Fp16 => Some(13),
            Self::Bf16 => Some(16),
            Self::Reference | Self::Strict | Self::Kernelbench | Self::KernelbenchFirst => None,
        }
    }
}

impl TaskSpec {
    /// Returns the tolerance under the task's policy.
    #[must_use]
    pub fn effective_tolerance(&self) -> Tolerance {
        let of_kernelbench =
            |tolerance: f64| Tolerance { atol: tolerance, rtol: tolerance, reference_error_factor: NO_LIMIT };
        let is_half = self.outputs.iter().any(|output| matches!(output.dtype, DType::F16 | DType::Bf16));
        match self.precision {
            PrecisionPolicy::Kernelbench if is_half => of_kernelbench(1e-2),
            PrecisionPolicy::Kernelbench => of_kernelbench(1e-4),
            PrecisionPolicy::KernelbenchFirst => of_kernelbench(1e-2),
            // Where the format rounds, a multiple of the error that its rounding makes decides.
            PrecisionPolicy::Tf32 | PrecisionPolicy::Fp16 | PrecisionPolicy::Bf16 => {
                Tolerance { reference_error_factor: NO_LIMIT, ..self.tolerance }
            }
            PrecisionPolicy::Reference | PrecisionPolicy::Strict => self.tolerance,
        }
    }

    /// Returns the task under another policy. It is another task: results under several policies are not compared by name.
    #[must_use]
    pub fn under(mut self, policy: PrecisionPolicy) -> Self {
        if policy != self.precision {
            self.precision = policy;
            self.name = format!("{}-{}", self.name, policy.as_str());
        }
        self
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn spec(precision: &str) -> TaskSpec {
        let tensor = serde_json::json!([{ "name": "x", "dtype": "f32", "shape": [4] }]);
        serde_json::from_value(serde_json::json!({
            "schema": 1, "name": "task", "title": "t", "description": "d", "target": "cpu", "reference": "reference.cpp",
            "inputs": tensor, "outputs": tensor, "tolerance": { "atol": 1e-6, "rtol": 1e-5 }, "precision": precision,
        }))
        .unwrap()
    }

    #[test]
    fn a_task_that_names_no_policy_has_that_of_its_reference() {
        let mut value = serde_json::to_value(spec("reference")).unwrap();
        assert!(value.get("precision").is_none(), "stored tasks keep their bytes");
        value["precision"] = "tf32".into();
        assert_eq!(serde_json::from_value::<TaskSpec>(value).unwrap().precision, PrecisionPolicy::Tf32);
        for policy in PrecisionPolicy::ALL {
            assert_eq!(spec(policy.as_str()).precision, policy);
        }
    }

    #[test]
    fn published_tolerances_replace_those_of_the_task() {
        let tolerance = |precision: &str| spec(precision).effective_tolerance();
        assert!((tolerance("kernelbench").rtol - 1e-4).abs() < 1e-12);
        assert!((tolerance("kernelbench_first").atol - 1e-2).abs() < 1e-12);
        assert_eq!(tolerance("strict"), spec("strict").tolerance);
        assert!(tolerance("bf16").reference_error_factor > 1e6 && (tolerance("bf16").atol - 1e-6).abs() < 1e-15);
        let mut half = spec("kernelbench");
        half.outputs[0].dtype = DType::Bf16;
        assert!((half.effective_tolerance().atol - 1e-2).abs() < 1e-12);
    }

    #[test]
    fn a_task_under_another_policy_has_another_name() {
        assert_eq!(spec("reference").under(PrecisionPolicy::Tf32).name, "task-tf32");
        assert_eq!(spec("tf32").under(PrecisionPolicy::Tf32).name, "task");
    }
}
