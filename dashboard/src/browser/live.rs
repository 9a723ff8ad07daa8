//! Following what a page shows: a stream of events says that something changed, then the page is read again.
//!
//! One stream per tab, and none while the tab is hidden: a browser opens six connections to a server, and a seventh tab
//! would otherwise see nothing at all. Where there is no stream, the page is read every few seconds. A stream that is silent
//! for longer than two heartbeats is dead, whatever the browser thinks of it: it is given up, and the page says since when
//! it is old.

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

/// Kinds of events after which the page has to be read again. `opened` is among them: what changed between the reading of
/// the page and the beginning of the stream is told by nothing else.
const KINDS: [&str; 5] = ["opened", "resync", "run_changed", "campaign_changed", "worker_changed"];
/// How often a page is read without a stream.
const POLL: Duration = Duration::from_secs(3);
/// Shortest time between two readings: events come in bursts.
const PAUSE: Duration = Duration::from_millis(80);
/// What a server says when it has nothing to say.
const HEARTBEAT: &str = "heartbeat";
/// How often it says that, until it told it.
const HEARTBEAT_MS: f64 = 15_000.0;
/// What a heartbeat may be late.
const LATE_MS: f64 = 2_000.0;

thread_local! {
    static SOURCE: RefCell<Option<EventSource>> = const { RefCell::new(None) };
    /// The question that the stream answers.
    static ASKED: RefCell<Option<String>> = const { RefCell::new(None) };
    static READING: Cell<bool> = const { Cell::new(false) };
    /// Whether something changed while the page was being read.
    static AGAIN: Cell<bool> = const { Cell::new(false) };
    static POLLS: Cell<bool> = const { Cell::new(false) };
    /// How often the stream says something at least.
    static EVERY_MS: Cell<f64> = const { Cell::new(HEARTBEAT_MS) };
    /// When the stream said something, or was opened.
    static HEARD_MS: Cell<f64> = const { Cell::new(0.0) };
    /// Until when the page is known to be what the server knows.
    static CURRENT_MS: Cell<f64> = const { Cell::new(0.0) };
}

/// Follows what the page shows, when it shows something that changes.
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
    // A page that the browser had put aside is old when it comes back.
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

/// Ends a stream that missed two heartbeats; from then on the page is read until there is a new one.
fn give_up_when_silent() {
    let is_open = SOURCE.with_borrow(Option::is_some);
    if is_open && js_sys::Date::now() - HEARD_MS.get() > 2.0 * EVERY_MS.get() + LATE_MS {
        close();
        POLLS.set(true);
        link::tell(&Link::Offline(clock()));
    }
}

/// Takes down that the stream lives.
fn hear(event: &Event) {
    let now_ms = js_sys::Date::now();
    HEARD_MS.set(now_ms);
    if event.type_() == HEARTBEAT {
        // Nothing happened since the last event, after which the page was read.
        CURRENT_MS.set(now_ms);
    }
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

/// What the page says that it is about; nothing when it does not change.
fn question() -> Option<String> {
    document().get_element_by_id("main")?.get_attribute("data-live")
}

fn close() {
    if let Some(source) = SOURCE.take() {
        source.close();
    }
    ASKED.set(None);
}

/// Opens the stream that the page needs; keeps the one that is open when it is the same.
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
        if event.type_() != HEARTBEAT {
            read_again();
        }
    });
    for kind in KINDS.into_iter().chain([HEARTBEAT]) {
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
            // The browser opens it no more: the next reading, which is not far, does.
            close();
        } else {
            // A stream that broke is opened again by the browser. Whether the server is there at all, reading tells.
            read_again();
        }
    });
    source.set_onerror(Some(on_error.as_ref().unchecked_ref()));
    on_error.forget();
    SOURCE.set(Some(source));
    ASKED.set(Some(query));
}

/// Reads the page and shows what is new. What happens meanwhile is read once more.
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
                if question().is_some() {
                    link::tell(if is_live { &Link::Live } else { &Link::Polling });
                }
            }
            Answer::Refused(status) => link::tell(&Link::Refused(status)),
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

/// Makes the page that is shown into the one that was read.
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

/// Since when the page may be old: a time of day, UTC like every other time of the pages.
fn clock() -> String {
    let iso: String = js_sys::Date::new(&JsValue::from_f64(CURRENT_MS.get())).to_iso_string().into();
    format!("{} UTC", iso.get(11..19).unwrap_or(&iso))
}
