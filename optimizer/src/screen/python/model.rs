//! The class that a program has to define, and what it may not be made from.

use nightshift_protocol::verdict::{Finding, Severity};
use tree_sitter::Node;

use super::super::facts::{Place, line_of, text, walk};
use super::super::finding;
use super::Program;
use super::paths::is_parameter;

/// Methods by which a class stands between `PyTorch` and its callers.
const INTERCEPTING: [&str; 2] = ["__torch_function__", "__torch_dispatch__"];

/// A class of the program.
struct Class {
    name: String,
    /// As written, or as dotted paths where they are imported.
    bases: Vec<String>,
    has_forward: bool,
    line: u32,
}

/// Whether there is a `ModelNew` as it has to be: asked only of a file that can be read.
pub(super) fn required(program: &Program<'_>, found: &mut Vec<Finding>) {
    model_new(&classes(program), found);
}

pub(super) fn findings(program: &Program<'_>, found: &mut Vec<Finding>) {
    for class in &classes(program) {
        if class.bases.iter().any(|base| matches!(base.as_str(), "torch.Tensor" | "torch.nn.Parameter")) {
            let message = format!("`{}` is a tensor of its own making, which may put work off", class.name);
            found.push(finding("tensor_subclass", Severity::Violation, message, class.line));
        }
    }
    walk(program.tree.root_node(), |place| {
        let name = text(place.node, program.source);
        match place.node.kind() {
            "identifier" if name == "Model" && !is_own(program, place) => {
                let message = "`Model` is the reference: a program neither uses it nor has a class of that name";
                found.push(finding("uses_reference", Severity::Violation, message.to_owned(), place.line()));
            }
            "function_definition" => defined(program, place.node, found),
            _ => {}
        }
    });
}

/// Whether the name is the program's: that of an argument, an attribute or a parameter.
fn is_own(program: &Program<'_>, place: &Place<'_, '_>) -> bool {
    if is_parameter(place, program.source) {
        return true;
    }
    match place.parent().map(|parent| parent.kind()) {
        Some("parameters" | "typed_parameter") => true,
        Some("default_parameter" | "typed_default_parameter" | "keyword_argument") => place.field == Some("name"),
        Some("attribute") => place.field == Some("attribute"),
        _ => false,
    }
}

fn classes(program: &Program<'_>) -> Vec<Class> {
    let mut classes = Vec::new();
    walk(program.tree.root_node(), |place| {
        if place.node.kind() != "class_definition" {
            return;
        }
        let Some(name) = place.node.child_by_field_name("name") else { return };
        let bases = place.node.child_by_field_name("superclasses").map_or_else(Vec::new, |list| {
            let mut cursor = list.walk();
            list.named_children(&mut cursor)
                .filter(|base| base.kind() != "keyword_argument")
                .map(|base| {
                    let written = || text(base, program.source).to_owned();
                    program.paths.of(base, program.source).unwrap_or_else(written)
                })
                .collect()
        });
        classes.push(Class {
            name: text(name, program.source).to_owned(),
            bases,
            has_forward: methods(place.node, program.source).any(|name| name == "forward"),
            line: line_of(place.node),
        });
    });
    classes
}

/// Names of the functions that stand directly in a class.
fn methods<'a>(class: Node<'a>, source: &'a str) -> impl Iterator<Item = &'a str> {
    let body = class.child_by_field_name("body");
    let count = body.map_or(0, |body| u32::try_from(body.named_child_count()).unwrap_or(u32::MAX));
    (0..count).filter_map(move |index| {
        let child = body?.named_child(index)?;
        let function =
            if child.kind() == "decorated_definition" { child.child_by_field_name("definition")? } else { child };
        let is_function = function.kind() == "function_definition";
        is_function.then(|| function.child_by_field_name("name").map(|name| text(name, source)))?
    })
}

/// `ModelNew` is a module with a `forward`, of its own or of another class of the file.
fn model_new(classes: &[Class], found: &mut Vec<Finding>) {
    let Some(class) = classes.iter().rev().find(|class| class.name == "ModelNew") else {
        let message = "there is no class `ModelNew`".to_owned();
        found.push(finding("no_model_new", Severity::Violation, message, 1));
        return;
    };
    let (mut is_module, mut has_forward) = (false, false);
    let mut open = vec![class];
    // A class that is its own base leads nowhere: there are no more steps than classes.
    for _ in 0..=classes.len() {
        let Some(next) = open.pop() else { break };
        has_forward |= next.has_forward;
        is_module |= next.bases.iter().any(|base| base.starts_with("torch.nn."));
        open.extend(classes.iter().filter(|other| next.bases.contains(&other.name)));
    }
    if !is_module {
        let message = "`ModelNew` is no `torch.nn.Module`".to_owned();
        found.push(finding("no_model_new", Severity::Violation, message, class.line));
    } else if !has_forward {
        let message = "`ModelNew` has no `forward` of its own".to_owned();
        found.push(finding("no_model_new", Severity::Violation, message, class.line));
    }
}

fn defined(program: &Program<'_>, function: Node<'_>, found: &mut Vec<Finding>) {
    let name = function.child_by_field_name("name").map_or("", |name| text(name, program.source));
    let line = line_of(function);
    if INTERCEPTING.contains(&name) {
        let message = format!("`{name}` stands between PyTorch and its callers");
        found.push(finding("intercepts", Severity::Violation, message, line));
    }
    if matches!(name, "get_inputs" | "get_init_inputs") {
        let message = format!("`{name}` is the reference's: inputs come from there, and this one is never called");
        found.push(finding("uses_reference", Severity::Note, message, line));
    }
}
