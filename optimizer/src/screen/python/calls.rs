//! What a program names, calls and assigns to.

use nightshift_protocol::verdict::{Finding, Severity};
use tree_sitter::Node;

use super::super::facts::{Place, line_of, text, walk};
use super::super::finding;
use super::Program;
use super::names::{self, Meaning};
use super::paths::{is_bound, is_parameter, literal};

pub(super) fn findings(program: &Program<'_>, found: &mut Vec<Finding>) {
    walk(program.tree.root_node(), |place| match place.node.kind() {
        "identifier" | "attribute" => named(program, place, found),
        "call" => called(program, place.node, found),
        "assignment" | "augmented_assignment" => assigned(program, place.node, found),
        "delete_statement" => assigned_to(program, place.node, found),
        // The grammar takes `type(x).sum = f` for the declaration of a type.
        "type_alias_statement" => {
            let target = text(place.node, program.source).strip_prefix("type").unwrap_or_default();
            if target.trim_start().starts_with('(') {
                found.push(patched(program, place.node));
            }
        }
        "try_statement" => fallback(program, place.node, found),
        _ => {}
    });
}

pub(super) fn said(meaning: Meaning, name: &str, line: u32) -> Finding {
    finding(meaning.code, meaning.severity, format!("`{name}` {}", meaning.why), line)
}

/// A name, or the whole of a dotted one, that stands for something imported.
fn named(program: &Program<'_>, place: &Place<'_, '_>, found: &mut Vec<Finding>) {
    let Some(parent) = place.parent() else { return };
    let is_inner = parent.kind() == "attribute" && place.field == Some("object");
    let is_name_of = matches!(parent.kind(), "keyword_argument" | "parameters" | "dotted_name" | "aliased_import")
        && place.field != Some("value");
    if place.node.kind() == "attribute" {
        let attribute = place.node.child_by_field_name("attribute").map_or("", |name| text(name, program.source));
        found.extend(names::of_attribute(attribute).map(|meaning| said(meaning, attribute, place.line())));
        let object = place.node.child_by_field_name("object");
        if attribute == "__dict__" && object.is_some_and(|object| is_foreign(program, object)) {
            found.push(patched(program, place.node));
        }
    }
    if is_inner || is_name_of || place.field == Some("attribute") {
        return;
    }
    if let Some(path) = program.paths.of(place.node, program.source) {
        found.extend(names::of_path(&path).map(|meaning| said(meaning, &path, place.line())));
        if path == "contextlib.suppress" {
            let message = "`contextlib.suppress` hides that a kernel fails".to_owned();
            found.push(finding("fallback", Severity::Violation, message, place.line()));
        }
    } else if place.node.kind() == "identifier" {
        let name = text(place.node, program.source);
        // An alias of such a function is as good as the function.
        if !program.paths.defines(name) && !is_bound(place) && !is_parameter(place, program.source) {
            found.extend(names::of_built_in(name).map(|meaning| said(meaning, name, place.line())));
            let is_called = parent.kind() == "call" && place.field == Some("function");
            if matches!(name, "getattr" | "setattr" | "delattr") && !is_called {
                let message = format!("`{name}` is handed on, which hides what it is done to");
                found.push(finding("dynamic_code", Severity::Violation, message, place.line()));
            }
        }
    }
}

fn called(program: &Program<'_>, node: Node<'_>, found: &mut Vec<Finding>) {
    let (Some(function), Some(arguments)) =
        (node.child_by_field_name("function"), node.child_by_field_name("arguments"))
    else {
        return;
    };
    let first = arguments.named_child(0);
    // `"o\x73"` is a computed name, too.
    let attribute = arguments.named_child(1).and_then(|name| literal(name, program.source));
    let attribute = attribute.filter(|name| !name.contains('\\'));
    match text(function, program.source) {
        "getattr" if attribute.is_none() => {
            let message = "`getattr` with a name that is computed hides what is called".to_owned();
            found.push(finding("dynamic_code", Severity::Violation, message, line_of(node)));
        }
        "getattr" => {
            let name = attribute.as_deref().unwrap_or_default();
            found.extend(names::of_attribute(name).map(|meaning| said(meaning, name, line_of(node))));
        }
        "setattr" | "delattr" => {
            let Some(first) = first else { return };
            if is_foreign(program, first) {
                found.push(patched(program, first));
            }
        }
        // `torch.cuda.__setattr__(...)`, `object.__setattr__(torch.cuda, ...)`
        name if name.ends_with(".__setattr__") || name.ends_with(".__delattr__") => {
            let object = function.child_by_field_name("object");
            for changed in object.into_iter().chain(first).filter(|node| is_foreign(program, *node)) {
                found.push(patched(program, changed));
            }
        }
        _ => {
            // The call itself may be one: `getattr(torch, "compile")(f)`.
            if function.kind() == "call"
                && let Some(path) = program.paths.of(function, program.source)
            {
                found.extend(names::of_path(&path).map(|meaning| said(meaning, &path, line_of(node))));
            }
        }
    }
}

fn assigned(program: &Program<'_>, node: Node<'_>, found: &mut Vec<Finding>) {
    if let Some(left) = node.child_by_field_name("left") {
        assigned_to(program, left, found);
    }
}

/// Attributes and items of what is imported, anywhere in a target.
fn assigned_to(program: &Program<'_>, target: Node<'_>, found: &mut Vec<Finding>) {
    let object = match target.kind() {
        "attribute" => target.child_by_field_name("object"),
        "subscript" => target.child_by_field_name("value"),
        "pattern_list" | "tuple_pattern" | "list_pattern" | "delete_statement" | "expression_list" | "tuple"
        | "list" => {
            let mut cursor = target.walk();
            for part in target.named_children(&mut cursor) {
                assigned_to(program, part, found);
            }
            None
        }
        _ => None,
    };
    let attribute = target.child_by_field_name("attribute").map_or("", |name| text(name, program.source));
    let is_class =
        attribute == "__class__" || object.is_some_and(|object| text(object, program.source).starts_with("type("));
    if is_class || object.is_some_and(|object| is_foreign(program, object)) {
        found.push(patched(program, target));
    }
}

/// Whether an expression is, or is part of, something imported.
fn is_foreign(program: &Program<'_>, node: Node<'_>) -> bool {
    let mut node = node;
    loop {
        if program.paths.of(node, program.source).is_some() {
            return true;
        }
        let inner = match node.kind() {
            "attribute" => node.child_by_field_name("object"),
            "subscript" => node.child_by_field_name("value"),
            _ => None,
        };
        match inner {
            Some(inner) => node = inner,
            None => return false,
        }
    }
}

fn patched(program: &Program<'_>, target: Node<'_>) -> Finding {
    let path = program.paths.of(target, program.source);
    let name = path.unwrap_or_else(|| text(target, program.source).chars().take(80).collect());
    let is_switch = name.starts_with("torch.backends.");
    let (code, why) = if is_switch {
        ("global_state", "is a switch for everybody in the process")
    } else {
        ("patches", "belongs to what is imported, and is changed")
    };
    finding(code, Severity::Violation, format!("`{name}` {why}"), line_of(target))
}

/// What catches an exception and goes on has a second path.
fn fallback(program: &Program<'_>, node: Node<'_>, found: &mut Vec<Finding>) {
    let mut cursor = node.walk();
    for clause in node.named_children(&mut cursor) {
        if !matches!(clause.kind(), "except_clause" | "except_group_clause") {
            continue;
        }
        let mut inner = clause.walk();
        let block = clause.named_children(&mut inner).filter(|child| child.kind() == "block").last();
        let last = block.and_then(|block| {
            let mut inside = block.walk();
            block.named_children(&mut inside).filter(|child| child.kind() != "comment").last()
        });
        if last.is_none_or(|last| last.kind() != "raise_statement") {
            let what = text(clause, program.source).lines().next().unwrap_or_default().trim_end_matches(':');
            let what: String = what.chars().take(60).collect();
            let message = format!("`{what}` goes on where a kernel fails: there is no second path");
            found.push(finding("fallback", Severity::Violation, message, line_of(clause)));
        }
    }
}
