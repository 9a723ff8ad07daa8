//! What the source itself declares: a name of its own means itself, not the system's function.

use std::collections::HashSet;

use tree_sitter::{Node, TreeCursor};

use super::macros::Macro;
use super::{names, names_cuda};

/// Declared names.
#[derive(Debug, Default)]
pub(super) struct Facts {
    functions: HashSet<String>,
    variables: HashSet<String>,
    /// Variables whose type may be called: anything but numbers.
    callables: HashSet<String>,
    types: HashSet<String>,
    /// Classes with a constructor of their own.
    pub(super) constructed: HashSet<String>,
    /// `std` and the names that stand for it.
    std_names: HashSet<String>,
    /// Whether the names of `std` are used without it.
    pub(super) uses_std: bool,
}

impl Facts {
    pub(super) fn collect(root: Node<'_>, source: &str, macros: &[Macro]) -> Self {
        let mut facts = Self::default();
        facts.std_names.insert("std".to_owned());
        facts.functions.extend(macros.iter().map(|definition| definition.name.clone()));
        walk(root, |place| facts.take(place, source));
        facts
    }

    /// Whether the name means something that the program made itself.
    pub(super) fn is_own(&self, name: &str) -> bool {
        self.functions.contains(name) || self.variables.contains(name) || self.types.contains(name)
    }

    /// Whether a call of that name calls something that the program made itself.
    pub(super) fn is_own_call(&self, name: &str) -> bool {
        self.functions.contains(name) || self.callables.contains(name) || self.types.contains(name)
    }

    pub(super) fn is_own_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    pub(super) fn is_std(&self, name: &str) -> bool {
        self.std_names.contains(name)
    }

    fn take(&mut self, place: &Place<'_, '_>, source: &str) {
        let node = place.node;
        match node.kind() {
            "identifier" => {
                let name = text(node, source);
                match place.parent().map(|parent| parent.kind()) {
                    Some("function_declarator") if place.field == Some("declarator") => {
                        self.take_function(place, name);
                    }
                    _ if declares_variable(place) && !is_foreign(place, source) => self.take_variable(place, name),
                    _ => {}
                }
            }
            "field_identifier" if place.field == Some("declarator") => {
                let name = text(node, source).to_owned();
                if place.parent().is_some_and(|parent| parent.kind() == "function_declarator") {
                    self.functions.insert(name);
                } else {
                    self.variables.insert(name);
                }
            }
            "class_specifier" | "struct_specifier" | "union_specifier" | "enum_specifier" | "alias_declaration" => {
                if let Some(name) = node.child_by_field_name("name") {
                    self.types.insert(text(name, source).to_owned());
                }
            }
            "namespace_alias_definition" => {
                let whole = text(node, source);
                if let Some((alias, target)) = whole.trim_end_matches(';').split_once('=')
                    && self.std_names.contains(target.trim().trim_start_matches("::"))
                    && let Some(alias) = alias.split_whitespace().last()
                {
                    self.std_names.insert(alias.to_owned());
                }
            }
            "using_declaration" => {
                let whole = text(node, source);
                if whole.split_whitespace().nth(1) == Some("namespace") {
                    let target = whole.split_whitespace().nth(2).unwrap_or("").trim_end_matches(';');
                    self.uses_std |= self.std_names.contains(target.trim_start_matches("::"));
                }
            }
            _ => {}
        }
    }

    fn take_variable(&mut self, place: &Place<'_, '_>, name: &str) {
        let number = place
            .ancestors
            .iter()
            .rev()
            .find_map(|above| above.child_by_field_name("type"))
            .is_some_and(|kind| matches!(kind.kind(), "primitive_type" | "sized_type_specifier"));
        let pointed_to_function =
            place.is_within(&["function_declarator"]) && place.is_within(&["parenthesized_declarator"]);
        if !number || pointed_to_function {
            self.callables.insert(name.to_owned());
        }
        self.variables.insert(name.to_owned());
    }

    fn take_function(&mut self, place: &Place<'_, '_>, name: &str) {
        match declaration_of(place) {
            Some(definition) if definition.kind() == "function_definition" => {
                let c_linkage = place.ancestors.iter().any(|above| above.kind() == "linkage_specification");
                let class = place.ancestors.iter().rev().find(|above| is_class(above.kind()));
                if class.is_some() && !c_linkage {
                    self.constructed.insert(name.to_owned());
                }
                if !names::replaces_libc(name, c_linkage) && !names_cuda::replaces_cuda(name) {
                    self.functions.insert(name.to_owned());
                }
            }
            // `float time(x);` inside a function is a variable; a parameter with a type of its own makes a prototype.
            Some(declaration) if declaration.kind() == "declaration" && is_local(place) && !is_prototype(place) => {
                self.variables.insert(name.to_owned());
            }
            Some(declaration) if declaration.kind() == "parameter_declaration" => {
                self.variables.insert(name.to_owned());
            }
            _ => {}
        }
    }
}

/// A node with what is above it, outermost first.
pub(super) struct Place<'tree, 'a> {
    pub(super) node: Node<'tree>,
    /// Name of the field of its parent.
    pub(super) field: Option<&'tree str>,
    pub(super) ancestors: &'a [Node<'tree>],
}

impl<'tree> Place<'tree, '_> {
    pub(super) fn parent(&self) -> Option<Node<'tree>> {
        self.ancestors.last().copied()
    }

    pub(super) fn line(&self) -> u32 {
        line_of(self.node)
    }

    pub(super) fn is_within(&self, kinds: &[&str]) -> bool {
        self.ancestors.iter().any(|above| kinds.contains(&above.kind()))
    }
}

/// Line of a node, from 1.
pub(super) fn line_of(node: Node<'_>) -> u32 {
    u32::try_from(node.start_position().row).unwrap_or(u32::MAX).saturating_add(1)
}

pub(super) fn text<'s>(node: Node<'_>, source: &'s str) -> &'s str {
    source.get(node.byte_range()).unwrap_or("")
}

/// Visits every node, parents first, without recursion: generated code may be nested as deep as it likes.
pub(super) fn walk<'tree>(root: Node<'tree>, mut visit: impl FnMut(&Place<'tree, '_>)) {
    let mut cursor: TreeCursor<'tree> = root.walk();
    let mut ancestors = Vec::new();
    loop {
        visit(&Place { node: cursor.node(), field: cursor.field_name(), ancestors: &ancestors });
        let node = cursor.node();
        if cursor.goto_first_child() {
            ancestors.push(node);
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
            ancestors.pop();
        }
    }
}

/// Whether this identifier is the name that a declaration of a variable introduces.
pub(super) fn declares_variable(place: &Place<'_, '_>) -> bool {
    let Some(parent) = place.parent() else { return false };
    match parent.kind() {
        "init_declarator"
        | "pointer_declarator"
        | "array_declarator"
        | "parameter_declaration"
        | "optional_parameter_declaration"
        | "declaration"
        | "for_range_loop"
        | "attributed_declarator" => place.field == Some("declarator"),
        "reference_declarator"
        | "structured_binding_declarator"
        | "parenthesized_declarator"
        | "variadic_declarator"
        | "preproc_params" => true,
        "enumerator" | "lambda_capture_initializer" | "preproc_def" | "preproc_function_def" => {
            place.field == Some("name") || place.field == Some("left")
        }
        _ => false,
    }
}

/// Whether the declaration says that the variable is defined elsewhere: `extern char **environ;`.
pub(super) fn is_foreign(place: &Place<'_, '_>, source: &str) -> bool {
    let mut above = place.ancestors.iter().rev();
    let Some(declaration) = above.find(|above| above.kind() == "declaration") else { return false };
    let parent_is_linkage = above.next().is_some_and(|parent| parent.kind() == "linkage_specification");
    parent_is_linkage || text(*declaration, source).starts_with("extern")
}

/// The definition or declaration whose function this declarator names.
pub(super) fn declaration_of<'tree>(place: &Place<'tree, '_>) -> Option<Node<'tree>> {
    place
        .ancestors
        .iter()
        .rev()
        .find(|above| {
            !matches!(
                above.kind(),
                "function_declarator"
                    | "pointer_declarator"
                    | "reference_declarator"
                    | "parenthesized_declarator"
                    | "init_declarator"
                    | "attributed_declarator"
            )
        })
        .copied()
}

/// Whether the place is inside a function's body.
pub(super) fn is_local(place: &Place<'_, '_>) -> bool {
    place.is_within(&["compound_statement"])
}

/// Whether the parameters next to this name have types that make it a function: `float f(x)` inside a function is a
/// variable with an initial value, `float f(int)` is not.
pub(super) fn is_prototype(place: &Place<'_, '_>) -> bool {
    let Some(parameters) = place.parent().and_then(|declarator| declarator.child_by_field_name("parameters")) else {
        return false;
    };
    let count = u32::try_from(parameters.named_child_count()).unwrap_or(u32::MAX);
    let bare_names = (0..count).filter_map(|i| parameters.named_child(i)).all(|parameter| {
        parameter.named_child_count() == 1
            && parameter.named_child(0).is_some_and(|only| only.kind() == "type_identifier")
    });
    count == 0 || !bare_names
}

fn is_class(kind: &str) -> bool {
    matches!(kind, "class_specifier" | "struct_specifier" | "union_specifier")
}
