//! The entry point: `boot.js` calls it once, before it starts islands.

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::{copy, form, keyboard, live, picks, times};

/// Installs all handlers of the page. `boot.js` starts the islands afterwards.
#[wasm_bindgen]
pub fn start() {
    std::panic::set_hook(Box::new(|info| web_sys::console::error_1(&JsValue::from_str(&info.to_string()))));
    leptos::mount::hydrate_islands();
    times::keep();
    keyboard::listen();
    copy::listen();
    form::listen();
    form::take_link();
    picks::listen();
    live::follow();
}
