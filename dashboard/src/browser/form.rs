//! Forms that are calls of the API: what a page offers with `<form data-call="POST /api/v1/…">` is sent as JSON, with the
//! rights of the visitor, and what came of it is said within the form.
//!
//! Fields are named like the members of the body. A `data-kind` says what a field is, where it is no text: `json` (the
//! value as it is written), `flag` (whether a box is ticked), `list` (a box whose value is one of several under its name), `words`
//! (a list of this one text).
//! Texts and values that are empty are left out. `data-done` is said when it is done, `data-shows` names a text of the
//! answer that is shown this once, behind the path `data-before` of this server, and `data-next` is the page to go to.
//! The form that signs in has a `data-link`: what becomes of the secret of a link, which stands behind `#` in the address.

use js_sys::{Array, JSON, Object, Reflect};
use leptos::prelude::{document, window_event_listener_untyped};
use leptos::task::spawn_local;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{Element, HtmlFormElement, HtmlInputElement};

use super::{fetch, page};

/// How the secrets of links begin.
const LINK_PREFIX: &str = "nsh_";
/// What was chosen to be compared, on this page and before on others.
const CHOSEN: &str = "main [name=a]:checked, form[data-compare] input[type=hidden][name=a]";

/// Listens to every such form.
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
        // What is on its way is not sent a second time.
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
        // A form that is not complete says so itself.
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
pub(super) fn say(form: &HtmlFormElement, class: &str, words: &str, code: Option<&str>) {
    let Some(said) = form.query_selector(".said").ok().flatten() else { return };
    said.set_text_content(None);
    // What is shown this once can be copied, by the name of its form.
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
