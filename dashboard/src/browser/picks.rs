//! Attempts that are selected for comparison. The address holds the selection, and links to the same list keep it.

use leptos::prelude::{document, window, window_event_listener_untyped};
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{Element, Event, HtmlFormElement, HtmlInputElement};

use super::form::say;
use super::query;

/// Selector of the boxes that select attempts.
const BOXES: &str = "main input[type=checkbox][name=a]";

/// Installs the handler of the boxes.
pub(super) fn listen() {
    let _ = window_event_listener_untyped("change", |event| {
        if is_of_box(&event) {
            if let Some(form) = form() {
                say(&form, "quiet", "", None);
            }
            tell();
        }
    });
    // A page from the browser's back-forward cache keeps its ticked boxes.
    let _ = window_event_listener_untyped("pageshow", |_| tell());
    tell();
}

/// Updates the address and the links from the boxes. Selected attempts without a box on this page stay selected.
pub(super) fn tell() {
    let (Some(form), Some(here)) = (form(), here()) else { return };
    let picks = chosen(&form, query::picks(&here));
    let there = query::with_picks(&here, &picks);
    if there != here
        && let Ok(history) = window().history()
    {
        // On an error only the boxes hold the selection.
        let _ = history.replace_state_with_url(&history.state().unwrap_or(JsValue::NULL), "", Some(&there));
    }
    keep_in_links(&there, &picks);
    keep_in_forms(&picks);
}

/// Merges the earlier selection with the boxes. Boxes beyond the maximum are unticked with a message.
fn chosen(form: &HtmlFormElement, before: Vec<String>) -> Vec<String> {
    let most = form.get_attribute("data-compare").and_then(|most| most.parse().ok()).unwrap_or(usize::MAX);
    let boxes: Vec<HtmlInputElement> = all(BOXES);
    let mut picks = before;
    picks.truncate(most);
    picks.retain(|name| !boxes.iter().any(|found| !found.checked() && found.value() == *name));
    let mut is_too_much = false;
    for found in boxes.iter().filter(|found| found.checked()) {
        if picks.contains(&found.value()) {
            continue;
        }
        if picks.len() < most {
            picks.push(found.value());
        } else {
            found.set_checked(false);
            is_too_much = true;
        }
    }
    if is_too_much {
        let words = format!("At most {most} are compared: take one away before you choose another one.");
        say(form, "problem", &words, None);
    }
    picks
}

/// Updates the links to this list, and other links that the page marks.
fn keep_in_links(here: &str, picks: &[String]) {
    let path = path_of(here);
    for link in all::<Element>("main a[href]:not([data-unpick])") {
        let href = link.get_attribute("href").unwrap_or_default();
        let is_same_list = !href.starts_with('#') && path_of(&href) == path;
        if is_same_list || link.has_attribute("data-picks") {
            set(&link, &href, &query::with_picks(&href, picks));
        }
    }
    let (rest, _) = here.split_once('#').unwrap_or((here, ""));
    let (_, query) = rest.split_once('?').unwrap_or((rest, ""));
    // A saved view includes the selection.
    for link in all::<Element>("main .keep a[href]") {
        let href = link.get_attribute("href").unwrap_or_default();
        let escaped: String = js_sys::encode_uri_component(query).into();
        set(&link, &href, &query::with(&href, "query", &escaped));
    }
}

fn set(link: &Element, href: &str, wanted: &str) {
    if href != wanted {
        let _ = link.set_attribute("href", wanted);
    }
}

fn keep_in_forms(picks: &[String]) {
    for field in all::<HtmlInputElement>("main input[type=hidden][name=pick]") {
        field.set_value(&picks.join(","));
    }
}

fn path_of(address: &str) -> &str {
    address.split(['?', '#']).next().unwrap_or_default()
}

/// Returns path, query and fragment of the page.
fn here() -> Option<String> {
    let location = window().location();
    Some(location.pathname().ok()? + &location.search().ok()? + &location.hash().ok()?)
}

fn form() -> Option<HtmlFormElement> {
    document().query_selector("form[data-compare]").ok().flatten()?.dyn_into().ok()
}

fn is_of_box(event: &Event) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
    target.is_some_and(|target| target.matches(BOXES).unwrap_or(false))
}

fn all<T: wasm_bindgen::JsCast>(selector: &str) -> Vec<T> {
    let Ok(found) = document().query_selector_all(selector) else { return Vec::new() };
    (0..found.length()).filter_map(|number| found.get(number)?.dyn_into().ok()).collect()
}
