//! The syntax tree of a Python file.

use tree_sitter::{Node, TreeCursor};

/// Returns the line of a node, from 1.
pub(super) fn line_of(node: Node<'_>) -> u32 {
    u32::try_from(node.start_position().row).unwrap_or(u32::MAX).saturating_add(1)
}

/// Returns the text of a node.
pub(super) fn text<'s>(node: Node<'_>, source: &'s str) -> &'s str {
    source.get(node.byte_range()).unwrap_or("")
}

/// Visits every node with its parent, parents first. It does not recurse: generated code may be nested to any depth. A node
/// finds its parent only by a search from the root, so parents are kept here.
pub(super) fn walk<'tree>(root: Node<'tree>, mut visit: impl FnMut(Node<'tree>, Option<Node<'tree>>)) {
    let mut cursor: TreeCursor<'tree> = root.walk();
    let mut above = Vec::new();
    loop {
        let node = cursor.node();
        visit(node, above.last().copied());
        if cursor.goto_first_child() {
            above.push(node);
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
            above.pop();
        }
    }
}
