//! What was found out about a file, as a task's folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use nightshift_optimizer::task_file::{MAX_TASK_FILE_BYTES, TASK_FILE, TaskError, parse_spec};
use nightshift_protocol::task::{
    CandidateForm, Dim, Distribution, OperatorSpec, PrecisionPolicy, TASK_SCHEMA, Target, TaskGoal, TaskLimits,
    TaskSpec, TensorSpec, Tolerance, TorchSpec,
};
use nightshift_toolchain::inspect::{FoundTensor, Inspection};
use serde_json::{Value, json};

use super::files::ModelFile;
use super::known;
use crate::failure::{Failure, Result};

/// How the unchanged file is called in a task's folder.
pub(crate) const REFERENCE: &str = "reference.py";

/// Longest name of a task.
const MAX_NAME_CHARS: usize = 64;

/// Memory that a program may always take beside its tensors, in bytes: libraries of `PyTorch` are loaded when they are first
/// called, and those for a GPU are large.
const LEAST_MEMORY_BYTES: u64 = 8 << 30;

/// Most memory that a program may take beside its tensors, in bytes.
const MOST_MEMORY_BYTES: u64 = 1 << 36;

/// Maximum number of characters of a file's name in a title, which may have 200.
const MAX_TITLE_WORDS_CHARS: usize = 160;

/// Maximum number of characters of what an object says of itself.
const MAX_OBJECT_CHARS: usize = 600;

/// Wall time of one call, in milliseconds: Triton compiles at the first one.
const CALL_TIMEOUT_MS: u64 = 60_000;

/// Wall time of one compilation, in milliseconds: sources with the headers of `PyTorch` take their time.
const BUILD_TIMEOUT_MS: u64 = 180_000;

/// What is asked of the tasks.
#[derive(Debug, Clone)]
pub(crate) struct ImportOptions {
    /// What programs are written for.
    pub(crate) target: Target,
    /// In which form.
    pub(crate) form: CandidateForm,
    /// Whether tensors have 16 bits.
    pub(crate) half: bool,
    /// Whether the model is called in training mode.
    pub(crate) training: bool,
    /// Where the files come from, for people.
    pub(crate) origin: Option<String>,
}

/// The specification of a task.
pub(crate) fn spec(file: &ModelFile, found: &Inspection, wish: &ImportOptions) -> TaskSpec {
    let mut problems: Vec<_> = known::problems(file).collect();
    problems.extend(found.problems.iter().cloned());
    let tolerance = if wish.half { 1e-2 } else { 1e-4 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of bytes, and a cast saturates"
    )]
    let memory_bytes = (found.bytes as u64).saturating_mul(3).clamp(LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES);
    TaskSpec {
        schema: TASK_SCHEMA,
        name: name(file),
        title: title(file),
        description: description(file, found, wish),
        target: wish.target,
        form: wish.form,
        reference: REFERENCE.to_owned(),
        libraries: BTreeSet::new(),
        min_compute_capability: None,
        dims: BTreeMap::new(),
        inputs: tensors(&found.inputs),
        params: tensors(&found.params),
        outputs: tensors(&found.outputs),
        tolerance: Tolerance { atol: tolerance, rtol: tolerance, reference_error_factor: 64.0 },
        precision: PrecisionPolicy::default(),
        operators: found
            .operators
            .iter()
            .map(|operator| OperatorSpec {
                name: operator.name.clone(),
                class: operator.class.clone(),
                flops: operator.flops,
                bytes: operator.bytes,
                inputs: operator.inputs.clone(),
                outputs: operator.outputs.clone(),
                after: operator.after.clone(),
            })
            .collect(),
        flops: found.flops.filter(|flops| *flops > 0.0),
        bytes: found.moved_bytes.filter(|bytes| *bytes > 0.0),
        variants: Vec::new(),
        limits: TaskLimits { memory_bytes, call_timeout_ms: CALL_TIMEOUT_MS, build_timeout_ms: BUILD_TIMEOUT_MS },
        goal: TaskGoal::default(),
        torch: Some(TorchSpec {
            init: found.init.to_string(),
            call: Some(found.call.to_string()),
            state: found.params.iter().map(|param| param.state.clone().unwrap_or_default()).collect(),
            constants: found.constants.clone(),
            types: found.types.clone(),
            training: wish.training,
            file: Some(file.label()),
            problems,
        }),
    }
}

/// The text of `task.toml`, which says above it where everything comes from. It is read back before it is given.
pub(crate) fn text(spec: &TaskSpec, file: &ModelFile, found: &Inspection, wish: &ImportOptions) -> Result<String> {
    let mut text = String::new();
    let from = wish.origin.as_ref().map_or_else(String::new, |origin| format!(" of {origin}"));
    let _ = writeln!(text, "# Written by `nightshift import kernelbench` from {}{from},", file.label());
    let _ = writeln!(text, "# inspected with PyTorch {}.", found.torch);
    let _ = writeln!(text, "#\n# Values are drawn anew in each call, as these distributions say:");
    for tensor in found.inputs.iter().chain(&found.params) {
        let _ =
            writeln!(text, "#   {}: {}, after {}", tensor.name, drawn(&tensor.distribution), one_line(&tensor.origin));
    }
    for note in &found.notes {
        let _ = writeln!(text, "# {}", one_line(note));
    }
    let body = toml::to_string(spec)
        .map_err(|error| Failure::new("internal.toml", format!("the task cannot be written as TOML: {error}")))?;
    let text = format!("{text}\n{body}");
    parse_spec(&text, TASK_FILE).map_err(|error| {
        if text.len() <= MAX_TASK_FILE_BYTES {
            return refused(&error);
        }
        // The file does not exist yet.
        let weights = found.params.len();
        let message = format!(
            "written down as a task its {weights} weights take {} bytes, and a task takes at most {MAX_TASK_FILE_BYTES}",
            text.len()
        );
        Failure::new(error.code(), message)
    })?;
    Ok(text)
}

/// Writes a task's folder.
pub(crate) fn write(folder: &Path, text: &str, source: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(REFERENCE), source)?;
    std::fs::write(folder.join(TASK_FILE), text)
}

fn refused(error: &TaskError) -> Failure {
    Failure::new(error.code(), error.message())
}

fn tensors(found: &[FoundTensor]) -> Vec<TensorSpec> {
    found
        .iter()
        .map(|tensor| TensorSpec {
            name: tensor.name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.iter().copied().map(Dim::Fixed).collect(),
            distribution: tensor.distribution.clone(),
        })
        .collect()
}

/// `kb-l1-19-relu`; the name of the file for one that has no level.
pub(crate) fn name(file: &ModelFile) -> String {
    let mut slug = String::new();
    for c in file.stem.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_matches('-');
    let slug = if slug.is_empty() { "model" } else { slug };
    let name = file.level.map_or_else(|| slug.to_owned(), |level| format!("kb-l{level}-{slug}"));
    name.get(..MAX_NAME_CHARS).unwrap_or(&name).trim_end_matches('-').to_owned()
}

fn title(file: &ModelFile) -> String {
    let stem = file.plain_stem();
    let digits = stem.chars().take_while(char::is_ascii_digit).count();
    let words: Vec<&str> = stem.get(digits..).unwrap_or_default().split('_').filter(|word| !word.is_empty()).collect();
    let words = if words.is_empty() { stem.clone() } else { words.join(" ") };
    let words: String = words.chars().take(MAX_TITLE_WORDS_CHARS).collect();
    match (file.level, file.id) {
        (Some(level), Some(id)) => format!("KernelBench {level}/{id}: {words}"),
        _ => words,
    }
}

/// Arguments for people: of an object, what it says of itself.
fn readable(arguments: &Value) -> Value {
    match arguments {
        Value::Array(entries) => entries.iter().map(readable).collect(),
        Value::Object(fields) => match fields.get("object") {
            Some(object) => {
                let said = object["text"].as_str().unwrap_or_default();
                let short: String = said.chars().take(MAX_OBJECT_CHARS).collect();
                let cut = if short.len() < said.len() { "..." } else { "" };
                json!({ object["type"].as_str().unwrap_or("object"): format!("{short}{cut}") })
            }
            None => fields.iter().map(|(name, value)| (name.clone(), readable(value))).collect(),
        },
        value => value.clone(),
    }
}

/// What a program has to know beside the reference and the tensors.
fn description(file: &ModelFile, found: &Inspection, wish: &ImportOptions) -> String {
    let mut text = format!(
        "The model of `{}`: its class `Model` is built with the arguments {}, and called in {} without gradients.",
        file.label(),
        readable(&found.init),
        if wish.training { "training mode, unless it says otherwise itself," } else { "evaluation mode" }
    );
    if wish.form == CandidateForm::Native && !found.params.is_empty() {
        text.push_str(" Weights are the model's parameters and buffers");
        let renamed: Vec<String> = found
            .params
            .iter()
            .filter_map(|param| Some((param, param.state.as_ref()?)))
            .filter(|(param, state)| param.name != **state)
            .take(32)
            .map(|(param, state)| format!("`{}` is `{state}`", param.name))
            .collect();
        if renamed.is_empty() {
            text.push('.');
        } else {
            let _ = write!(text, ": {}.", renamed.join(", "));
        }
    }
    if !found.constants.is_empty() {
        let names: Vec<String> = found.constants.iter().take(32).map(|name| format!("`{name}`")).collect();
        let _ = write!(text, " Buffers that the model computes are not handed over: {}.", names.join(", "));
    }
    for (tensor, kind) in &found.types {
        let _ = write!(text, " `{tensor}` is of the type {kind} in the model");
        text.push_str(if wish.form == CandidateForm::Native { ", and handed over as i32." } else { "." });
    }
    for note in found.notes.iter().filter(|note| note.contains("is no tensor")) {
        let _ = write!(text, " Of its arguments, {}.", one_line(note));
    }
    text
}

fn drawn(distribution: &Distribution) -> String {
    match distribution {
        Distribution::Normal { mean, std } => format!("normal with mean {mean} and deviation {std}"),
        Distribution::Uniform { low, high } => format!("uniform from {low} to {high}"),
        Distribution::Steps { low, high, step } => format!("from {low} in steps of {step}, below {high}"),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn file() -> ModelFile {
        ModelFile { level: Some(2), id: Some(7), stem: "7_Conv_Scale_".to_owned(), path: PathBuf::new() }
    }

    fn found() -> Inspection {
        let tensor = |name: &str, dtype: &str| {
            json!({"name": name, "dtype": dtype, "shape": [2, 3], "origin": "torch.rand",
                   "distribution": {"kind": "uniform", "low": 0.0, "high": 1.0}})
        };
        let mut weight = tensor("conv_weight", "f32");
        weight["state"] = json!("conv.weight");
        serde_json::from_value(json!({
            "init": [3, {"tuple": [1, 1]}], "call": [{"input": "x"}, {"value": 2.5}, {"input": "labels"}],
            "types": {"labels": "int64"}, "inputs": [tensor("x", "f32"), tensor("labels", "i32")], "params": [weight],
            "outputs": [tensor("output", "f32")],
            "operators": [{"name": "mm", "class": "matmul", "flops": 36.0, "bytes": 72.0, "inputs": [[2, 3]], "outputs": [[2, 3]],
                           "count": 1}],
            "flops": 36.0, "bytes": 96.0, "moved_bytes": 72.0, "problems": [{"code": "random_forward", "message": "it draws"}],
            "constants": ["mask"], "notes": ["`s` is no tensor: it is always 2.5"], "torch": "2.9.0",
        }))
        .unwrap()
    }

    fn wish(form: CandidateForm) -> ImportOptions {
        ImportOptions { target: Target::Cuda, form, half: false, training: true, origin: Some("somewhere".to_owned()) }
    }

    #[test]
    fn what_is_written_is_read_back_as_the_same_task() {
        for form in [CandidateForm::Native, CandidateForm::Torch] {
            let (file, found, wish) = (file(), found(), wish(form));
            let spec = spec(&file, &found, &wish);
            let text = text(&spec, &file, &found, &wish).unwrap();
            assert_eq!(parse_spec(&text, "task.toml").unwrap(), spec);
            assert_eq!(spec.bytes, Some(72.0), "what need not be moved does not count");
            assert!(
                text.contains("# Written by `nightshift import kernelbench` from level2/7_Conv_Scale_.py of somewhere")
            );
            assert!(text.contains("#   x: uniform from 0 to 1, after torch.rand"), "{text}");
            let torch = spec.torch.unwrap();
            assert_eq!((torch.state, torch.problems.len()), (vec!["conv.weight".to_owned()], 1));
            assert_eq!(torch.constants, ["mask"]);
        }
    }

    #[test]
    fn people_are_told_what_an_object_says_of_itself() {
        let object =
            |text: &str| json!({"object": {"type": "transformers.GPT2Config", "text": text, "pickle": "gASV"}});
        let shown = readable(&json!(["gpt2", object("layers: 12"), {"dict": {"inner": object(&"x".repeat(999))}}]));
        assert_eq!(shown[1], json!({"transformers.GPT2Config": "layers: 12"}));
        let long = shown[2]["dict"]["inner"]["transformers.GPT2Config"].as_str().unwrap().len();
        assert_eq!((&shown[0], long), (&json!("gpt2"), MAX_OBJECT_CHARS + 3));
        let found = Inspection { init: json!([object("layers: 12")]), ..found() };
        let told = description(&file(), &found, &wish(CandidateForm::Native));
        assert!(told.contains("layers: 12") && !told.contains("gASV"), "{told}");
        let spec = spec(&file(), &found, &wish(CandidateForm::Native));
        assert!(spec.torch.unwrap().init.contains("gASV"));
    }

    #[test]
    fn names_are_short_and_plain() {
        assert_eq!(name(&file()), "kb-l2-7-conv-scale");
        let long = ModelFile { level: None, stem: "A".repeat(99), ..file() };
        assert_eq!(name(&long).len(), MAX_NAME_CHARS);
        assert_eq!(title(&file()), "KernelBench 2/7: Conv Scale");
        assert_eq!(title(&ModelFile { stem: "a_".repeat(300), ..file() }).len(), "KernelBench 2/7: ".len() + 160);
        let hostile = ModelFile { level: None, stem: "x\nlibraries = []\n#\u{1b}[2J".to_owned(), ..file() };
        assert!([title(&hostile), hostile.label()].iter().all(|text| !text.contains(char::is_control)));
    }

    #[test]
    fn a_native_program_is_told_what_its_weights_are() {
        let text = description(&file(), &found(), &wish(CandidateForm::Native));
        assert!(text.contains("`conv_weight` is `conv.weight`") && text.contains("handed over as i32"), "{text}");
        assert!(text.contains("always 2.5"), "{text}");
        assert!(text.contains("not handed over: `mask`."), "{text}");
    }
}
