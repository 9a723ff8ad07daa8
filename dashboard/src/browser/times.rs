//! Keeps relative times current. The server renders the absolute time.

use std::time::Duration;

use leptos::prelude::{document, set_interval};
use wasm_bindgen::JsCast as _;
use web_sys::Element;

/// Interval of the updates.
const EVERY: Duration = Duration::from_secs(5);

/// Starts updating all relative times.
pub(super) fn keep() {
    tell();
    set_interval(tell, EVERY);
}

/// Updates all relative times now.
pub(super) fn tell() {
    let Ok(found) = document().query_selector_all(".ago[data-ms]") else { return };
    let now_ms = js_sys::Date::now();
    for number in 0..found.length() {
        let Some(element) = found.get(number).and_then(|node| node.dyn_into::<Element>().ok()) else { continue };
        let Some(at_ms) = element.get_attribute("data-ms").and_then(|text| text.parse::<f64>().ok()) else { continue };
        let text = ago(now_ms - at_ms);
        if element.text_content().as_deref() != Some(text.as_str()) {
            element.set_text_content(Some(&text));
        }
    }
}

/// Formats a duration in its largest full unit. Times in the future, from clock differences, count as now.
fn ago(ms: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(86_400e3, "d"), (3_600e3, "h"), (60e3, "min"), (1e3, "s")];
    for (unit_ms, unit) in UNITS {
        if ms >= unit_ms {
            return format!("{:.0} {unit} ago", (ms / unit_ms).floor());
        }
    }
    "now".to_owned()
}
