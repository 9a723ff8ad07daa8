//! Forms that are calls of the API: what a page offers with `<form data-call="POST /api/v1/…">` is sent as JSON, with the
//! rights of the visitor, and what came of it is said within the form.
//!
//! Fields are named like the members of the body. A `data-kind` says what a field is, where it is no text: `json` (the
//! value as it is written), `flag` (whether a box is ticked), `list` (a box whose value is one of several under its name), `words`
//! (a list of this one text).
//! Texts and values that are empty are left out. `data-done` is said when it is done, `data-shows` names a text of the
//! answer that is shown this once, behind the path `data-before` of this server, and `data-next` is the page to go to.

use js_sys::{Array, JSON, Object, Reflect};
use leptos::prelude::{document, window_event_listener_untyped};
use leptos::task::spawn_local;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{Element, HtmlFormElement};

use super::{fetch, page};

/// Listens to every such form.
pub(super) fn listen() {
    let _ = window_event_listener_untyped("submit", |event| {
        let target = event.target().and_then(|target| target.dyn_into::<HtmlFormElement>().ok());
        let Some(form) = target else { return };
        let Some(call) = form.get_attribute("data-call") else { return };
        event.prevent_default();
        // What is on its way is not sent a second time.
        if !form.has_attribute("data-busy") && form.set_attribute("data-busy", "").is_ok() {
            spawn_local(async move {
                send(&form, &call).await;
                let _ = form.remove_attribute("data-busy");
            });
        }
    });
}

async fn send(form: &HtmlFormElement, call: &str) {
    let attribute = |name: &str| form.get_attribute(name).unwrap_or_default();
    let (method, path) = call.split_once(' ').unwrap_or(("POST", call));
    say(form, "quiet", "…", None);
    let body = (method != "DELETE").then(|| body(form));
    match fetch::ask(method, path, body.as_deref(), &attribute("data-shows")).await {
        Ok(shown) => {
            form.reset();
            let shown = shown.map(|shown| match attribute("data-before") {
                before if before.is_empty() => shown,
                // The address of this server is known to whoever looks at it alone.
                before => {
                    document().location().and_then(|location| location.origin().ok()).unwrap_or_default()
                        + &before
                        + &shown
                }
            });
            say(form, "good", &attribute("data-done"), shown.as_deref());
            let next = attribute("data-next");
            if next.is_empty() { page::ask_refresh() } else { page::go(&next) }
        }
        Err(refusal) => say(form, "problem", &refusal.message, Some(&refusal.code)),
    }
}

/// The fields as an object.
fn body(form: &HtmlFormElement) -> String {
    let object = Object::new();
    let Ok(fields) = form.query_selector_all("[name]") else { return "{}".to_owned() };
    for number in 0..fields.length() {
        let Some(field) = fields.get(number).and_then(|node| node.dyn_into::<Element>().ok()) else { continue };
        let property = |name: &str| Reflect::get(&field, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED);
        let (name, value) = (property("name"), property("value"));
        let text = value.as_string().unwrap_or_default();
        let is_ticked = property("checked").is_truthy();
        let set = |value: &JsValue| {
            let _ = Reflect::set(&object, &name, value);
        };
        match field.get_attribute("data-kind").as_deref() {
            Some("flag") => set(&JsValue::from_bool(is_ticked)),
            Some("list") if is_ticked => {
                let kept = Reflect::get(&object, &name).ok().and_then(|kept| kept.dyn_into::<Array>().ok());
                let list = kept.unwrap_or_default();
                list.push(&value);
                set(&list);
            }
            Some("list") => {}
            Some("words") => set(&Array::of1(&value)),
            Some(_) => {
                if let Ok(value) = JSON::parse(&text) {
                    set(&value);
                }
            }
            None if text.is_empty() => {}
            None => set(&value),
        }
    }
    JSON::stringify(&object).ok().and_then(|text| text.as_string()).unwrap_or_default()
}

/// What is read aloud and stays until the next call; a text in code stands for itself.
fn say(form: &HtmlFormElement, class: &str, words: &str, code: Option<&str>) {
    let Some(said) = form.query_selector(".said").ok().flatten() else { return };
    said.set_text_content(None);
    for (name, class, text) in [("span", class, Some(words)), ("code", "link", code)] {
        if let Some(text) = text
            && let Ok(element) = document().create_element(name)
        {
            element.set_class_name(class);
            element.set_text_content(Some(text));
            let _ = said.append_child(&element);
        }
    }
}
