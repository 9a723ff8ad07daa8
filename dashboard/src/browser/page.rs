//! The page as a whole: theme, navigation and reload requests.

use leptos::prelude::document;
#[cfg(feature = "hydrate")]
use leptos::prelude::window;
use wasm_bindgen::JsCast as _;
#[cfg(feature = "hydrate")]
use web_sys::CustomEvent;
use web_sys::HtmlDocument;

use crate::theme::Theme;

/// Name of the event that requests a reload of the page.
#[cfg(feature = "hydrate")]
pub(super) const REFRESH: &str = "nightshift:refresh";

/// Applies this theme to the page and to later pages.
pub(crate) fn show_theme(theme: Theme) {
    let document = document();
    if let Some(root) = document.document_element() {
        // On an error the old theme stays.
        let _ = root.set_attribute("data-theme", theme.as_str());
    }
    if let Some(document) = document.dyn_ref::<HtmlDocument>() {
        let _ = document.set_cookie(&theme.to_cookie());
    }
}

/// Opens another page of this server.
#[cfg(feature = "hydrate")]
pub(super) fn go(address: &str) {
    // On an error the visitor stays on this page.
    let _ = window().location().assign(address);
}

/// Returns the fragment of the address and removes it, so that it does not stay in the history.
#[cfg(feature = "hydrate")]
pub(super) fn take_fragment() -> Option<String> {
    let hash = window().location().hash().ok()?;
    let fragment = hash.strip_prefix('#').filter(|fragment| !fragment.is_empty())?.to_owned();
    let address = window().location().pathname().ok()? + &window().location().search().ok()?;
    let history = window().history().ok()?;
    history.replace_state_with_url(&wasm_bindgen::JsValue::NULL, "", Some(&address)).ok()?;
    Some(fragment)
}

/// Requests a reload of the page after an action that changes it.
#[cfg(feature = "hydrate")]
pub(super) fn ask_refresh() {
    if let Ok(event) = CustomEvent::new(REFRESH) {
        let _ = window().dispatch_event(&event);
    }
}
