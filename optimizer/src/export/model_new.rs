//! `ModelNew`: one file of Python that holds the program and calls it.

use nightshift_protocol::task::{Target, TaskSpec};
use serde_json::{Value, json};

use super::template::fill;
use super::{ExportError, Program, contract, flags, quote};
use crate::prompt::CONTRACT;

/// The file, with places to be filled.
const TEMPLATE: &str = include_str!("model_new.py");

pub(super) fn text(program: &Program<'_>) -> Result<String, ExportError> {
    let spec = &program.task.spec;
    let target = program.target();
    let doubt = program.doubt();
    let mut about = vec!["ModelNew, made by Nightshift.".to_owned()];
    about.extend(doubt.iter().map(|doubt| format!("WARNING: {doubt}")));
    about.extend(program.facts());
    let about: Vec<String> = about.iter().map(|line| format!("# {line}")).collect();
    let warning = doubt.map_or_else(String::new, |doubt| {
        let said = quote::python(&format!("{}: {doubt}", spec.name));
        format!("\nimport warnings  # noqa: E402\n\nwarnings.warn({said}, stacklevel=2)\n")
    });
    let arch = program.arch().filter(|_| target == Target::Cuda);
    let capability = spec.min_compute_capability.map(|least| format!("({}, {})", least.major, least.minor));
    let none = || "None".to_owned();
    let filled: [(&str, String); 13] = [
        ("@@ABOUT@@", about.join("\n")),
        ("@@TASK@@", quote::python(&spec.name)),
        ("@@TARGET@@", quote::python(target.as_str())),
        ("@@LIBRARIES@@", strings(&program.linked())),
        ("@@ARCH@@", arch.map_or_else(none, quote::python)),
        ("@@MIN_CAPABILITY@@", capability.unwrap_or_else(none)),
        ("@@FLAGS@@", strings(flags(target))),
        ("@@CONTRACT@@", contract::python(&program.shapes()?)),
        ("@@MODEL@@", model(spec)),
        ("@@REFERENCE@@", quote::python_lines(if spec.torch.is_some() { &program.task.reference_source } else { "" })),
        ("@@WARNING@@", warning),
        ("@@HEADER@@", quote::python_lines(CONTRACT)),
        ("@@SOURCE@@", quote::python_lines(program.source)),
    ];
    Ok(fill(TEMPLATE, &filled))
}

/// What the file has to know of a model of `PyTorch`, as a literal.
fn model(spec: &TaskSpec) -> String {
    let Some(torch) = &spec.torch else { return "None".to_owned() };
    let state: Vec<&str> = torch.state.iter().map(String::as_str).collect();
    let types: Vec<String> =
        torch.types.iter().map(|(name, kind)| format!("{}: {}", quote::python(name), quote::python(kind))).collect();
    let parts = spec.inputs.iter().map(|input| json!({"input": input.name})).collect::<Vec<Value>>();
    let parts = torch.call.as_deref().and_then(|call| serde_json::from_str(call).ok()).unwrap_or(parts);
    // What is no tensor has to be what the program was checked with.
    let call: Vec<String> = parts
        .iter()
        .map(|part| {
            if let Some(name) = part.get("input").and_then(Value::as_str) {
                return format!("{{\"input\": {}}}", quote::python(name));
            }
            let value = part.get("value").unwrap_or(&Value::Null).to_string();
            format!("{{\"value\": json.loads({})}}", quote::python(&value))
        })
        .collect();
    format!("{{\"state\": {}, \"call\": [{}], \"types\": {{{}}}}}", strings(&state), call.join(", "), types.join(", "))
}

fn strings(texts: &[&str]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote::python(text)).collect();
    format!("[{}]", quoted.join(", "))
}
