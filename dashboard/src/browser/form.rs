//! Forms that call the API. A `<form data-call="POST /api/v1/…">` is sent as JSON with the visitor's rights. The form
//! shows the result.
//!
//! Field names are the member names of the body. `data-kind` gives the type of fields that are not texts:
//!
//! - `json`: the value as written
//! - `flag`: whether a box is ticked
//! - `list`: a box whose value is one of several under its name
//! - `words`: a list of this one text
//!
//! Empty texts and values are omitted. `data-done` is the message of success. `data-shows` names a text of the answer to
//! show once, after the path `data-before` of this server. `data-next` is the page to open.
//! The sign-in form has a `data-link`: how to handle the secret of a shared link, which follows `#` in the address.

use js_sys::{Array, JSON, Object, Reflect};
use leptos::prelude::{document, window_event_listener_untyped};
use leptos::task::spawn_local;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{Element, HtmlFormElement, HtmlInputElement};

use super::{fetch, page};

/// Prefix of the secrets of shared links.
const LINK_PREFIX: &str = "nsh_";
/// Selector of the fields with the attempts to compare, from this page and from earlier ones.
const CHOSEN: &str = "main [name=a]:checked, form[data-compare] input[type=hidden][name=a]";

/// Installs the handler of every form with `data-call`.
pub(super) fn listen() {
    let _ = window_event_listener_untyped("submit", |event| {
        let target = event.target().and_then(|target| target.dyn_into::<HtmlFormElement>().ok());
        let Some(form) = target else { return };
        let is_short = |chosen: web_sys::NodeList| chosen.length() < 2;
        if form.has_attribute("data-compare") && document().query_selector_all(CHOSEN).is_ok_and(is_short) {
            event.prevent_default();
            say(&form, "problem", "Choose two or more first: with their boxes, or with x.", None);
            return;
        }
        let Some(call) = form.get_attribute("data-call") else { return };
        event.prevent_default();
        // A form that is being sent is not sent again.
        if !form.has_attribute("data-busy") && form.set_attribute("data-busy", "").is_ok() {
            spawn_local(async move {
                send(&form, &call).await;
                let _ = form.remove_attribute("data-busy");
            });
        }
    });
}

/// Handles a shared link, which carries its secret after `#`. A session that can read the page stays. Before the link
/// replaces another session, the page asks.
pub(super) fn take_link() {
    let found = |selector: &str| document().query_selector(selector).ok().flatten();
    let form = found("form[data-link]").and_then(|form| form.dyn_into::<HtmlFormElement>().ok());
    let field = found("form[data-link] [name=token]").and_then(|field| field.dyn_into::<HtmlInputElement>().ok());
    let (Some(form), Some(field)) = (form, field) else { return };
    let Some(secret) = page::take_fragment().filter(|secret| secret.starts_with(LINK_PREFIX)) else { return };
    let link = form.get_attribute("data-link").unwrap_or_default();
    if link == "keep" {
        return page::go(&form.get_attribute("data-next").unwrap_or_default());
    }
    field.set_value(&secret);
    if link == "ask" {
        say(
            &form,
            "busy",
            "The secret of the link is in the field. Signing in with it ends the session that you have.",
            None,
        );
    } else {
        // The browser reports an incomplete form.
        let _ = form.request_submit();
    }
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
                // Only the browser knows the address at which it reaches this server.
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

/// Returns the fields as an object.
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

/// Shows a message, which screen readers announce, until the next call.
pub(super) fn say(form: &HtmlFormElement, class: &str, words: &str, code: Option<&str>) {
    let Some(said) = form.query_selector(".said").ok().flatten() else { return };
    said.set_text_content(None);
    // A secret that is shown once gets a button to copy it.
    let shown = form.get_attribute("data-key").filter(|_| class == "good" && code.is_some());
    let copy = shown.as_ref().map(|_| "Copy");
    for (name, class, text) in [("span", class, Some(words)), ("code", "link", code), ("button", "plain", copy)] {
        if let Some(text) = text
            && let Ok(element) = document().create_element(name)
        {
            element.set_class_name(class);
            element.set_text_content(Some(text));
            if let Some(key) = shown.as_deref().filter(|_| name != "span") {
                let _ = element.set_attribute(if name == "code" { "id" } else { "data-copy" }, key);
                if name == "button" {
                    let _ = element.set_attribute("type", name);
                }
            }
            let _ = said.append_child(&element);
        }
    }
}
