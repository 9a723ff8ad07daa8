//! The task, as a template sees it.

use nightshift_protocol::gpu_text::significant;
use nightshift_protocol::task::{CandidateForm, ConcreteTensor, Dim, OperatorSpec, ShapeError, TaskBundle, TensorSpec};
use serde::Serialize;

use super::view::MIB;

#[derive(Serialize)]
pub(crate) struct TaskView {
    title: String,
    description: String,
    target: &'static str,
    /// `native` or `torch`.
    form: &'static str,
    /// The language of programs, as the name of a fenced block.
    language: &'static str,
    /// The language of the reference, likewise.
    reference_language: &'static str,
    libraries: Vec<&'static str>,
    tensors: Vec<TensorView>,
    variants: Vec<String>,
    atol: String,
    rtol: String,
    /// None where the tolerance alone decides.
    reference_error_factor: Option<f64>,
    policy: &'static str,
    policy_allows: &'static str,
    /// Whether the policy allows values to be rounded.
    is_rounded: bool,
    operators: Vec<OperatorView>,
    flops: Option<String>,
    bytes: Option<String>,
    memory_mib: u64,
    call_timeout_ms: u64,
    reference_source: String,
}

#[derive(Serialize)]
struct TensorView {
    role: &'static str,
    name: String,
    dtype: &'static str,
    shape: String,
}

#[derive(Serialize)]
struct OperatorView {
    name: String,
    class: String,
    /// What it makes of what, and after which others, where that is known.
    graph: String,
}

impl TaskView {
    pub(crate) fn new(bundle: &TaskBundle) -> Result<Self, ShapeError> {
        let spec = &bundle.spec;
        let shapes = spec.default_shapes()?;
        let of = |role: &'static str, specs: &[TensorSpec], concrete: &[ConcreteTensor]| -> Vec<TensorView> {
            specs
                .iter()
                .zip(concrete)
                .map(|(tensor, concrete)| TensorView {
                    role,
                    name: tensor.name.clone(),
                    dtype: spec.program_dtype(tensor),
                    shape: shape(tensor, concrete),
                })
                .collect()
        };
        let mut tensors = of("input", &spec.inputs, &shapes.inputs);
        tensors.extend(of("weight", &spec.params, &shapes.params));
        tensors.extend(of("output", &spec.outputs, &shapes.outputs));
        let variants = spec
            .variants
            .iter()
            .map(|variant| {
                let dims: Vec<String> =
                    variant.dims.iter().map(|(name, extent)| format!("{name} = {extent}")).collect();
                format!("{}: {}", variant.name, dims.join(", "))
            })
            .collect();
        let tolerance = spec.effective_tolerance();
        Ok(Self {
            title: spec.title.clone(),
            description: spec.description.trim().to_owned(),
            target: spec.target.as_str(),
            form: spec.form.as_str(),
            language: language(spec.form),
            reference_language: if spec.has_python_reference() { "python" } else { language(CandidateForm::Native) },
            libraries: spec.libraries.iter().map(|library| library.as_str()).collect(),
            tensors,
            variants,
            atol: format!("{:e}", tolerance.atol),
            rtol: format!("{:e}", tolerance.rtol),
            reference_error_factor: spec.precision.limits_by_reference().then_some(tolerance.reference_error_factor),
            policy: spec.precision.as_str(),
            policy_allows: spec.precision.allows(),
            is_rounded: spec.precision.dropped_bits().is_some(),
            operators: spec
                .operators
                .iter()
                .map(|operator| OperatorView {
                    name: operator.name.clone(),
                    class: operator.class.clone(),
                    graph: graph(operator),
                })
                .collect(),
            flops: spec.flops.map(significant),
            bytes: spec.bytes.map(significant),
            memory_mib: spec.limits.memory_bytes / MIB,
            call_timeout_ms: spec.limits.call_timeout_ms,
            reference_source: bundle.reference_source.clone(),
        })
    }
}

/// What follows an operator's name: its shapes, and what it reads. Nothing where no shape is known.
fn graph(operator: &OperatorSpec) -> String {
    if operator.inputs.is_empty() && operator.outputs.is_empty() {
        return String::new();
    }
    let shapes = |shapes: &[Vec<u64>]| shapes.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>().join(", ");
    let mut text = format!(": {} to {}", shapes(&operator.inputs), shapes(&operator.outputs));
    if !operator.after.is_empty() {
        let names: Vec<String> = operator.after.iter().map(|name| format!("`{name}`")).collect();
        text.push_str(", reads what ");
        text.push_str(&names.join(", "));
        text.push_str(" made");
    }
    text
}

/// The name of a fenced block that holds a program of this form.
pub(super) fn language(form: CandidateForm) -> &'static str {
    match form {
        CandidateForm::Native => "cpp",
        CandidateForm::Torch => "python",
    }
}

fn shape(spec: &TensorSpec, concrete: &ConcreteTensor) -> String {
    let extents: Vec<String> = spec
        .shape
        .iter()
        .zip(&concrete.shape)
        .map(|(dim, extent)| match dim {
            Dim::Fixed(_) => extent.to_string(),
            Dim::Named(name) => format!("{name} = {extent}"),
        })
        .collect();
    format!("[{}]", extents.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_says_what_it_makes_of_what() {
        let known = OperatorSpec {
            inputs: vec![vec![8, 32], vec![16, 32]],
            outputs: vec![vec![8, 16]],
            after: vec!["relu".to_owned(), "mm".to_owned()],
            ..OperatorSpec::default()
        };
        assert_eq!(graph(&known), ": [8, 32], [16, 32] to [8, 16], reads what `relu`, `mm` made");
        assert_eq!(graph(&OperatorSpec { after: Vec::new(), ..known }), ": [8, 32], [16, 32] to [8, 16]");
        assert_eq!(graph(&OperatorSpec::default()), "");
    }
}
