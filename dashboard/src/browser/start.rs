//! The beginning: called once by `boot.js`, before islands are woken.

use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use super::{copy, form, keyboard, live, picks, times};

/// Makes the page alive; islands follow one by one.
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
