//! Live updates: an event stream reports changes, then the page is read again. Heartbeats of an idle stream count as
//! events, because readings of workers and claims of steps make no event.
//!
//! Each visible tab has one stream. Hidden tabs have none, because a browser opens at most six connections to a server.
//! Without a stream, the page is read every few seconds. A stream that misses two heartbeats is closed, and the page shows
//! the time of its last update.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use js_sys::{JSON, Reflect};
use leptos::prelude::{document, set_interval, set_timeout, window, window_event_listener_untyped};
use leptos::task::spawn_local;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{DomParser, Element, Event, EventSource, SupportedType, VisibilityState};

use super::fetch::{self, Answer};
use super::link::{self, Link};
use super::{morph, page, picks, times};

/// Kinds of events after which the page is read again. `opened` is one of them, for changes between reading the page and
/// opening the stream.
const KINDS: [&str; 6] = ["opened", "resync", "run_changed", "campaign_changed", "worker_changed", "heartbeat"];
/// Interval of reading the page without a stream.
const POLL: Duration = Duration::from_secs(3);
/// Minimum interval between two reads, because events come in bursts.
const PAUSE: Duration = Duration::from_millis(80);
/// Heartbeat interval until the server states it.
const HEARTBEAT_MS: f64 = 15_000.0;
/// Tolerance for late heartbeats.
const LATE_MS: f64 = 2_000.0;

thread_local! {
    static SOURCE: RefCell<Option<EventSource>> = const { RefCell::new(None) };
    /// Query of the stream.
    static ASKED: RefCell<Option<String>> = const { RefCell::new(None) };
    static READING: Cell<bool> = const { Cell::new(false) };
    /// Whether something changed while the page was being read.
    static AGAIN: Cell<bool> = const { Cell::new(false) };
    /// True while the page is read every few seconds, because there is no stream or the last read failed.
    static POLLS: Cell<bool> = const { Cell::new(false) };
    /// Heartbeat interval of the stream.
    static EVERY_MS: Cell<f64> = const { Cell::new(HEARTBEAT_MS) };
    /// Time of the last event or of the opening.
    static HEARD_MS: Cell<f64> = const { Cell::new(0.0) };
    /// Time up to which the page is known to be current.
    static CURRENT_MS: Cell<f64> = const { Cell::new(0.0) };
}

/// Starts live updates, when the page shows data that changes.
pub(super) fn follow() {
    CURRENT_MS.set(js_sys::Date::now());
    let _ = window_event_listener_untyped(page::REFRESH, |_| read_again());
    let on_visibility = Closure::<dyn Fn()>::new(|| {
        if is_hidden() {
            close();
        } else {
            connect();
            read_again();
        }
    });
    let _ = document().add_event_listener_with_callback("visibilitychange", on_visibility.as_ref().unchecked_ref());
    on_visibility.forget();
    // A page from the browser's back-forward cache is outdated.
    let _ = window_event_listener_untyped("pageshow", |_| connect());
    let _ = window_event_listener_untyped("pagehide", |_| close());
    set_interval(
        || {
            if question().is_some() && !is_hidden() {
                give_up_when_silent();
                if POLLS.get() {
                    read_again();
                }
            }
        },
        POLL,
    );
    connect();
}

/// Closes a stream that missed two heartbeats. The page is polled until there is a new stream.
fn give_up_when_silent() {
    let is_open = SOURCE.with_borrow(Option::is_some);
    if is_open && js_sys::Date::now() - HEARD_MS.get() > 2.0 * EVERY_MS.get() + LATE_MS {
        close();
        POLLS.set(true);
        link::tell(&Link::Offline(clock()));
    }
}

/// Records that the stream is alive.
fn hear(event: &Event) {
    HEARD_MS.set(js_sys::Date::now());
    if event.type_() == "opened" {
        let data = Reflect::get(event, &JsValue::from_str("data")).ok().and_then(|data| data.as_string());
        let told = data.and_then(|text| JSON::parse(&text).ok());
        let every_ms = told.and_then(|told| Reflect::get(&told, &JsValue::from_str("heartbeat_ms")).ok());
        let every_ms = every_ms.and_then(|value| value.as_f64());
        EVERY_MS.set(every_ms.filter(|ms| *ms > 0.0).unwrap_or(HEARTBEAT_MS));
    }
}

fn is_hidden() -> bool {
    document().visibility_state() == VisibilityState::Hidden
}

/// Returns the query of the page's stream; `None` when the page does not change.
fn question() -> Option<String> {
    document().get_element_by_id("main")?.get_attribute("data-live")
}

fn close() {
    if let Some(source) = SOURCE.take() {
        source.close();
    }
    ASKED.set(None);
}

/// Opens the stream of the page, unless it is already open.
fn connect() {
    let wanted = question();
    if wanted.is_none() {
        close();
        link::tell(&Link::Still);
        return;
    }
    if is_hidden() || ASKED.with_borrow(|asked| *asked == wanted) {
        return;
    }
    close();
    let Some(query) = wanted else { return };
    let Ok(source) = EventSource::new(&format!("/api/v1/live?{query}")) else {
        POLLS.set(true);
        return;
    };
    HEARD_MS.set(js_sys::Date::now());
    let on_event = Closure::<dyn Fn(Event)>::new(|event: Event| {
        hear(&event);
        read_again();
    });
    for kind in KINDS {
        let _ = source.add_event_listener_with_callback(kind, on_event.as_ref().unchecked_ref());
    }
    on_event.forget();
    let on_open = Closure::<dyn Fn()>::new(|| {
        POLLS.set(false);
        link::tell(&Link::Live);
    });
    source.set_onopen(Some(on_open.as_ref().unchecked_ref()));
    on_open.forget();
    let on_error = Closure::<dyn Fn()>::new(|| {
        let is_over =
            SOURCE.with_borrow(|source| source.as_ref().is_none_or(|s| s.ready_state() == EventSource::CLOSED));
        POLLS.set(true);
        if is_over {
            // The browser does not reopen this stream. The next read does.
            close();
        } else {
            // The browser reopens a broken stream. Reading the page shows whether the server answers.
            read_again();
        }
    });
    source.set_onerror(Some(on_error.as_ref().unchecked_ref()));
    on_error.forget();
    SOURCE.set(Some(source));
    ASKED.set(Some(query));
}

/// Reads the page and applies the changes. Changes during the read cause another read.
fn read_again() {
    if READING.replace(true) {
        AGAIN.set(true);
        return;
    }
    spawn_local(async {
        let location = window().location();
        let address = format!("{}{}", location.pathname().unwrap_or_default(), location.search().unwrap_or_default());
        match fetch::page(&address).await {
            Answer::Page(text) => {
                CURRENT_MS.set(js_sys::Date::now());
                show(&text);
                let is_live = SOURCE.with_borrow(|s| s.as_ref().is_some_and(|s| s.ready_state() == EventSource::OPEN));
                if is_live {
                    POLLS.set(false);
                }
                if question().is_some() {
                    link::tell(if is_live { &Link::Live } else { &Link::Polling });
                }
            }
            Answer::Refused(status) => {
                POLLS.set(true);
                link::tell(&Link::Refused(status));
            }
            Answer::Unreachable => {
                POLLS.set(true);
                link::tell(&Link::Offline(clock()));
            }
        }
        set_timeout(
            || {
                READING.set(false);
                if AGAIN.take() {
                    read_again();
                }
            },
            PAUSE,
        );
    });
}

/// Updates the document to the HTML that was read.
fn show(text: &str) {
    let Some(read) = DomParser::new().ok().and_then(|p| p.parse_from_string(text, SupportedType::TextHtml).ok()) else {
        return;
    };
    let parts: (Option<Element>, Option<Element>) =
        (document().get_element_by_id("main"), read.get_element_by_id("main"));
    if let (Some(old), Some(new)) = parts {
        document().set_title(&read.title());
        morph::morph(&old, &new);
        times::tell();
        picks::tell();
        connect();
    }
}

/// Returns the time of the last update: time of day in UTC, as all times of the pages.
fn clock() -> String {
    let iso: String = js_sys::Date::new(&JsValue::from_f64(CURRENT_MS.get())).to_iso_string().into();
    format!("{} UTC", iso.get(11..19).unwrap_or(&iso))
}
