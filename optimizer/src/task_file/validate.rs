//! What a well-formed `task.toml` still may not say.

mod torch;

use std::collections::BTreeMap;

use nightshift_protocol::task::{
    CandidateForm, Dim, Distribution, ShapeError, ShapeVariant, Target, TaskSpec, TensorSpec,
};

use self::torch::torch;

use super::error::TaskError;
use super::locate::{Document, Step};
use super::suggest;
use crate::strategy::MAX_ATTEMPTS;

/// Longest name of a task, tensor, dimension, operator or variant.
const MAX_NAME_CHARS: usize = 64;
/// Longest title.
const MAX_TITLE_CHARS: usize = 200;
/// Longest description.
const MAX_DESCRIPTION_CHARS: usize = 16_000;
/// Most inputs or outputs, and weights of a native reference.
const MAX_TENSORS: usize = 64;
/// Most weights of a model of `PyTorch`.
const MAX_STATE_TENSORS: usize = 2_000;
/// Most extents of a tensor.
const MAX_RANK: usize = 8;
/// Most further shapes.
const MAX_VARIANTS: usize = 32;
/// Most values that a distribution of steps has: integers have no more.
const MAX_STEPS: u64 = 1 << 32;

/// Most operators.
const MAX_OPERATORS: usize = 128;
/// Bounds of the memory of a candidate process, in bytes.
const MEMORY_BYTES: (u64, u64) = (16 << 20, 1 << 36);
/// Bounds of one call, in milliseconds: a check makes dozens of them within its step.
const CALL_TIMEOUT_MS: (u64, u64) = (10, 60_000);
/// Bounds of one compilation, in milliseconds: preparing a task needs two within its step.
const BUILD_TIMEOUT_MS: (u64, u64) = (1_000, 300_000);
/// Bounds of a compute capability before the dot: what the CUDA compilers of today build for, and what may come.
const COMPUTE_CAPABILITY_MAJOR: (u32, u32) = (5, 19);
/// A tolerance at which anything passes is none.
const MAX_RTOL: f64 = 0.5;

/// Code of the error about a form that workers cannot verify.
pub const FORM_UNVERIFIED: &str = "task.form_unverified";

/// The first thing that is wrong, in the order of the file.
pub(super) fn spec(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    let checks = [
        names, texts, form, reference, gpu, dimensions, tensors, variants, shapes, tolerance, operators, numbers, goal,
        torch,
    ];
    checks.iter().try_for_each(|check| check(spec, document))
}

fn names(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if spec.name.is_empty() || spec.name.len() > MAX_NAME_CHARS || !spec.name.chars().all(lower) {
        let message = format!(
            "`{}` is no name of a task: 1 to {MAX_NAME_CHARS} lower-case letters, digits, `-` and `_`",
            spec.name
        );
        return Err(document.error("task.invalid_name", &["name".into()], message));
    }
    Ok(())
}

fn texts(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    for (key, text, limit) in
        [("title", &spec.title, MAX_TITLE_CHARS), ("description", &spec.description, MAX_DESCRIPTION_CHARS)]
    {
        if text.trim().is_empty() {
            let message = format!("`{key}` is empty: the agents need it");
            return Err(document.error("task.malformed", &[key.into()], message));
        }
        if text.chars().count() > limit {
            let message = format!("`{key}` has more than {limit} characters");
            return Err(document.error("task.too_large", &[key.into()], message));
        }
    }
    Ok(())
}

fn form(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    unverified_form(spec).map_or(Ok(()), |message| Err(document.error(FORM_UNVERIFIED, &["form".into()], message)))
}

/// Why programs of the form that a task asks for cannot be verified; none where they can.
#[must_use]
pub fn unverified_form(spec: &TaskSpec) -> Option<String> {
    (spec.form == CandidateForm::Torch && !(spec.has_python_reference() && spec.torch.is_some())).then(|| {
        format!(
            "programs of the form `{}` are compared with a model of PyTorch, and this task has none: leave `form` out, or \
             give a `.py` reference and a section [torch], as `nightshift import kernelbench` writes them",
            spec.form.as_str()
        )
    })
}

fn reference(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    let path = &spec.reference;
    let wanted = match (&spec.torch, spec.target) {
        (Some(_), _) => ".py",
        (None, Target::Cpu) => ".cpp",
        (None, Target::Cuda) => ".cu",
    };
    let inside =
        !path.starts_with('/') && !path.contains('\\') && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if inside && spec.torch.is_none() && spec.has_python_reference() {
        let message = format!(
            "`{path}` is a file of Python, and the task has no section [torch] that says how its model is built and called: \
             `nightshift import kernelbench` writes one"
        );
        return Err(document.error("task.no_reference", &["reference".into()], message));
    }
    if !inside || !path.ends_with(wanted) {
        let message = format!(
            "`{path}` is no reference for the target `{}`: name a `{wanted}` file inside the task's folder",
            spec.target.as_str()
        );
        return Err(document.error("task.no_reference", &["reference".into()], message));
    }
    Ok(())
}

/// What is said about a GPU has to mean one.
fn gpu(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    if spec.target == Target::Cpu {
        let said = [
            ("libraries", !spec.libraries.is_empty()),
            ("min_compute_capability", spec.min_compute_capability.is_some()),
        ];
        if let Some((key, _)) = said.into_iter().find(|(_, is_said)| *is_said) {
            let message = format!("`{key}` is for the target `cuda`; the target of this task is `cpu`: leave it out");
            return Err(document.error("task.not_for_target", &[key.into()], message));
        }
    }
    if let Some(capability) = spec.min_compute_capability
        && !(COMPUTE_CAPABILITY_MAJOR.0..=COMPUTE_CAPABILITY_MAJOR.1).contains(&capability.major)
    {
        let (least, most) = COMPUTE_CAPABILITY_MAJOR;
        let message = format!("no GPU has the compute capability {capability}: from {least}.0 to {most}.9 is possible");
        return Err(document.error("task.bad_limit", &["min_compute_capability".into()], message));
    }
    Ok(())
}

fn dimensions(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    for (name, extent) in &spec.dims {
        let path = ["dims".into(), name.as_str().into()];
        identifier(name, "dimension", document, &path)?;
        if *extent == 0 {
            let message = format!("the dimension `{name}` is zero");
            return Err(document.error("task.zero_extent", &path, message));
        }
    }
    Ok(())
}

fn tensors(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (key, list) in lists(spec) {
        if list.is_empty() && key != "params" {
            let message = format!("the task has no {key}: at least one is needed");
            return Err(document.error("task.no_tensors", &[key.into()], message));
        }
        let most = if key == "params" && spec.torch.is_some() { MAX_STATE_TENSORS } else { MAX_TENSORS };
        if list.len() > most {
            let message = format!("the task has more than {most} {key}");
            return Err(document.error("task.too_large", &[key.into()], message));
        }
        for (i, tensor) in list.iter().enumerate() {
            let at_name = [key.into(), i.into(), "name".into()];
            identifier(&tensor.name, "tensor", document, &at_name)?;
            if let Some(other) = seen.insert(&tensor.name, key) {
                let message = format!("the tensor `{}` is among the {other} already: names are unique", tensor.name);
                return Err(document.error("task.duplicate_name", &at_name, message));
            }
            if spec.target == Target::Cpu && tensor.dtype.is_half() {
                let message = format!(
                    "`{}` has 16-bit floats, which are for the target `cuda`; the target of this task is `cpu`: take f32",
                    tensor.name
                );
                return Err(document.error("task.not_for_target", &[key.into(), i.into(), "dtype".into()], message));
            }
            extents(spec, tensor, document, key, i)?;
            distribution(tensor, document, &[key.into(), i.into(), "distribution".into()])?;
        }
    }
    Ok(())
}

fn extents(
    spec: &TaskSpec,
    tensor: &TensorSpec,
    document: &Document<'_>,
    key: &str,
    i: usize,
) -> Result<(), TaskError> {
    if tensor.shape.len() > MAX_RANK {
        let message = format!("the tensor `{}` has more than {MAX_RANK} extents", tensor.name);
        return Err(document.error("task.too_large", &[key.into(), i.into(), "shape".into()], message));
    }
    for (j, dim) in tensor.shape.iter().enumerate() {
        let path = [key.into(), i.into(), "shape".into(), j.into()];
        match dim {
            Dim::Fixed(0) => {
                let message = format!("the tensor `{}` has an extent of zero", tensor.name);
                return Err(document.error("task.zero_extent", &path, message));
            }
            Dim::Named(name) if !spec.dims.contains_key(name) => {
                let hint = suggest::hint(name, spec.dims.keys().map(String::as_str));
                let message = format!(
                    "the tensor `{}` uses the dimension `{name}`, which `dims` does not define{hint}",
                    tensor.name
                );
                return Err(document.error("task.unknown_dimension", &path, message));
            }
            Dim::Fixed(_) | Dim::Named(_) => {}
        }
    }
    Ok(())
}

fn distribution(tensor: &TensorSpec, document: &Document<'_>, path: &[Step<'_>]) -> Result<(), TaskError> {
    let sound = match tensor.distribution {
        Distribution::Normal { mean, std } => mean.is_finite() && std.is_finite() && std > 0.0,
        Distribution::Uniform { low, high } => low.is_finite() && high.is_finite() && low < high,
        Distribution::Steps { low, high, step } => {
            let sound = low.is_finite() && high.is_finite() && step.is_finite() && step > 0.0 && low < high;
            sound && Distribution::steps(low, high, step) <= MAX_STEPS
        }
    };
    if sound {
        return Ok(());
    }
    let message = format!(
        "the distribution of `{}` draws nothing: a normal one needs `std` above zero, a uniform one `low` below `high`, \
         one of steps also a `step` above zero, and at most 2^32 of them",
        tensor.name
    );
    Err(document.error("task.bad_distribution", path, message))
}

fn variants(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    if spec.variants.len() > MAX_VARIANTS {
        let message = format!("the task has more than {MAX_VARIANTS} variants");
        return Err(document.error("task.too_large", &["variants".into()], message));
    }
    for (i, variant) in spec.variants.iter().enumerate() {
        let at_name = ["variants".into(), i.into(), "name".into()];
        identifier(&variant.name, "variant", document, &at_name)?;
        let taken = spec.variants.iter().take(i).any(|earlier| earlier.name == variant.name);
        if taken || variant.name == "default" {
            let message = format!("another shape is called `{}` already: names are unique", variant.name);
            return Err(document.error("task.duplicate_name", &at_name, message));
        }
        for (name, extent) in &variant.dims {
            let path = ["variants".into(), i.into(), "dims".into(), name.as_str().into()];
            if !spec.dims.contains_key(name) {
                let hint = suggest::hint(name, spec.dims.keys().map(String::as_str));
                let message = format!(
                    "the variant `{}` sets the dimension `{name}`, which `dims` does not define{hint}",
                    variant.name
                );
                return Err(document.error("task.unknown_dimension", &path, message));
            }
            if *extent == 0 {
                let message = format!("the dimension `{name}` is zero in the variant `{}`", variant.name);
                return Err(document.error("task.zero_extent", &path, message));
            }
        }
    }
    Ok(())
}

fn shapes(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    if let Err(error) = spec.default_shapes() {
        return Err(document.error(shape_code(&error), &tensor_path(spec, &error), error.to_string()));
    }
    for (i, variant) in spec.variants.iter().enumerate() {
        // One variant at a time, so that the error can point at it.
        let alone = TaskSpec { variants: vec![ShapeVariant { ..variant.clone() }], ..spec.clone() };
        if let Err(error) = alone.all_shapes() {
            let message = format!("in the variant `{}`: {error}", variant.name);
            let path = ["variants".into(), i.into(), "dims".into()];
            return Err(document.error(shape_code(&error), &path, message));
        }
    }
    Ok(())
}

fn shape_code(error: &ShapeError) -> &'static str {
    match error {
        ShapeError::UnknownDim { .. } => "task.unknown_dimension",
        ShapeError::Zero { .. } => "task.zero_extent",
        ShapeError::TooLarge { .. } => "task.shape_overflow",
    }
}

fn tensor_path(spec: &TaskSpec, error: &ShapeError) -> Vec<Step<'static>> {
    let (ShapeError::UnknownDim { tensor, .. } | ShapeError::Zero { tensor } | ShapeError::TooLarge { tensor, .. }) =
        error;
    for (key, list) in lists(spec) {
        if let Some(i) = list.iter().position(|candidate| candidate.name == *tensor) {
            return vec![Step::Key(key), Step::Index(i), Step::Key("shape")];
        }
    }
    Vec::new()
}

fn tolerance(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    let tolerance = &spec.tolerance;
    let wrong = |key: &'static str, message: String| {
        Err(document.error("task.bad_tolerance", &["tolerance".into(), key.into()], message))
    };
    if !tolerance.atol.is_finite() || tolerance.atol < 0.0 {
        return wrong("atol", format!("`atol` is {}: a number of at least zero is needed", tolerance.atol));
    }
    if !tolerance.rtol.is_finite() || !(0.0..=MAX_RTOL).contains(&tolerance.rtol) {
        return wrong("rtol", format!("`rtol` is {}: a number from 0 to {MAX_RTOL} is needed", tolerance.rtol));
    }
    if tolerance.atol <= 0.0 && tolerance.rtol <= 0.0 {
        return wrong("atol", "`atol` and `rtol` are both zero: no rounding would be right".to_owned());
    }
    let factor = tolerance.reference_error_factor;
    if !factor.is_finite() || factor < 1.0 {
        let message = format!("`reference_error_factor` is {factor}: the reference itself has an error of 1");
        return wrong("reference_error_factor", message);
    }
    Ok(())
}

fn operators(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    if spec.operators.len() > MAX_OPERATORS {
        let message = format!("the task has more than {MAX_OPERATORS} operators");
        return Err(document.error("task.too_large", &["operators".into()], message));
    }
    for (i, operator) in spec.operators.iter().enumerate() {
        let path = ["operators".into(), i.into(), "name".into()];
        identifier(&operator.name, "operator", document, &path)?;
        if spec.operators.iter().take(i).any(|earlier| earlier.name == operator.name) {
            let message = format!("another operator is called `{}` already: plans refer to names", operator.name);
            return Err(document.error("task.duplicate_name", &path, message));
        }
        if let Some((j, name)) =
            (0..).zip(&operator.after).find(|(_, name)| !spec.operators.iter().any(|o| o.name == **name))
        {
            let message = format!("`{}` reads what `{name}` made, and there is no such operator", operator.name);
            return Err(document.error(
                "task.unknown_operator",
                &["operators".into(), i.into(), "after".into(), j.into()],
                message,
            ));
        }
        for (key, value) in [("flops", operator.flops), ("bytes", operator.bytes)] {
            if let Some(value) = value.filter(|value| !value.is_finite() || *value < 0.0) {
                let message = format!("`{key}` is {value}: leave it out when it is not known");
                return Err(document.error("task.bad_number", &["operators".into(), i.into(), key.into()], message));
            }
        }
    }
    Ok(())
}

fn numbers(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    for (key, value) in [("flops", spec.flops), ("bytes", spec.bytes)] {
        if let Some(value) = value.filter(|value| !value.is_finite() || *value <= 0.0) {
            let message = format!("`{key}` is {value}: leave it out when it is not known");
            return Err(document.error("task.bad_number", &[key.into()], message));
        }
    }
    for (key, value, (least, most)) in [
        ("memory_bytes", spec.limits.memory_bytes, MEMORY_BYTES),
        ("call_timeout_ms", spec.limits.call_timeout_ms, CALL_TIMEOUT_MS),
        ("build_timeout_ms", spec.limits.build_timeout_ms, BUILD_TIMEOUT_MS),
    ] {
        if !(least..=most).contains(&value) {
            let message = format!("`{key}` is {value}: from {least} to {most} is possible");
            return Err(document.error("task.bad_limit", &["limits".into(), key.into()], message));
        }
    }
    Ok(())
}

fn goal(spec: &TaskSpec, document: &Document<'_>) -> Result<(), TaskError> {
    let wrong = |key: &'static str, message: String| {
        Err(document.error("task.bad_goal", &["goal".into(), key.into()], message))
    };
    let goal = &spec.goal;
    if let Some(target) = goal.target_speedup.filter(|target| !target.is_finite() || *target <= 0.0) {
        return wrong("target_speedup", format!("`target_speedup` is {target}: a number above zero is needed"));
    }
    if let Some(attempts) = goal.max_attempts.filter(|attempts| !(1..=MAX_ATTEMPTS).contains(attempts)) {
        return wrong("max_attempts", format!("`max_attempts` is {attempts}: from 1 to {MAX_ATTEMPTS} is possible"));
    }
    for (key, value) in
        [("replan_after_failed", goal.replan_after_failed), ("replan_after_stagnant", goal.replan_after_stagnant)]
    {
        if value == Some(0) {
            return wrong(key, format!("`{key}` is zero: at least one attempt has to be made before a new plan"));
        }
    }
    if let Some(gain) = goal.min_gain.filter(|gain| !gain.is_finite() || *gain < 0.0) {
        return wrong(
            "min_gain",
            format!("`min_gain` is {gain}: a share of at least zero is needed, 0.05 for five percent"),
        );
    }
    Ok(())
}

fn lists(spec: &TaskSpec) -> [(&'static str, &[TensorSpec]); 3] {
    [("inputs", &spec.inputs), ("params", &spec.params), ("outputs", &spec.outputs)]
}

fn identifier(name: &str, noun: &str, document: &Document<'_>, path: &[Step<'_>]) -> Result<(), TaskError> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let goes_on_well = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if starts_well && goes_on_well && name.len() <= MAX_NAME_CHARS {
        return Ok(());
    }
    let message = format!(
        "`{name}` is no name of a {noun}: a letter or `_`, then letters, digits and `_`, at most {MAX_NAME_CHARS} in all"
    );
    Err(document.error("task.invalid_name", path, message))
}
