//! Updates the document to a newer version of the page with minimal changes.
//!
//! Unchanged elements stay in place. Focus, selection, typed text, open sections and the scroll position survive. Islands
//! keep their state unless their rendered properties changed.

use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{CustomEvent, CustomEventInit, Element, Node};

/// Event that makes `boot.js` start the islands below an element.
const SWAPPED: &str = "nightshift:swapped";
/// Attributes that the visitor or the program changes. The server's values count only for a new page.
const KEPT: [&str; 4] = ["open", "data-awake", "data-busy", "checked"];
/// Fields whose value the visitor types.
const TYPED: &str = "input:not([type=hidden], [type=checkbox])";
/// Elements whose content the program writes.
const WRITTEN: &str = ".ago, form > .said";

/// Updates `old` to equal `new`.
pub(super) fn morph(old: &Element, new: &Element) {
    attributes(old, new);
    children(old, new);
    let init = CustomEventInit::new();
    init.set_bubbles(true);
    if let Ok(event) = CustomEvent::new_with_event_init_dict(SWAPPED, &init) {
        let _ = old.dispatch_event(&event);
    }
}

fn children(old: &Node, new: &Node) {
    let mut at = old.first_child();
    let mut wanted = new.first_child();
    while let Some(new_node) = wanted {
        wanted = new_node.next_sibling();
        let same = matching(at.as_ref(), &new_node);
        match same {
            Some(kept) => {
                // The nodes in between were removed.
                while at.as_ref().is_some_and(|node| !node.is_same_node(Some(&kept))) {
                    let gone = at.take();
                    at = gone.as_ref().and_then(Node::next_sibling);
                    remove(old, gone.as_ref());
                }
                at = kept.next_sibling();
                update(&kept, &new_node);
            }
            None => {
                // After a failed insertion the next update repairs the page.
                let _ = old.insert_before(&new_node, at.as_ref());
            }
        }
    }
    while let Some(gone) = at {
        at = gone.next_sibling();
        remove(old, Some(&gone));
    }
}

fn remove(parent: &Node, gone: Option<&Node>) {
    if let Some(gone) = gone {
        let _ = parent.remove_child(gone);
    }
}

/// Returns the old node to reuse for the new one: the next one of its kind, or a later one with its key.
fn matching(from: Option<&Node>, new: &Node) -> Option<Node> {
    let first = from?;
    let key = key(new);
    if key.is_none() {
        return alike(first, new).then(|| first.clone());
    }
    let mut at = Some(first.clone());
    while let Some(node) = at {
        if alike(&node, new) {
            return Some(node);
        }
        at = node.next_sibling();
    }
    None
}

fn key(node: &Node) -> Option<String> {
    let element = node.dyn_ref::<Element>()?;
    element.get_attribute("data-key").or_else(|| element.get_attribute("id"))
}

fn alike(old: &Node, new: &Node) -> bool {
    if old.node_type() != new.node_type() || old.node_name() != new.node_name() || key(old) != key(new) {
        return false;
    }
    let (Some(old), Some(new)) = (old.dyn_ref::<Element>(), new.dyn_ref::<Element>()) else { return true };
    let is_same = |name: &str| old.get_attribute(name) == new.get_attribute(name);
    old.local_name() != "leptos-island" || (is_same("data-component") && is_same("data-props"))
}

fn update(old: &Node, new: &Node) {
    let (Some(old_element), Some(new_element)) = (old.dyn_ref::<Element>(), new.dyn_ref::<Element>()) else {
        if old.node_value() != new.node_value() {
            old.set_node_value(new.node_value().as_deref());
        }
        return;
    };
    if old_element.local_name() == "leptos-island" {
        return;
    }
    attributes(old_element, new_element);
    if !old_element.matches(WRITTEN).unwrap_or(false) {
        children(old, new);
    }
}

fn attributes(old: &Element, new: &Element) {
    let is_typed = old.matches(TYPED).unwrap_or(false);
    let is_kept = |name: &str| KEPT.contains(&name) || (is_typed && name == "value");
    for name in old.get_attribute_names().iter().filter_map(|name: JsValue| name.as_string()) {
        if !is_kept(&name) && !new.has_attribute(&name) {
            let _ = old.remove_attribute(&name);
        }
    }
    for name in new.get_attribute_names().iter().filter_map(|name: JsValue| name.as_string()) {
        let value = new.get_attribute(&name);
        if !is_kept(&name)
            && old.get_attribute(&name) != value
            && let Some(value) = value
        {
            let _ = old.set_attribute(&name, &value);
        }
    }
}
