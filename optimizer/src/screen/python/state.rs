//! What is kept from one call for the next, and what depends on which tensor it is instead of what is in it.

use nightshift_protocol::verdict::{Finding, Severity};
use tree_sitter::Node;

use super::super::facts::{Place, text, walk};
use super::super::finding;
use super::Program;

/// Decorators that remember results.
const REMEMBERING: [&str; 3] = ["functools.lru_cache", "functools.cache", "functools.cached_property"];
/// Calls that tell which tensor it is.
const IDENTIFYING: [&str; 3] = ["data_ptr", "_version", "untyped_storage"];
/// Methods that bring values of tensors to the host.
const READING: [&str; 4] = ["item", "tolist", "numpy", "cpu"];

pub(super) fn findings(program: &Program<'_>, found: &mut Vec<Finding>) {
    walk(program.tree.root_node(), |place| match place.node.kind() {
        "assignment" | "augmented_assignment" => kept(program, place, found),
        "global_statement" => {
            let message = "a global name is given a new value by a function, and lasts".to_owned();
            found.push(finding("lasting_state", Severity::Warning, message, place.line()));
        }
        "decorator" => remembered(program, place, found),
        "attribute" => identified(program, place, found),
        "call" => called(program, place, found),
        "function_definition" => unused_kernel(program, place, found),
        _ => {}
    });
}

/// The function around a place, innermost, and whether it is a method that callers call.
fn function_around<'a>(program: &Program<'a>, place: &Place<'_, '_>) -> Option<&'a str> {
    let function = place.ancestors.iter().rev().find(|above| above.kind() == "function_definition")?;
    Some(function.child_by_field_name("name").map_or("", |name| text(name, program.source)))
}

/// Whether a call of the model may come by here: not while it is made, and not in a hook after weights were loaded.
fn is_called(program: &Program<'_>, place: &Place<'_, '_>) -> bool {
    function_around(program, place).is_some_and(|name| {
        name != "__init__" && !name.contains("load") && !name.contains("hook") && !name.contains("prepare")
    })
}

/// The name at the beginning of a target: `self` of `self.cache[key]`.
fn root_of<'a>(program: &Program<'a>, node: Node<'_>) -> &'a str {
    let mut node = node;
    while let Some(inner) = match node.kind() {
        "attribute" => node.child_by_field_name("object"),
        "subscript" => node.child_by_field_name("value"),
        _ => None,
    } {
        node = inner;
    }
    text(node, program.source)
}

fn kept(program: &Program<'_>, place: &Place<'_, '_>, found: &mut Vec<Finding>) {
    let Some(left) = place.node.child_by_field_name("left") else { return };
    if !is_called(program, place) || !matches!(left.kind(), "attribute" | "subscript") {
        return;
    }
    let root = root_of(program, left);
    let lasts = root == "self" || is_global(program, root);
    if lasts && !program.paths.is_imported(root) {
        let what: String = text(left, program.source).chars().take(60).collect();
        let message = format!("`{what}` is set by a call, and lasts: nothing may be kept for the next one");
        found.push(finding("lasting_state", Severity::Warning, message, place.line()));
    }
}

/// Whether a name is assigned outside of every function and class.
fn is_global(program: &Program<'_>, name: &str) -> bool {
    let root = program.tree.root_node();
    let mut cursor = root.walk();
    root.named_children(&mut cursor).any(|statement| {
        let assignment = (statement.kind() == "expression_statement").then(|| statement.named_child(0)).flatten();
        assignment
            .filter(|node| node.kind() == "assignment")
            .and_then(|node| node.child_by_field_name("left"))
            .is_some_and(|left| text(left, program.source) == name)
    })
}

fn remembered(program: &Program<'_>, place: &Place<'_, '_>, found: &mut Vec<Finding>) {
    let Some(mut named) = place.node.named_child(0) else { return };
    if named.kind() == "call"
        && let Some(function) = named.child_by_field_name("function")
    {
        named = function;
    }
    let Some(path) = program.paths.of(named, program.source).filter(|path| REMEMBERING.contains(&path.as_str())) else {
        return;
    };
    let function = place.parent().and_then(|definition| definition.child_by_field_name("definition"));
    let name = function.and_then(|function| function.child_by_field_name("name"));
    let is_method = place.is_within(&["class_definition"]);
    let severity =
        if is_method && path != "functools.cached_property" { Severity::Violation } else { Severity::Warning };
    let name = name.map_or("", |name| text(name, program.source));
    let message = format!("`{path}` remembers what `{name}` gave for earlier arguments");
    found.push(finding("caches_results", severity, message, place.line()));
}

/// The address of a tensor as a key: another content under the same key gives the old result.
fn identified(program: &Program<'_>, place: &Place<'_, '_>, found: &mut Vec<Finding>) {
    let name = place.node.child_by_field_name("attribute").map_or("", |name| text(name, program.source));
    if IDENTIFYING.contains(&name) && is_key(program, place) {
        let message = format!("`{name}` tells which tensor it is, not what is in it, and is used as a key");
        found.push(finding("caches_results", Severity::Violation, message, place.line()));
    }
}

/// Whether a value decides, or selects something that was kept.
fn is_key(program: &Program<'_>, place: &Place<'_, '_>) -> bool {
    let mut below = place.node;
    for above in place.ancestors.iter().rev() {
        match above.kind() {
            "comparison_operator" => return true,
            "subscript" => return above.child_by_field_name("value") != Some(below),
            // `key = (x.data_ptr(), x.shape)`: a name for it says what it is there for.
            "assignment" => {
                let left = above.child_by_field_name("left").map_or("", |left| text(left, program.source));
                return ["key", "cache", "last", "seen", "prev"].iter().any(|word| left.to_lowercase().contains(word));
            }
            "call" => {
                let function = above.child_by_field_name("function").map_or("", |f| text(f, program.source));
                if [".get", ".setdefault", ".pop", "hash"].iter().any(|end| function.ends_with(end)) {
                    return true;
                }
            }
            "function_definition" | "class_definition" => return false,
            _ => {}
        }
        below = *above;
    }
    false
}

fn called(program: &Program<'_>, place: &Place<'_, '_>, found: &mut Vec<Finding>) {
    let Some(function) = place.node.child_by_field_name("function") else { return };
    let name = match function.kind() {
        "attribute" => function.child_by_field_name("attribute").map_or("", |name| text(name, program.source)),
        _ => text(function, program.source),
    };
    if name == "id" && function.kind() == "identifier" && is_key(program, place) {
        let message = "`id` tells which object it is, not what is in it, and is used as a key".to_owned();
        found.push(finding("caches_results", Severity::Violation, message, place.line()));
    }
    if function.kind() == "attribute" && READING.contains(&name) && is_called(program, place) {
        let message = format!("`{name}` brings values to the host in the middle of a call: what depends on them?");
        found.push(finding("looks_at_values", Severity::Warning, message, place.line()));
    }
}

/// A Triton kernel that nothing launches is there for show.
fn unused_kernel(program: &Program<'_>, place: &Place<'_, '_>, found: &mut Vec<Finding>) {
    let Some(parent) = place.parent().filter(|parent| parent.kind() == "decorated_definition") else { return };
    let mut cursor = parent.walk();
    let is_kernel = parent
        .named_children(&mut cursor)
        .filter(|child| child.kind() == "decorator")
        .filter_map(|decorator| program.paths.of(decorator.named_child(0)?, program.source))
        .any(|path| path == "triton.jit");
    let Some(name) = place.node.child_by_field_name("name").filter(|_| is_kernel) else { return };
    let name = text(name, program.source);
    let mut uses = 0;
    walk(program.tree.root_node(), |other| {
        if other.node.kind() == "identifier" && text(other.node, program.source) == name {
            uses += 1;
        }
    });
    if uses < 2 {
        let message = format!("the kernel `{name}` is never launched");
        found.push(finding("unused_kernel", Severity::Warning, message, place.line()));
    }
}
