//! What the section [torch] of a task may say.

use nightshift_protocol::task::{DType, HANDED_OVER_AS_I32, TaskSpec, TorchSpec};
use serde_json::Value;

use super::lists;
use crate::task_file::error::TaskError;
use crate::task_file::locate::Document;

/// How the model of a reference is built and called.
pub(super) fn torch(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    let Some(torch) = &spec.torch else { return Ok(()) };
    let wrong = |key: &'static str, message: String| {
        Err(document.error("task.bad_torch", &["torch".into(), key.into()], message))
    };
    if !spec.variants.is_empty() {
        let message = "a model of PyTorch is built for one shape: leave `variants` out".to_owned();
        return Err(document.error("task.bad_torch", &["variants".into()], message));
    }
    if serde_json::from_str::<Vec<Value>>(&torch.init).is_err() {
        return wrong(
            "init",
            "`init` is no JSON array: the arguments of the constructor, for example `[64, true]`".to_owned(),
        );
    }
    if torch.state.len() != spec.params.len() {
        let message = format!(
            "`state` has {} names, and the task {} weights: each weight needs its name in the model's state_dict",
            torch.state.len(),
            spec.params.len()
        );
        return wrong("state", message);
    }
    if let Some(message) = torch.call.as_deref().and_then(|call| wrong_call(call, spec)) {
        return wrong("call", message);
    }
    wrong_type(torch, spec).map_or(Ok(()), |message| wrong("types", message))
}

/// What is wrong with the arguments of a call.
fn wrong_call(call: &str, spec: &TaskSpec) -> Option<String> {
    let Ok(arguments) = serde_json::from_str::<Vec<serde_json::Map<String, Value>>>(call) else {
        return Some("`call` is no JSON array of objects: `[{\"input\": \"x\"}, {\"value\": 3}]`".to_owned());
    };
    let named: Vec<&str> = arguments.iter().filter_map(|argument| argument.get("input")?.as_str()).collect();
    let described = arguments.iter().all(|argument| {
        argument.len() == 1 && (argument.contains_key("value") || argument.get("input").is_some_and(Value::is_string))
    });
    if !described {
        return Some("each argument of `call` is either an \"input\" by its name, or a \"value\"".to_owned());
    }
    let declared: Vec<&str> = spec.inputs.iter().map(|input| input.name.as_str()).collect();
    (named != declared).then(|| {
        format!(
            "`call` has the inputs {}, and the task {}: each once, in the same order",
            named.join(", "),
            declared.join(", ")
        )
    })
}

/// What is wrong with the types of `PyTorch`.
fn wrong_type(torch: &TorchSpec, spec: &TaskSpec) -> Option<String> {
    torch.types.iter().find_map(|(name, kind)| {
        let tensor = lists(spec).into_iter().flat_map(|(_, list)| list).find(|tensor| tensor.name == *name);
        match tensor {
            None => Some(format!("`types` names `{name}`, which is no tensor of the task")),
            Some(tensor) if tensor.dtype != DType::I32 || !HANDED_OVER_AS_I32.contains(&kind.as_str()) => {
                let known = HANDED_OVER_AS_I32.join(", ");
                Some(format!("`types` calls `{name}` `{kind}`: for a tensor of i32, one of {known} is possible"))
            }
            Some(_) => None,
        }
    })
}
