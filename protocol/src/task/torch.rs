//! What a task needs whose reference is a model of `PyTorch`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Ending of a reference, and of a program, that Python runs.
pub const PYTHON_EXTENSION: &str = "py";

/// How the class `Model` of a reference is built and called. The contract's tensors carry names of their own, which a
/// program in any language can bear; this says what they are in the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TorchSpec {
    /// Arguments of the constructor, in their order, as JSON. A tuple is `{"tuple": [...]}`, an object of an installed package
    /// `{"object": {"type", "text", "pickle"}}`, of which `pickle` in Base64 is what counts.
    #[serde(default = "no_arguments")]
    pub init: String,
    /// Arguments of `forward`, in their order, as JSON: `{"input": "x"}` for a tensor of `inputs`, `{"value": 3}` for what is
    /// no tensor. All inputs in their order without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// For each of `params`, in their order, its name in the model's `state_dict`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    /// Names in the `state_dict` of buffers that the model computes, as masks and tables are: they stay as they are built.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<String>,
    /// Element types of tensors that the contract does not have, by the tensor's name: `int64`, `int16`, `int8`, `uint8` or
    /// `bool`, which the contract hands over as `i32`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, String>,
    /// Whether the model is called as it is after its construction, which is in training mode unless it says otherwise itself, as
    /// models of Hugging Face that were fetched do; else in evaluation mode. Training is with statistics of the batch, and with
    /// dropout.
    #[serde(default)]
    pub training: bool,
    /// The file that it was made of, with the folder of its level, for example `level1/19_ReLU.py`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Known problems of the task, which count as warnings about its quality.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<TaskProblem>,
}

/// Why results of a task say less than those of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskProblem {
    /// Stable code, for example `constant_output`.
    pub code: String,
    /// What is wrong.
    pub message: String,
}

/// Element types of `PyTorch` that the contract hands over as `i32`.
pub const HANDED_OVER_AS_I32: [&str; 5] = ["int64", "int16", "int8", "uint8", "bool"];

fn no_arguments() -> String {
    "[]".to_owned()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_left_out_and_read_back() {
        let spec: TorchSpec = serde_json::from_str("{}").unwrap();
        assert_eq!((spec.init.as_str(), spec.training), ("[]", false));
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(text, r#"{"init":"[]","training":false}"#);
        assert_eq!(serde_json::from_str::<TorchSpec>(&text).unwrap(), spec);
    }
}
