//! Error reports of providers, in JSON.

use serde_json::Value;

/// Whether a JSON value is an error report of any of the known servers.
pub(super) fn is_provider_error(value: &Value) -> bool {
    value.get("error").is_some_and(|error| !error.is_null())
        || value.get("object").and_then(Value::as_str) == Some("error")
        || value.get("type").and_then(Value::as_str) == Some("error")
}

fn inner(report: &Value) -> &Value {
    report.get("error").filter(|error| !error.is_null()).unwrap_or(report)
}

/// The machine-readable words of an error report, in lower case.
pub(super) fn kind_of(report: &Value) -> String {
    let inner = inner(report);
    ["type", "code"]
        .iter()
        .filter_map(|field| inner.get(field).and_then(Value::as_str))
        .collect::<Vec<_>>()
        .join(" ")
        .to_ascii_lowercase()
}

/// Some servers put the status that they would have sent into the report.
pub(super) fn status_within(report: &Value) -> Option<u16> {
    let status = inner(report).get("code")?.as_u64()?;
    u16::try_from(status).ok().filter(|status| (400..600).contains(status))
}

pub(super) fn message_of(report: &Value) -> String {
    let inner = inner(report);
    match (inner, inner.get("message").and_then(Value::as_str)) {
        (_, Some(message)) => message.to_owned(),
        (Value::String(text), None) => text.clone(),
        (other, None) => other.to_string(),
    }
}
