//! The page as a whole: its colours, and asking for it to be read again.

use leptos::prelude::document;
#[cfg(feature = "hydrate")]
use leptos::prelude::window;
use wasm_bindgen::JsCast as _;
#[cfg(feature = "hydrate")]
use web_sys::CustomEvent;
use web_sys::HtmlDocument;

use crate::theme::Theme;

/// Name of the event that asks for the page to be read again.
#[cfg(feature = "hydrate")]
pub(super) const REFRESH: &str = "nightshift:refresh";

/// Shows these colours from now on, and on the pages that come.
pub(crate) fn show_theme(theme: Theme) {
    let document = document();
    if let Some(root) = document.document_element() {
        // What cannot be set stays as it was.
        let _ = root.set_attribute("data-theme", theme.as_str());
    }
    if let Some(document) = document.dyn_ref::<HtmlDocument>() {
        let _ = document.set_cookie(&theme.to_cookie());
    }
}

/// Goes to another page of ours.
#[cfg(feature = "hydrate")]
pub(super) fn go(address: &str) {
    // Where that is refused, the visitor stays where they are.
    let _ = window().location().assign(address);
}

/// What stands behind `#` in the address, and takes it away: it shall not stay in the history.
#[cfg(feature = "hydrate")]
pub(super) fn take_fragment() -> Option<String> {
    let hash = window().location().hash().ok()?;
    let fragment = hash.strip_prefix('#').filter(|fragment| !fragment.is_empty())?.to_owned();
    let address = window().location().pathname().ok()? + &window().location().search().ok()?;
    let history = window().history().ok()?;
    history.replace_state_with_url(&wasm_bindgen::JsValue::NULL, "", Some(&address)).ok()?;
    Some(fragment)
}

/// Asks for the page to be read again soon: something was done that changes it.
#[cfg(feature = "hydrate")]
pub(super) fn ask_refresh() {
    if let Ok(event) = CustomEvent::new(REFRESH) {
        let _ = window().dispatch_event(&event);
    }
}
