//! The rules over the syntax tree.

use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::{Finding, Severity};
use tree_sitter::Node;

use super::facts::{
    Facts, Place, declaration_of, declares_variable, is_foreign, is_local, is_prototype, line_of, text, walk,
};
use super::names::{self, Ban};
use super::{Setting, assembly, dialect, finding, names_cuda};

/// Containers that remember results.
const REMEMBERING: [&str; 4] = ["map", "unordered_map", "multimap", "unordered_multimap"];

/// Everything that the tree shows.
pub(super) fn findings(root: Node<'_>, source: &str, facts: &Facts, setting: &Setting<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut unreadable = None;
    walk(root, |place| {
        let node = place.node;
        if node.is_error() || node.is_missing() {
            unreadable.get_or_insert(line_of(node));
        }
        match node.kind() {
            "identifier" => identifier(place, source, facts, setting, &mut found),
            "type_identifier" | "namespace_identifier" => std_name(place, source, facts, &mut found),
            "qualified_identifier" => qualified(place, source, facts, &mut found),
            "namespace_alias_definition" => alias(place, source, facts, &mut found),
            "attribute_specifier" | "attribute_declaration" => attributes(text(node, source), place.line(), &mut found),
            "gnu_asm_expression" => inline_assembly(place, source, setting, &mut found),
            "function_definition" => definition(place, source, &mut found),
            "declaration" => lasting_state(place, source, facts, setting, &mut found),
            "call_expression" => pragma_operator(place, source, &mut found),
            _ => {}
        }
    });
    if let Some(line) = unreadable {
        found.push(finding(
            "unparsed",
            Severity::Note,
            "a part of the source could not be read as C++ and was examined word by word".to_owned(),
            line,
        ));
    }
    found
}

/// The finding that a banned name gives.
pub(super) fn banned(ban: &Ban, name: &str, line: u32) -> Finding {
    graded(ban, Severity::Violation, name, line)
}

/// The finding that a name gives which is banned to this degree.
pub(super) fn graded(ban: &Ban, severity: Severity, name: &str, line: u32) -> Finding {
    finding(ban.code, severity, format!("`{name}` {}", ban.why()), line)
}

/// Whether the place is in a function, or in a lambda, that runs on a device and there alone.
fn is_on_device(place: &Place<'_, '_>, setting: &Setting<'_>) -> bool {
    let heads =
        place.ancestors.iter().filter(|above| matches!(above.kind(), "function_definition" | "lambda_expression"));
    heads.into_iter().any(|function| {
        let end = function.child_by_field_name("body").map_or(function.end_byte(), |body| body.start_byte());
        dialect::is_for_device(setting.written.get(function.start_byte()..end).unwrap_or(""))
    })
}

fn identifier(place: &Place<'_, '_>, source: &str, facts: &Facts, setting: &Setting<'_>, found: &mut Vec<Finding>) {
    let name = text(place.node, source);
    let Some(parent) = place.parent() else { return };
    // Names after `::` are judged as a whole, names in attributes as attributes.
    if place.is_within(&["attribute_specifier", "attribute_declaration", "preproc_params", "using_declaration"])
        || place.is_within(&["qualified_identifier"]) && is_path_segment(place)
    {
        return;
    }
    let on_cuda = setting.target == Target::Cuda;
    if on_cuda
        && let Some(library) = names_cuda::library_of(name, setting.libraries)
        && !facts.is_own(name)
    {
        found.push(names_cuda::not_allowed(name, library, setting.libraries, place.line()));
        return;
    }
    let banned_here = names::global(name).map(|ban| (ban, Severity::Violation));
    let Some((ban, severity)) = banned_here.or_else(|| names_cuda::ban(name).filter(|_| on_cuda)) else {
        std_name(place, source, facts, found);
        return;
    };
    // On a device, `clock` is a register, and waiting a moment between two looks at a flag is polite.
    let severity =
        if on_cuda && ban.code == "clocks" && is_on_device(place, setting) { Severity::Warning } else { severity };
    if names_cuda::ENTRY_POINTS.contains(&name) && asks_for_a_tensor_map(parent, source) {
        return;
    }
    let called = parent.kind() == "call_expression" && place.field == Some("function");
    let own = if called { facts.is_own_call(name) } else { facts.is_own(name) };
    if own || declares_variable(place) && !is_foreign(place, source) {
        return;
    }
    if parent.kind() == "function_declarator" && place.field == Some("declarator") {
        // A definition is judged as such. A prototype of a system function is the way to call it without its header.
        let declaration = declaration_of(place).map_or("", |declaration| declaration.kind());
        if declaration == "declaration" && (!is_local(place) || is_prototype(place)) {
            found.push(graded(ban, severity, name, place.line()));
        }
        return;
    }
    found.push(graded(ban, severity, name, place.line()));
}

/// Whether a call names the function that makes descriptors of tensors: nothing else in the driver has an honest use.
fn asks_for_a_tensor_map(call: Node<'_>, source: &str) -> bool {
    let arguments = call.child_by_field_name("arguments").map_or("", |arguments| text(arguments, source));
    call.kind() == "call_expression" && arguments.trim_start_matches(['(', ' ', '\n']).starts_with("\"cuTensorMap")
}

/// Whether the identifier is a segment of a path and not, for example, an argument of a template in it.
fn is_path_segment(place: &Place<'_, '_>) -> bool {
    let mut above = place.ancestors.iter().rev();
    match above.next().map(Node::kind) {
        Some("qualified_identifier") => true,
        Some("template_function" | "template_type") => {
            place.field == Some("name") && above.next().is_some_and(|parent| parent.kind() == "qualified_identifier")
        }
        _ => false,
    }
}

/// A name of `std` that is used without it.
fn std_name(place: &Place<'_, '_>, source: &str, facts: &Facts, found: &mut Vec<Finding>) {
    let name = text(place.node, source);
    if !facts.uses_std || facts.is_own(name) || declares_variable(place) || is_path_segment_after_scope(place) {
        return;
    }
    if let Some(ban) = names::only_of_std(name) {
        let parent = place.parent().map_or("", |parent| parent.kind());
        if parent != "function_declarator" && parent != "field_expression" && parent != "field_declaration" {
            found.push(banned(ban, name, place.line()));
        }
    }
}

/// In `a::b`, `b` is looked up in `a`; `a` itself is looked up here.
fn is_path_segment_after_scope(place: &Place<'_, '_>) -> bool {
    is_path_segment(place) && place.field != Some("scope")
}

fn qualified(place: &Place<'_, '_>, source: &str, facts: &Facts, found: &mut Vec<Finding>) {
    if place.parent().is_some_and(|parent| parent.kind() == "qualified_identifier") {
        return;
    }
    let segments = segments(place.node, source);
    let line = place.line();
    match segments.as_slice() {
        ["", name] => {
            if let Some(ban) = names::global(name)
                && !facts.is_own_function(name)
                && !declares_variable(place)
            {
                found.push(banned(ban, &format!("::{name}"), line));
            }
        }
        [first, rest @ ..] => {
            let rest = if first.is_empty() { rest } else { &segments[..] };
            let [scope, name, more @ ..] = rest else { return };
            if !facts.is_std(scope) {
                return;
            }
            if let Some(ban) = names::of_std(name) {
                found.push(banned(ban, &format!("std::{name}"), line));
            } else if *name == "execution" && more.first().is_some_and(|policy| policy.starts_with("par")) {
                found.push(finding(
                    "threads",
                    Severity::Violation,
                    "a parallel execution policy starts threads: a program has one thread".to_owned(),
                    line,
                ));
            }
        }
        [] => {}
    }
}

/// `std::chrono::now` as `["std", "chrono", "now"]`; a leading `::` as an empty first segment.
fn segments<'s>(node: Node<'_>, source: &'s str) -> Vec<&'s str> {
    let mut segments = Vec::new();
    let mut current = node;
    loop {
        segments.push(current.child_by_field_name("scope").map_or("", |scope| plain(scope, source)));
        let Some(name) = current.child_by_field_name("name") else { break };
        if name.kind() == "qualified_identifier" {
            current = name;
        } else {
            segments.push(plain(name, source));
            break;
        }
    }
    segments
}

/// A name without its template arguments.
fn plain<'s>(node: Node<'_>, source: &'s str) -> &'s str {
    match node.kind() {
        "template_function" | "template_type" | "template_method" => {
            node.child_by_field_name("name").map_or("", |name| text(name, source))
        }
        _ => text(node, source),
    }
}

fn alias(place: &Place<'_, '_>, source: &str, facts: &Facts, found: &mut Vec<Finding>) {
    let Some((_, target)) = text(place.node, source).split_once('=') else { return };
    let mut segments = target.trim().trim_end_matches(';').trim_start_matches("::").split("::").map(str::trim);
    let in_std = segments.next().is_some_and(|first| facts.is_std(first));
    if let Some(name) = segments.next()
        && in_std
        && let Some(ban) = names::of_std(name)
    {
        found.push(banned(ban, &format!("std::{name}"), place.line()));
    }
}

/// What a pragma means.
pub(super) fn pragma(text: &str, line: u32) -> Option<Finding> {
    let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    match words.next()? {
        // `omp simd` asks for vectors, everything else of OpenMP for threads or devices.
        "omp" => {
            let threads = ["parallel", "task", "taskloop", "teams", "target", "sections", "single", "master", "masked"];
            words.any(|word| threads.contains(&word)).then(|| {
                finding(
                    "threads",
                    Severity::Violation,
                    "an OpenMP directive asks for threads: a program has one thread (`omp simd` is fine)".to_owned(),
                    line,
                )
            })
        }
        name @ ("weak" | "redefine_extname") => Some(finding(
            "symbol_tricks",
            Severity::Violation,
            format!("`#pragma {name}` gives a function the name of another"),
            line,
        )),
        "init" | "fini" => Some(finding(
            "code_at_load",
            Severity::Violation,
            "a pragma asks for code that runs while the library is loaded".to_owned(),
            line,
        )),
        _ => None,
    }
}

fn pragma_operator(place: &Place<'_, '_>, source: &str, found: &mut Vec<Finding>) {
    let function = place.node.child_by_field_name("function").map_or("", |function| text(function, source));
    if (function == "_Pragma" || function == "__pragma")
        && let Some(arguments) = place.node.child_by_field_name("arguments")
    {
        let argument = text(arguments, source).trim_matches(['(', ')', ' ']).trim_matches('"');
        found.extend(pragma(argument, place.line()));
    }
}

/// Attributes, from the words of their text.
pub(super) fn attributes(text: &str, line: u32, found: &mut Vec<Finding>) {
    let words: Vec<&str> = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).collect();
    for word in &words {
        let bare = word.trim_matches('_');
        if let Some((name, why)) = names::FORBIDDEN_ATTRIBUTES.iter().find(|(name, _)| *name == bare) {
            let code = if why.contains("runs code") { "code_at_load" } else { "symbol_tricks" };
            found.push(finding(code, Severity::Violation, format!("the attribute `{name}` {why}"), line));
        } else if bare == "section" {
            let runs = [".init", ".fini", ".preinit", ".ctors", ".dtors"];
            let run_at_load = words.iter().any(|word| runs.iter().any(|prefix| word.starts_with(prefix)));
            found.push(if run_at_load {
                let message = "the section runs code while the library is loaded or unloaded".to_owned();
                finding("code_at_load", Severity::Violation, message, line)
            } else {
                let message = "the attribute `section` places code or data by hand".to_owned();
                finding("symbol_tricks", Severity::Warning, message, line)
            });
        }
    }
}

fn inline_assembly(place: &Place<'_, '_>, source: &str, setting: &Setting<'_>, found: &mut Vec<Finding>) {
    let node = place.node;
    let code = node.child_by_field_name("assembly_code");
    let literal =
        code.filter(|code| matches!(code.kind(), "string_literal" | "raw_string_literal" | "concatenated_string"));
    let labels_symbol = place.field == Some("declarator")
        || place.parent().is_some_and(|p| matches!(p.kind(), "function_declarator" | "init_declarator"));
    if labels_symbol && !is_local(place) {
        let message = "an assembly label gives a function or a variable the name of another".to_owned();
        found.push(finding("symbol_tricks", Severity::Violation, message, place.line()));
        return;
    }
    let text = literal.map(|code| literal_text(code, source));
    if is_on_device(place, setting) {
        found.extend(device_assembly_finding(text.as_deref(), place.line()));
        return;
    }
    found.extend(assembly_finding(text.as_deref(), is_local(place), place.line()));
}

/// What an assembly statement with this text means; no text when it is not written as literals.
pub(super) fn assembly_finding(text: Option<&str>, local: bool, line: u32) -> Option<Finding> {
    let Some(text) = text else {
        let message = "the text of an assembly statement is hidden behind macros".to_owned();
        return Some(finding("inline_asm", Severity::Violation, message, line));
    };
    if let Some(word) = assembly::forbidden(text) {
        let message = format!("assembly with `{word}` leaves the program, reads a clock or hides what it does");
        return Some(finding("syscalls", Severity::Violation, message, line));
    }
    if !local {
        let message = "assembly outside of functions".to_owned();
        return Some(finding("symbol_tricks", Severity::Violation, message, line));
    }
    if assembly::is_barrier(text) {
        return None;
    }
    Some(finding(
        "inline_asm",
        Severity::Warning,
        "inline assembly: intrinsics can be read and checked".to_owned(),
        line,
    ))
}

/// What an assembly statement on a device means. It cannot leave the program: there is no system below it.
pub(super) fn device_assembly_finding(text: Option<&str>, line: u32) -> Option<Finding> {
    let Some(text) = text else {
        let message = "the text of an assembly statement is hidden behind macros".to_owned();
        return Some(finding("inline_asm", Severity::Warning, message, line));
    };
    if let Some(word) = assembly::forbidden_anywhere(text) {
        let message = format!("assembly with `{word}` leaves the program, reads a clock or hides what it does");
        return Some(finding("syscalls", Severity::Violation, message, line));
    }
    let register = assembly::device_clock(text)?;
    let message = format!("assembly reads `%{register}`: a program may not know how it is measured");
    Some(finding("device_clock", Severity::Warning, message, line))
}

/// The contents of adjacent literals, joined.
fn literal_text(node: Node<'_>, source: &str) -> String {
    let mut joined = String::new();
    walk(node, |place| match place.node.kind() {
        "string_content" | "raw_string_content" | "escape_sequence" => joined.push_str(text(place.node, source)),
        // A macro between the literals.
        "identifier" => joined.push_str(" .macro "),
        _ => {}
    });
    joined
}

fn definition(place: &Place<'_, '_>, source: &str, found: &mut Vec<Finding>) {
    let node = place.node;
    let is_member = place.is_within(&["class_specifier", "struct_specifier", "union_specifier"]);
    let c_linkage = place.is_within(&["linkage_specification"]);
    let hidden = place.is_within(&["namespace_definition"]) && !c_linkage;
    let head_end = node.child_by_field_name("body").map_or(node.end_byte(), |body| body.start_byte());
    let head = source.get(node.start_byte()..head_end).unwrap_or("");
    let is_static = head.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == "static");
    if is_member || hidden || is_static {
        return;
    }
    let mut declarator = node.child_by_field_name("declarator");
    while let Some(inner) =
        declarator.filter(|d| d.kind() != "identifier").and_then(|d| d.child_by_field_name("declarator"))
    {
        declarator = Some(inner);
    }
    let Some(name) = declarator.filter(|d| d.kind() == "identifier").map(|d| text(d, source)) else {
        if head.contains("operator new") || head.contains("operator delete") {
            let message = "the program replaces the global memory allocation".to_owned();
            found.push(finding("replaced_allocation", Severity::Warning, message, place.line()));
        }
        return;
    };
    if names_cuda::replaces_cuda(name) {
        let message = format!("`{name}` replaces a function of CUDA");
        found.push(finding("interposes_cuda", Severity::Violation, message, place.line()));
    }
    if names::replaces_libc(name, c_linkage) {
        let message = format!("`{name}` replaces a function of the system's library");
        found.push(finding("interposes_libc", Severity::Violation, message, place.line()));
    }
}

/// State that outlives a call: legitimate for tables, suspicious for remembered results.
fn lasting_state(place: &Place<'_, '_>, source: &str, facts: &Facts, setting: &Setting<'_>, found: &mut Vec<Finding>) {
    let whole = text(place.node, source);
    let local = is_local(place);
    let written = setting.written.get(place.node.byte_range()).unwrap_or("");
    if written.contains("__managed__") {
        let message = "a managed variable outlives the call and moves between host and device".to_owned();
        found.push(finding("managed_memory", Severity::Violation, message, place.line()));
        return;
    }
    // Shared memory ends with its block.
    if written.contains("__shared__") {
        return;
    }
    let words: Vec<&str> =
        whole.split(|c: char| !(c.is_alphanumeric() || c == '_')).take_while(|word| *word != "=").collect();
    let has = |word: &str| words.contains(&word);
    if local && !has("static") && !has("thread_local") {
        return;
    }
    if place.is_within(&["class_specifier", "struct_specifier", "union_specifier", "parameter_list"]) {
        return;
    }
    let declarator = place.node.child_by_field_name("declarator");
    if declarator.is_none_or(|d| d.kind() == "function_declarator") || has("typedef") || has("extern") {
        return;
    }
    let initial = declarator.and_then(|d| d.child_by_field_name("value"));
    if !local && !has("constexpr") && initial.is_some_and(calls_something) || constructs(place.node, source, facts) {
        let message = "an object outside of functions runs code while the library is loaded".to_owned();
        found.push(finding("code_at_load", Severity::Warning, message, place.line()));
    }
    if has("const") || has("constexpr") {
        return;
    }
    if REMEMBERING.iter().any(|container| has(container)) {
        let message = "a container that outlives the call may remember results of earlier inputs".to_owned();
        found.push(finding("cache_container", Severity::Warning, message, place.line()));
    } else {
        let message = "a variable that outlives the call".to_owned();
        found.push(finding("mutable_static", Severity::Note, message, place.line()));
    }
}

fn calls_something(value: Node<'_>) -> bool {
    let mut calls = false;
    walk(value, |place| calls |= place.node.kind() == "call_expression");
    calls
}

fn constructs(declaration: Node<'_>, source: &str, facts: &Facts) -> bool {
    declaration.child_by_field_name("type").is_some_and(|kind| facts.constructed.contains(text(kind, source)))
}
