//! The keyboard: rows, selection, search, jumps.
//!
//! A row is an element with `data-row`; the current row is the one that holds the focus, so that the browser's own keys
//! (Enter opens, Tab goes on) work as everywhere.

use std::cell::Cell;

use leptos::prelude::{document, window, window_event_listener_untyped};
use wasm_bindgen::JsCast as _;
use web_sys::{
    Element, Event, HtmlDialogElement, HtmlElement, HtmlFormElement, HtmlInputElement, KeyboardEvent,
    ScrollIntoViewOptions, ScrollLogicalPosition,
};

use super::page;

/// How long after `g` the second key is accepted.
const JUMP_WAITS_MS: f64 = 1_500.0;
/// Selector of the focusable elements of a row.
const FOCUSABLE: &str = "a[href], button, summary";

/// Selector of the box that selects a row.
const ROW_BOX: &str = "main [data-row] input[type=checkbox]";

/// Fragment of the search page's address that focuses its field (`pointing.js`).
const SEARCH_FRAGMENT: &str = "#words";

thread_local! {
    /// When `g` was pressed.
    static JUMP_SINCE_MS: Cell<Option<f64>> = const { Cell::new(None) };
    /// The box of a row that was clicked last.
    static LAST_CLICKED: Cell<Option<HtmlInputElement>> = const { Cell::new(None) };
}

/// Installs the handlers of keys and clicks.
pub(super) fn listen() {
    let _ = window_event_listener_untyped("keydown", |event| {
        if let Some(event) = event.dyn_ref::<KeyboardEvent>() {
            on_key(event);
        }
    });
    let _ = window_event_listener_untyped("click", |event| {
        if within(&event, "[data-help]") {
            show_help();
        }
        if within(&event, "[data-close]") {
            fold(&event);
        }
        select_range(&event);
    });
}

fn on_key(event: &KeyboardEvent) {
    let key = event.key();
    if event.ctrl_key() || event.meta_key() || event.alt_key() || event.is_composing() || document_has_dialog() {
        return;
    }
    if key == "Escape" && fold(event) {
        return;
    }
    // Ticked boxes accept no text, so keys still work on them.
    if within(event, "input:not([type=checkbox]), textarea, select, [contenteditable]") {
        if key == "Escape" {
            blur(event);
        }
        return;
    }
    // The server renders the preference from its cookie.
    if document().document_element().is_some_and(|root| root.has_attribute("data-keys")) {
        return;
    }
    let jumps = JUMP_SINCE_MS.take().is_some_and(|since| js_sys::Date::now() - since < JUMP_WAITS_MS);
    let done = if jumps { jump(&key) } else { act(&key) };
    if done {
        event.prevent_default();
    }
}

/// Handles a key; returns whether the page uses it.
fn act(key: &str) -> bool {
    match key {
        "j" => step(1),
        "k" => step(-1),
        "x" => select_row(),
        "c" => compare(),
        "/" => search(),
        "r" => page::ask_refresh(),
        "?" => show_help(),
        "g" => JUMP_SINCE_MS.set(Some(js_sys::Date::now())),
        _ => return false,
    }
    true
}

/// Opens the section of the key that follows `g`.
fn jump(key: &str) -> bool {
    let Ok(links) = document().query_selector_all("[data-go]") else { return false };
    for number in 0..links.length() {
        let link = links.get(number).and_then(|node| node.dyn_into::<HtmlElement>().ok());
        if let Some(link) = link.filter(|link| link.get_attribute("data-go").as_deref() == Some(key)) {
            link.click();
            return true;
        }
    }
    false
}

/// Moves the focus by this many rows.
fn step(by: i32) {
    let Ok(rows) = document().query_selector_all("main [data-row]") else { return };
    let count = i32::try_from(rows.length()).unwrap_or(i32::MAX);
    let row_at = |number: i32| {
        let node = u32::try_from(number).ok().and_then(|number| rows.get(number))?;
        node.dyn_into::<Element>().ok()
    };
    let current = current_row();
    let at = (0..count).find(|number| row_at(*number).is_some() && row_at(*number) == current);
    let next = match at {
        Some(at) => at + by,
        None if by > 0 => 0,
        None => count - 1,
    };
    let Some(row) = row_at(next) else { return };
    let options = ScrollIntoViewOptions::new();
    options.set_block(ScrollLogicalPosition::Nearest);
    row.scroll_into_view_with_scroll_into_view_options(&options);
    let focusable =
        row.query_selector(FOCUSABLE).ok().flatten().and_then(|element| element.dyn_into::<HtmlElement>().ok());
    if let Some(element) = focusable {
        // A failed focus changes nothing.
        let _ = element.focus();
    }
}

fn current_row() -> Option<Element> {
    document().active_element()?.closest("[data-row]").ok().flatten()
}

fn select_row() {
    let found = current_row().and_then(|row| row.query_selector("input[type=checkbox]").ok().flatten());
    if let Some(found) = found.and_then(|element| element.dyn_into::<HtmlInputElement>().ok()) {
        found.click();
    }
}

/// Selects or deselects all rows between the clicked one and the one clicked before, on a click with Shift.
fn select_range(event: &Event) {
    let target = event.target().and_then(|target| target.dyn_into::<HtmlInputElement>().ok());
    let Some(clicked) = target.filter(|target| target.matches(ROW_BOX).unwrap_or(false)) else { return };
    let with_shift = js_sys::Reflect::get(event, &"shiftKey".into()).is_ok_and(|held| held.is_truthy());
    let before = LAST_CLICKED.replace(Some(clicked.clone())).filter(|_| with_shift);
    let (Some(before), Ok(boxes)) = (before, document().query_selector_all(ROW_BOX)) else { return };
    let boxes = (0..boxes.length()).filter_map(|number| boxes.get(number)?.dyn_into::<HtmlInputElement>().ok());
    let mut is_between = false;
    for found in boxes {
        let is_end = found == before || found == clicked;
        if is_between || is_end {
            found.set_checked(clicked.checked());
        }
        is_between ^= is_end && before != clicked;
    }
}

fn compare() {
    let found = document().query_selector("form[data-compare]").ok().flatten();
    if let Some(form) = found.and_then(|element| element.dyn_into::<HtmlFormElement>().ok()) {
        // The browser reports an incomplete form.
        let _ = form.request_submit();
    }
}

fn search() {
    let field = document().query_selector("[data-search]").ok().flatten();
    if let Some(field) = field.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
        let _ = field.focus();
        return;
    }
    // The page has no such link for visitors who may not search.
    let link = document().query_selector("[data-go=s][href]").ok().flatten();
    if let Some(href) = link.and_then(|link| link.get_attribute("href")) {
        page::go(&format!("{href}{SEARCH_FRAGMENT}"));
    }
}

fn show_help() {
    let dialog = document().get_element_by_id("help").and_then(|element| element.dyn_into::<HtmlDialogElement>().ok());
    if let Some(dialog) = dialog.filter(|dialog| !dialog.open()) {
        let _ = dialog.show_modal();
    }
}

/// Closes the confirmation or form that contains the event, and focuses the element that opened it.
fn fold(event: &Event) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
    let Some(asks) = target.and_then(|element| element.closest("details.asks[open]").ok().flatten()) else {
        return false;
    };
    let _ = asks.remove_attribute("open");
    let summary = asks.query_selector("summary").ok().flatten().and_then(|found| found.dyn_into::<HtmlElement>().ok());
    if let Some(summary) = summary {
        let _ = summary.focus();
    }
    true
}

fn document_has_dialog() -> bool {
    document().query_selector("dialog[open]").ok().flatten().is_some()
}

fn within(event: &Event, selector: &str) -> bool {
    let target = event.target().and_then(|target| target.dyn_into::<Element>().ok());
    target.and_then(|element| element.closest(selector).ok().flatten()).is_some()
}

fn blur(event: &Event) {
    if let Some(element) = event.target().and_then(|target| target.dyn_into::<HtmlElement>().ok()) {
        let _ = element.blur();
    }
    let _ = window().focus();
}
