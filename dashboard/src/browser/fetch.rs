//! Calls the API and reads pages with `fetch`.

use js_sys::Reflect;
use leptos::prelude::window;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortSignal, Headers, RequestInit, Response};

/// Header with the idempotency key.
const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// Status of an answer to a visitor without a session.
const UNAUTHORIZED: u16 = 401;
/// Time limit for reading a page, for connections that died silently.
const ANSWERS_WITHIN_MS: u32 = 30_000;

/// The error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Stable code.
    pub(super) code: String,
    /// Message for people.
    pub(super) message: String,
}

impl Refusal {
    fn unreachable() -> Self {
        Self {
            code: "server.unreachable".to_owned(),
            message: "The server does not answer. Nothing was changed, as far as is known: try again.".to_owned(),
        }
    }
}

/// Sends a call and returns the text field of this name from the answer.
pub(super) async fn ask(method: &str, path: &str, body: Option<&str>, shows: &str) -> Result<Option<String>, Refusal> {
    let response = call(method, path, body, Some(&new_key())).await?;
    if shows.is_empty() {
        return Ok(None);
    }
    let answer = JsFuture::from(response.json().map_err(|_| Refusal::unreachable())?).await;
    let value = answer.and_then(|answer| Reflect::get(&answer, &JsValue::from_str(shows)));
    Ok(value.ok().and_then(|value| value.as_string()))
}

/// Sends a call with a content type that forms of other sites cannot send.
async fn call(method: &str, path: &str, body: Option<&str>, key: Option<&str>) -> Result<Response, Refusal> {
    let headers = Headers::new().map_err(|_| Refusal::unreachable())?;
    let named = headers.set("content-type", "application/json");
    let keyed = key.map_or(Ok(()), |key| headers.set(IDEMPOTENCY_HEADER, key));
    named.and(keyed).map_err(|_| Refusal::unreachable())?;
    let init = RequestInit::new();
    init.set_method(method);
    init.set_headers(&headers);
    if let Some(body) = body {
        init.set_body(&JsValue::from_str(body));
    }
    let answer = JsFuture::from(window().fetch_with_str_and_init(path, &init)).await;
    let response: Response = answer.and_then(JsCast::dyn_into).map_err(|_| Refusal::unreachable())?;
    if response.ok() { Ok(response) } else { Err(refusal(&response).await) }
}

/// Reads code and message from an error answer of the API.
async fn refusal(response: &Response) -> Refusal {
    let body = match response.json() {
        Ok(promise) => JsFuture::from(promise).await.unwrap_or(JsValue::NULL),
        Err(_) => JsValue::NULL,
    };
    let field = |value: &JsValue, name: &str| Reflect::get(value, &JsValue::from_str(name)).ok();
    let error = field(&body, "error").unwrap_or(JsValue::NULL);
    let text = |name: &str| field(&error, name).and_then(|value| value.as_string());
    match (text("code"), text("message")) {
        (Some(code), Some(mut message)) => {
            // The code follows it.
            if !message.ends_with(['.', '!', '?']) {
                message.push('.');
            }
            Refusal { code, message }
        }
        _ => Refusal {
            code: "server.not_understood".to_owned(),
            message: format!("The server answered {} without saying why.", response.status()),
        },
    }
}

/// Returns a new idempotency key.
fn new_key() -> String {
    format!("page-{:.0}-{:.0}", js_sys::Date::now(), js_sys::Math::random() * 1e15)
}

/// The result of reading a page.
pub(super) enum Answer {
    /// The HTML of the page.
    Page(String),
    /// The server answered with this error status.
    Refused(u16),
    /// The server did not answer.
    Unreachable,
}

/// Reads a page of this server.
pub(super) async fn page(address: &str) -> Answer {
    let init = RequestInit::new();
    init.set_cache(web_sys::RequestCache::NoStore);
    init.set_signal(Some(&AbortSignal::timeout_with_u32(ANSWERS_WITHIN_MS)));
    let answer = JsFuture::from(window().fetch_with_str_and_init(address, &init)).await;
    let Ok(response) = answer.and_then(JsCast::dyn_into::<Response>) else { return Answer::Unreachable };
    // The session ended: the server redirects to the page that signs in.
    if response.redirected() {
        return Answer::Refused(UNAUTHORIZED);
    }
    if !response.ok() {
        return Answer::Refused(response.status());
    }
    let Ok(promise) = response.text() else { return Answer::Unreachable };
    match JsFuture::from(promise).await.map(|text| text.as_string()) {
        Ok(Some(text)) => Answer::Page(text),
        _ => Answer::Unreachable,
    }
}
