//! Copies a text on a click. It also works without the clipboard API, on plain HTTP from another machine. While the
//! button shows the result, further clicks do nothing.

use std::time::Duration;

use leptos::prelude::{document, set_timeout, window_event_listener_untyped};
use wasm_bindgen::JsCast as _;
use web_sys::{Element, HtmlDocument, HtmlElement, HtmlTextAreaElement};

/// How long the button shows the result.
const SHOWN: Duration = Duration::from_secs(2);

/// Installs the handler of every `button[data-copy]`, which copies the text of the element with that id.
pub(super) fn listen() {
    let _ = window_event_listener_untyped("click", |event| {
        let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
        let Some(button) = target.and_then(|element| element.closest("[data-copy]").ok().flatten()) else { return };
        let id = button.get_attribute("data-copy").unwrap_or_default();
        let Some(source) = document().get_element_by_id(&id) else { return };
        if button.has_attribute("data-busy") || button.set_attribute("data-busy", "").is_err() {
            return;
        }
        let done = copied(&source.text_content().unwrap_or_default());
        let before = button.text_content();
        button.set_text_content(Some(if done { "Copied" } else { "Not copied: select the text" }));
        set_timeout(
            move || {
                button.set_text_content(before.as_deref());
                let _ = button.remove_attribute("data-busy");
            },
            SHOWN,
        );
    });
}

fn copied(text: &str) -> bool {
    let document = document();
    let (Some(body), Ok(field)) = (document.body(), document.create_element("textarea")) else { return false };
    let (Ok(field), Some(html)) = (field.dyn_into::<HtmlTextAreaElement>(), document.dyn_ref::<HtmlDocument>()) else {
        return false;
    };
    field.set_value(text);
    field.set_class_name("aside");
    let focused = document.active_element().and_then(|element| element.dyn_into::<HtmlElement>().ok());
    if body.append_child(&field).is_err() {
        return false;
    }
    field.select();
    let done = html.exec_command("copy").unwrap_or(false);
    field.remove();
    // Selecting the text took the focus from the button.
    if let Some(focused) = focused {
        let _ = focused.focus();
    }
    done
}
