//! C++ and CUDA in the texts of a program, and the calls that build them.

use std::collections::BTreeSet;

use nightshift_protocol::task::{CudaLibrary, Target};
use nightshift_protocol::verdict::{Finding, Severity};
use tree_sitter::{Node, Tree};

use super::super::facts::{line_of, text, walk};
use super::super::{finding, screen, strip_comments_and_strings};
use super::Program;
use super::paths::literal;

/// What builds sources that stand in the program.
const BUILDER: &str = "torch.utils.cpp_extension.load_inline";
/// Signs that a text is C++ or CUDA.
const SIGNS: [&str; 6] = ["#include", "__global__", "__device__", "torch::Tensor", "at::Tensor", "PYBIND11_MODULE"];
/// Folders of headers that an extension is made with.
const TORCH_HEADERS: [&str; 6] = ["torch/", "ATen/", "c10/", "pybind11/", "cutlass/", "cute/"];
/// Arguments that hold sources.
const SOURCES: [&str; 2] = ["cpp_sources", "cuda_sources"];
/// Arguments that hold what compiler and linker are told.
const FLAGS: [&str; 3] = ["extra_cflags", "extra_cuda_cflags", "extra_ldflags"];
/// Flags by which they read other files than the sources, or run something else.
const READING_FLAGS: [&str; 9] =
    ["-include", "--include", "-imacros", "-I", "-isystem", "-iquote", "-fplugin", "-B", "@"];
/// Arguments that reach out of the program.
const REACHING_OUT: [&str; 3] = ["build_directory", "extra_include_paths", "is_standalone"];

pub(super) fn findings(program: &Program<'_>, found: &mut Vec<Finding>) {
    walk(program.tree.root_node(), |place| match place.node.kind() {
        "string_content" if is_code(text(place.node, program.source)) => {
            screened(text(place.node, program.source), line_of(place.node), found);
        }
        "call" => {
            let function = place.node.child_by_field_name("function");
            if function.and_then(|function| program.paths.of(function, program.source)).as_deref() == Some(BUILDER) {
                built(program, place.node, found);
            }
        }
        _ => {}
    });
}

fn is_code(content: &str) -> bool {
    SIGNS.iter().any(|sign| content.contains(sign))
}

/// Streams that the caller does not know of.
const POOLED_STREAMS: [&str; 2] = ["getStreamFromPool", "getStreamFromExternal"];

/// What the screening of native programs finds, at the lines of this file.
fn screened(content: &str, first_line: u32, found: &mut Vec<Finding>) {
    let libraries: BTreeSet<CudaLibrary> = CudaLibrary::ALL.into_iter().collect();
    for (line, code) in (first_line..).zip(strip_comments_and_strings(content).lines()) {
        if let Some(name) = POOLED_STREAMS.iter().find(|name| code.contains(*name)) {
            let message = format!("`{name}`: the current stream has to wait for what is queued there");
            found.push(finding("own_stream", Severity::Warning, message, line));
        }
    }
    for mut finding in screen(content, Target::Cuda, &libraries) {
        let place = finding.line.map_or(0, |line| line.saturating_sub(1));
        let line = usize::try_from(place).ok().and_then(|at| content.lines().nth(at)).unwrap_or_default();
        let is_torch_header = finding.code == "forbidden_include"
            && line.split(['<', '"']).nth(1).is_some_and(|name| TORCH_HEADERS.iter().any(|h| name.starts_with(h)));
        if !is_torch_header {
            finding.line = finding.line.map(|_| first_line.saturating_add(place));
            found.push(finding);
        }
    }
}

/// Sources are texts of the program, and nothing else goes into the build.
fn built(program: &Program<'_>, call: Node<'_>, found: &mut Vec<Finding>) {
    let Some(arguments) = call.child_by_field_name("arguments") else { return };
    let mut cursor = arguments.walk();
    let mut position = 0;
    for argument in arguments.named_children(&mut cursor).filter(|child| child.kind() != "comment") {
        if matches!(argument.kind(), "dictionary_splat" | "list_splat") {
            let message = "arguments of `load_inline` that are unpacked hide what is built".to_owned();
            found.push(finding("hidden_source", Severity::Violation, message, line_of(argument)));
            continue;
        }
        let (name, value) = if argument.kind() == "keyword_argument" {
            let name = argument.child_by_field_name("name").map_or("", |name| text(name, program.source));
            (name, argument.child_by_field_name("value"))
        } else {
            position += 1;
            let by_position = ["name", SOURCES[0], SOURCES[1], "functions"];
            (by_position.get(position - 1).copied().unwrap_or(""), Some(argument))
        };
        if SOURCES.contains(&name) && !value.is_some_and(|value| is_readable(program, value, 0)) {
            let message = format!("`{name}` is no text of this file: what is built cannot be read");
            found.push(finding("hidden_source", Severity::Violation, message, line_of(argument)));
        }
        if FLAGS.contains(&name)
            && let Some(value) = value
        {
            flags(program, name, value, found);
        }
        if REACHING_OUT.contains(&name) {
            let message = format!("`{name}` reaches out of the program: folders are the caller's");
            found.push(finding("build", Severity::Violation, message, line_of(argument)));
        }
    }
}

/// Flags are written here, and let nothing else be read.
fn flags(program: &Program<'_>, name: &str, value: Node<'_>, found: &mut Vec<Finding>) {
    let line = line_of(value);
    if !is_readable(program, value, 0) {
        let message = format!("`{name}` is no text of this file: what is built depends on what cannot be read");
        found.push(finding("hidden_source", Severity::Violation, message, line));
    }
    let mut seen = Vec::new();
    texts(program, value, 0, &mut seen);
    let reading = |flag: &&String| READING_FLAGS.iter().any(|reading| flag.trim_start().starts_with(reading));
    if let Some(flag) = seen.iter().find(reading) {
        let message = format!("`{flag}` in `{name}` lets the compiler read other files than the sources");
        found.push(finding("build", Severity::Violation, message, line));
    }
}

/// The texts in an expression, also by the names that they have.
fn texts(program: &Program<'_>, node: Node<'_>, depth: u32, seen: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    if let Some(text) = literal(node, program.source) {
        seen.push(text);
    } else if node.kind() == "identifier" {
        for value in values_of(program, text(node, program.source)) {
            texts(program, value, depth + 1, seen);
        }
    } else {
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            texts(program, child, depth + 1, seen);
        }
    }
}

/// Names that stand for names, in a row.
const MAX_DEPTH: u32 = 16;

/// Whether an expression is made of literal texts alone: written here, or at the top of the file under a name.
fn is_readable(program: &Program<'_>, node: Node<'_>, depth: u32) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    let parts = |node: Node<'_>| {
        let mut cursor = node.walk();
        node.named_children(&mut cursor)
            .filter(|child| child.kind() != "comment")
            .all(|child| is_readable(program, child, depth + 1))
    };
    match node.kind() {
        "string" => literal(node, program.source).is_some(),
        "none" => true,
        "concatenated_string" | "list" | "tuple" | "parenthesized_expression" | "binary_operator" => parts(node),
        "identifier" => {
            let name = text(node, program.source);
            let values = values_of(program, name);
            !is_bound_otherwise(program, name)
                && !values.is_empty()
                && values.into_iter().all(|value| is_readable(program, value, depth + 1))
        }
        _ => false,
    }
}

/// Whether a name is given a value by anything but an assignment to it alone: by a loop, an unpacking and the like.
fn is_bound_otherwise(program: &Program<'_>, name: &str) -> bool {
    let mut is_so = false;
    walk(program.tree.root_node(), |place| {
        let node = place.node;
        let targets = match node.kind() {
            "for_statement" | "for_in_clause" => node.child_by_field_name("left"),
            "named_expression" => node.child_by_field_name("name"),
            "as_pattern_target" | "delete_statement" | "global_statement" | "nonlocal_statement" => Some(node),
            "assignment" | "augmented_assignment" => node
                .child_by_field_name("left")
                .filter(|left| left.kind().ends_with("pattern") || left.kind() == "pattern_list"),
            _ => None,
        };
        if let Some(targets) = targets {
            walk(targets, |inner| {
                is_so |= inner.node.kind() == "identifier" && text(inner.node, program.source) == name;
            });
        }
    });
    is_so
}

/// Everything that is assigned to a name, anywhere.
fn values_of<'a>(program: &Program<'a>, name: &str) -> Vec<Node<'a>> {
    let mut values = Vec::new();
    walk(program.tree.root_node(), |place| {
        let is_it = matches!(place.node.kind(), "assignment" | "augmented_assignment")
            && place.node.child_by_field_name("left").is_some_and(|left| text(left, program.source) == name);
        if is_it {
            values.extend(place.node.child_by_field_name("right"));
        }
    });
    values
}

/// Without comments and texts; C++ and CUDA stay, without theirs.
pub(super) fn stripped(tree: &Tree, source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    walk(tree.root_node(), |place| {
        let node = place.node;
        let range = node.byte_range();
        if range.start < at || !matches!(node.kind(), "comment" | "string") {
            return;
        }
        out.push_str(source.get(at..range.start).unwrap_or(""));
        at = range.end;
        if node.kind() == "string" {
            let content = text(node, source);
            if let Some(code) = literal(node, source).filter(|content| is_code(content)) {
                out.push_str("\"\"\"");
                // The text must not be left before its end.
                out.push_str(&strip_comments_and_strings(&code).replace("\"\"\"", "\"\""));
                out.push_str("\"\"\"");
            } else {
                out.push_str("\"\"");
                out.extend(content.chars().filter(|c| *c == '\n'));
            }
        }
    });
    out.push_str(source.get(at..).unwrap_or(""));
    out
}
