//! What the names of a program stand for: dotted paths from what it imports.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::{Node, Tree};

use super::super::facts::{Place, line_of, text, walk};

/// An import, as a dotted path.
#[derive(Debug)]
pub(super) struct Import {
    /// What is imported; it begins with a dot when it is relative.
    pub(super) path: String,
    /// The name that it gives the file; none for those of a part of the file, and for all names of a module.
    pub(super) name: Option<String>,
    pub(super) line: u32,
}

/// Names and what they stand for.
#[derive(Debug, Default)]
pub(super) struct Paths {
    aliases: BTreeMap<String, String>,
    /// Functions and classes that the program defines.
    defined: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
}

impl Paths {
    pub(super) fn collect(tree: &Tree, source: &str) -> Self {
        let mut paths = Self::default();
        walk(tree.root_node(), |place| match place.node.kind() {
            "import_statement" => paths.import(place.node, source),
            "import_from_statement" => paths.import_from(place.node, source),
            "function_definition" | "class_definition" => {
                if let Some(name) = place.node.child_by_field_name("name") {
                    paths.defined.insert(text(name, source).to_owned());
                }
            }
            _ => {}
        });
        // A name may be given on before the place that gives it its meaning is read: twice is as deep as that goes.
        for _ in 0..2 {
            walk(tree.root_node(), |place| {
                let (left, right) = match place.node.kind() {
                    "assignment" => ("left", "right"),
                    "named_expression" => ("name", "value"),
                    _ => return,
                };
                let (Some(left), Some(right)) =
                    (place.node.child_by_field_name(left), place.node.child_by_field_name(right))
                else {
                    return;
                };
                if left.kind() == "identifier"
                    && let Some(path) = paths.of(right, source)
                {
                    paths.aliases.insert(text(left, source).to_owned(), path);
                }
            });
        }
        paths
    }

    /// Whether the program defines a function or class of this name.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.defined.contains(name)
    }

    /// Whether a name was imported, or stands for something that was.
    pub(super) fn is_imported(&self, name: &str) -> bool {
        self.aliases.contains_key(name)
    }

    /// The path that an expression stands for, when it begins with something imported: `getattr(torch, "compile")` is one
    /// as well.
    pub(super) fn of(&self, node: Node<'_>, source: &str) -> Option<String> {
        let mut node = node;
        let mut behind: Vec<String> = Vec::new();
        loop {
            match node.kind() {
                "identifier" => {
                    let mut path = self.aliases.get(text(node, source))?.clone();
                    for part in behind.iter().rev() {
                        path.push('.');
                        path.push_str(part);
                    }
                    return Some(path);
                }
                "attribute" => {
                    behind.push(text(node.child_by_field_name("attribute")?, source).to_owned());
                    node = node.child_by_field_name("object")?;
                }
                "parenthesized_expression" => node = node.named_child(0)?,
                "call" => {
                    let function = node.child_by_field_name("function")?;
                    let arguments = node.child_by_field_name("arguments")?;
                    if text(function, source) != "getattr" {
                        return None;
                    }
                    behind.push(literal(arguments.named_child(1)?, source)?);
                    node = arguments.named_child(0)?;
                }
                _ => return None,
            }
        }
    }

    fn import(&mut self, node: Node<'_>, source: &str) {
        let mut cursor = node.walk();
        for child in node.named_children(&mut cursor) {
            let (path, alias) = aliased(child, source);
            let root = path.split('.').next().unwrap_or_default().to_owned();
            let (name, meant) = alias.map_or_else(|| (root.clone(), root.clone()), |alias| (alias, path.clone()));
            self.imported(node, path, Some(name.clone()));
            self.aliases.insert(name, meant);
        }
    }

    fn import_from(&mut self, node: Node<'_>, source: &str) {
        let Some(module) = node.child_by_field_name("module_name") else { return };
        let module = text(module, source).to_owned();
        let mut cursor = node.walk();
        let names: Vec<Node<'_>> = node.children_by_field_name("name", &mut cursor).collect();
        if names.is_empty() {
            self.imported(node, format!("{module}.*"), None);
        }
        for name in names {
            let (name, alias) = aliased(name, source);
            let path = format!("{module}.{name}");
            let name = alias.unwrap_or(name);
            self.imported(node, path.clone(), Some(name.clone()));
            self.aliases.insert(name, path);
        }
    }

    fn imported(&mut self, statement: Node<'_>, path: String, name: Option<String>) {
        let is_of_file = statement.parent().is_some_and(|parent| parent.kind() == "module");
        self.imports.push(Import { path, name: name.filter(|_| is_of_file), line: line_of(statement) });
    }
}

/// A dotted name, and the alias that it is given.
fn aliased(node: Node<'_>, source: &str) -> (String, Option<String>) {
    let name = node.child_by_field_name("name").map_or(text(node, source), |name| text(name, source));
    let alias = node.child_by_field_name("alias").map(|alias| text(alias, source).to_owned());
    (name.split_whitespace().collect(), alias)
}

/// Whether the identifier is a name that is given here, not one that is used.
pub(super) fn is_bound(place: &Place<'_, '_>) -> bool {
    let Some(parent) = place.parent() else { return false };
    match parent.kind() {
        "function_definition" | "class_definition" | "default_parameter" | "typed_default_parameter" => {
            place.field == Some("name")
        }
        "parameters" | "lambda_parameters" | "typed_parameter" => true,
        "assignment" | "for_statement" => place.field == Some("left"),
        _ => false,
    }
}

/// Whether the identifier means a parameter of a function around it, in the body of which it stands.
pub(super) fn is_parameter(place: &Place<'_, '_>, source: &str) -> bool {
    let name = text(place.node, source);
    place.ancestors.windows(2).any(|pair| {
        let [function, inside] = pair else { return false };
        let is_function = matches!(function.kind(), "function_definition" | "lambda");
        if !is_function || function.child_by_field_name("body") != Some(*inside) {
            return false;
        }
        function.child_by_field_name("parameters").is_some_and(|parameters| {
            let mut cursor = parameters.walk();
            parameters.named_children(&mut cursor).any(|parameter| {
                let named = parameter.child_by_field_name("name").or_else(|| parameter.named_child(0));
                text(named.unwrap_or(parameter), source) == name
            })
        })
    })
}

/// The content of a plain string.
pub(super) fn literal(node: Node<'_>, source: &str) -> Option<String> {
    if node.kind() != "string" {
        return None;
    }
    let mut cursor = node.walk();
    let mut content = String::new();
    for child in node.named_children(&mut cursor) {
        match child.kind() {
            "string_content" => content.push_str(text(child, source)),
            "interpolation" => return None,
            _ => {}
        }
    }
    Some(content)
}
