//! Names of a Python file as the dotted paths that they were imported by: `F.relu` is `torch.nn.functional.relu`.

use std::collections::BTreeMap;

use tree_sitter::{Node, Tree};

use super::tree::{text, walk};

/// Functions of Python that run a text as code.
const RUNS_TEXTS: [&str; 2] = ["exec", "eval"];

/// Imported names and what they stand for.
#[derive(Debug, Default)]
pub(super) struct Names {
    paths: BTreeMap<String, String>,
}

impl Names {
    pub(super) fn of(tree: &Tree, source: &str) -> Self {
        let mut paths = BTreeMap::new();
        walk(tree.root_node(), |node, _| {
            let module = match node.kind() {
                "import_statement" => String::new(),
                "import_from_statement" => {
                    format!("{}.", node.child_by_field_name("module_name").map_or("", |module| text(module, source)))
                }
                _ => return,
            };
            let mut cursor = node.walk();
            for name in node.children_by_field_name("name", &mut cursor) {
                let alias = name.child_by_field_name("alias").map(|alias| text(alias, source));
                let path = text(name.child_by_field_name("name").unwrap_or(name), source);
                // `import a.b` gives the name `a`, `from a import b` the name `b`.
                let first = path.split('.').next().unwrap_or(path);
                let (known_as, meant) = alias.map_or((first, first), |alias| (alias, path));
                paths.insert(known_as.to_owned(), format!("{module}{meant}"));
            }
        });
        Self { paths }
    }

    /// Returns the path of a name that is used here. A part of a longer dotted name has none, nor has the name of an
    /// import, of an argument or of a definition.
    pub(super) fn used(&self, node: Node<'_>, parent: Node<'_>, source: &str) -> Option<String> {
        let is_part = match parent.kind() {
            "attribute" | "dotted_name" | "aliased_import" => true,
            "keyword_argument" | "function_definition" | "class_definition" | "default_parameter" => {
                parent.child_by_field_name("name") == Some(node)
            }
            _ => false,
        };
        if is_part {
            return None;
        }
        self.path(node, source)
    }

    /// Returns the path of an expression that begins with an imported name.
    pub(super) fn imported(&self, node: Node<'_>, source: &str) -> Option<String> {
        let mut root = node;
        while root.kind() == "attribute" {
            root = root.child_by_field_name("object")?;
        }
        self.paths.get(text(root, source))?;
        self.path(node, source)
    }

    /// Returns an imported path, the name of a function of Python that runs texts, or `.name` for an attribute of a value.
    fn path(&self, node: Node<'_>, source: &str) -> Option<String> {
        let mut behind = String::new();
        let mut node = node;
        while node.kind() == "attribute" {
            behind.insert_str(0, text(node.child_by_field_name("attribute")?, source));
            behind.insert(0, '.');
            node = node.child_by_field_name("object")?;
        }
        let name = text(node, source);
        let imported = self.paths.get(name).filter(|_| node.kind() == "identifier");
        match imported {
            Some(path) => Some(format!("{path}{behind}")),
            None if behind.is_empty() => RUNS_TEXTS.contains(&name).then(|| name.to_owned()),
            None => Some(behind),
        }
    }
}
