//! Traces that follow a run across processes, in the words of OpenTelemetry.
//!
//! Nothing has to be remembered or passed on for the spans of a run to fit together, because their ids are computed: the
//! trace is the run's UUID, and the span of a try comes from its step and its lease epoch. Every server and
//! every worker that knows the lease can compute the span.

use serde_json::{Value, json};

use crate::id::{RunId, StepId};
use crate::time::TimestampMs;

/// Header that says where a request belongs (W3C trace context).
pub const TRACEPARENT_HEADER: &str = "traceparent";
/// Nanoseconds of a millisecond.
const MS_NS: i128 = 1_000_000;

/// A trace: all spans of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// A span within a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// The trace of a run: its UUID.
    #[must_use]
    pub fn of_run(run: &RunId) -> Self {
        let digits = run.as_str().strip_prefix(RunId::PREFIX).unwrap_or_default();
        Self(from_hex(digits).unwrap_or_default())
    }
}

impl SpanId {
    /// The span of a run as a whole.
    #[must_use]
    pub fn of_run(run: &RunId) -> Self {
        Self::derived(&[run.as_str()])
    }

    /// The span of one try of a step.
    #[must_use]
    pub fn of_try(step: &StepId, epoch: u64) -> Self {
        Self::derived(&[step.as_str(), &epoch.to_string()])
    }

    /// The span that these texts name; equal texts name the same one.
    #[must_use]
    pub fn derived(parts: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part.as_bytes()).update(b"\0");
        }
        let mut id = [0; 8];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self(id)
    }
}

impl std::fmt::Display for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Display for SpanId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A place in a trace, as requests carry it: `00-TRACE-SPAN-01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The span that caused the request.
    pub span: SpanId,
}

impl TraceParent {
    /// The place of a try in the trace of its run.
    #[must_use]
    pub fn of_try(run: &RunId, step: &StepId, epoch: u64) -> Self {
        Self { trace: TraceId::of_run(run), span: SpanId::of_try(step, epoch) }
    }

    /// Reads a header; none when it is not well-formed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version: [u8; 1] = from_hex(version)?;
        let _flags: [u8; 1] = from_hex(flags)?;
        let (trace, span): ([u8; 16], [u8; 8]) = (from_hex(trace)?, from_hex(span)?);
        let well_formed = version != [0xff] && (version != [0] || parts.next().is_none());
        (well_formed && trace != [0; 16] && span != [0; 8])
            .then_some(Self { trace: TraceId(trace), span: SpanId(span) })
    }
}

impl std::fmt::Display for TraceParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() != N * 2 || !text.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// What a span is about, as OpenTelemetry counts kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Something within a process.
    Internal,
    /// A request that was answered.
    Server,
    /// A request that was made.
    Client,
    /// Work that was taken from a queue.
    Consumer,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(String),
    /// A number.
    Int(i64),
}

impl From<&str> for SpanValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// Something that took its time, over now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// The span that it is part of.
    pub parent: Option<SpanId>,
    /// What it is, with few different values.
    pub name: String,
    /// What it is about.
    pub kind: SpanKind,
    /// When it began.
    pub begin: TimestampMs,
    /// When it ended.
    pub end: TimestampMs,
    /// Facts about it.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Where finished spans go. Never waits and never fails: what cannot be sent is dropped and counted.
pub trait SpanSink: Send + Sync {
    /// Takes a span.
    fn take(&self, span: Span);
}

/// The body of an OTLP/HTTP request in JSON, with the spans of one process.
#[must_use]
pub fn otlp_request(service: &str, version: &str, instance: &str, spans: &[Span]) -> Value {
    json!({
        "resourceSpans": [{
            "resource": { "attributes": [
                attribute("service.name", &service.into()),
                attribute("service.version", &version.into()),
                attribute("service.instance.id", &instance.into()),
            ] },
            "scopeSpans": [{
                "scope": { "name": "nightshift", "version": version },
                "spans": spans.iter().map(otlp_span).collect::<Vec<_>>(),
            }],
        }],
    })
}

fn otlp_span(span: &Span) -> Value {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
        SpanKind::Consumer => 5,
    };
    // 64-bit numbers are texts in the JSON of protocol buffers.
    let nanos = |at: TimestampMs| (i128::from(at.0.max(0)) * MS_NS).to_string();
    let mut value = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.begin),
        "endTimeUnixNano": nanos(span.end.max(span.begin)),
        "attributes": span.attributes.iter().map(|(key, value)| attribute(key, value)).collect::<Vec<_>>(),
        "status": match &span.error {
            None => json!({ "code": 1 }),
            Some(message) => json!({ "code": 2, "message": message }),
        },
    });
    if let Some(parent) = span.parent {
        value["parentSpanId"] = json!(parent.to_string());
    }
    value
}

fn attribute(key: &str, value: &SpanValue) -> Value {
    let value = match value {
        SpanValue::Text(text) => json!({ "stringValue": text }),
        SpanValue::Int(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": key, "value": value })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn place() -> TraceParent {
        let run = RunId::from_uuid(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        TraceParent::of_try(&run, &StepId::from_uuid(Uuid::from_u128(9)), 3)
    }

    #[test]
    fn the_trace_of_a_run_is_its_uuid_and_the_header_reads_back() {
        let text = place().to_string();
        assert!(text.starts_with("00-0123456789abcdef0123456789abcdef-"), "{text}");
        assert_eq!(TraceParent::parse(&text), Some(place()));
    }

    #[test]
    fn each_try_has_a_span_of_its_own() {
        let step = StepId::from_uuid(Uuid::from_u128(9));
        assert_ne!(SpanId::of_try(&step, 1), SpanId::of_try(&step, 2));
        assert_eq!(SpanId::of_try(&step, 1), SpanId::of_try(&step, 1));
    }

    #[test]
    fn a_header_that_is_not_well_formed_names_no_place() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        for text in [
            String::new(),
            format!("00-{trace}-b7ad6b7169203331"),
            format!("00-{trace}-b7ad6b7169203331-01-02"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
        assert!(TraceParent::parse(&format!("01-{trace}-b7ad6b7169203331-01-later")).is_some());
    }

    #[test]
    fn a_span_is_written_as_otlp_wants_it() {
        let span = Span {
            trace: place().trace,
            id: place().span,
            parent: Some(SpanId::derived(&["run"])),
            name: "build".to_owned(),
            kind: SpanKind::Consumer,
            begin: TimestampMs(1_000),
            end: TimestampMs(2_500),
            attributes: vec![("step.tries", 2_u64.into())],
            error: Some("toolchain.failed".to_owned()),
        };
        let body = otlp_request("nightshift", "0.1.0", "srv_1", &[span]);
        let written = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(written["startTimeUnixNano"], "1000000000");
        assert_eq!(written["endTimeUnixNano"], "2500000000");
        assert_eq!(written["attributes"][0]["value"]["intValue"], "2");
        assert_eq!((written["kind"].clone(), written["status"]["code"].clone()), (json!(5), json!(2)));
        assert_eq!(written["spanId"].as_str().unwrap().len(), 16);
    }
}
