//! Reads traces in the JSON format of Chrome's trace events, as profilers store them.
//!
//! A stored trace comes from a worker. It is read into rows of spans with bounds on everything; what is not well formed
//! is counted and left out.

mod chrome;

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) use self::chrome::{of_steps, well_formed};

/// Largest trace that is read for a page.
pub(crate) const MAX_TRACE_BYTES: usize = 32 << 20;
/// Maximum number of spans that are read.
const MAX_SPANS: usize = 200_000;
/// Maximum number of rows.
const MAX_ROWS: usize = 64;
/// Longest name that is kept.
const MAX_NAME_CHARS: usize = 300;

/// A trace that cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// The trace exceeds the size limit.
    #[error(
        "the trace is {size_bytes} bytes large, more than the {MAX_TRACE_BYTES} that a page reads: download it instead"
    )]
    TooLarge {
        /// Its size.
        size_bytes: usize,
    },
    /// The trace is malformed.
    #[error("the stored trace is no JSON: it was damaged, or written by something else")]
    NotJson {
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It has no list of events.
    #[error("the stored trace has no `traceEvents`: it was written by something else")]
    NoEvents,
}

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowKind {
    /// Calls of the program under test.
    Calls,
    /// Calls of the CUDA interfaces, by one thread.
    Api,
    /// Kernels on one stream.
    Kernels,
    /// Copies and sets on one stream.
    Copies,
    /// Anything else.
    Other,
}

impl RowKind {
    /// The class of its spans.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Api => "api",
            Self::Kernels => "kernels",
            Self::Copies => "copies",
            Self::Other => "other",
        }
    }

    /// Returns whether it is work of the device.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::Kernels | Self::Copies)
    }
}

/// Something that took its time. Times are microseconds from the beginning of the trace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    /// What it is.
    pub(crate) name: String,
    /// When it began.
    pub(crate) begin_us: f64,
    /// How long it took.
    pub(crate) duration_us: f64,
}

impl Span {
    /// When it ended.
    pub(crate) fn end_us(&self) -> f64 {
        self.begin_us + self.duration_us
    }
}

/// A row of a trace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// What it holds.
    pub(crate) kind: RowKind,
    /// Its name, for example `Stream 7: kernels`.
    pub(crate) name: String,
    /// Its spans, by their beginning.
    pub(crate) spans: Vec<Span>,
}

/// A trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Trace {
    /// Rows: calls, interfaces, kernels, copies.
    pub(crate) rows: Vec<Row>,
    /// Spans that the profiler or this page left out.
    pub(crate) left_out: u64,
}

impl Trace {
    /// Reads a stored trace.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, TraceError> {
        let whole = parsed(bytes)?;
        let events = whole["traceEvents"].as_array().ok_or(TraceError::NoEvents)?;
        let mut names: BTreeMap<(u64, u64), String> = BTreeMap::new();
        for event in events.iter().filter(|event| event["ph"] == "M" && event["name"] == "thread_name") {
            if let (Some(row), Some(name)) = (place(event), event["args"]["name"].as_str()) {
                names.insert(row, bounded(name));
            }
        }
        let mut rows: BTreeMap<(RowKind, u64, u64), Vec<Span>> = BTreeMap::new();
        let mut left_out = stated_left_out(&whole);
        let mut read = 0_usize;
        for event in events.iter().filter(|event| event["ph"] == "X") {
            let Some((place, span)) = place(event).zip(span(event)) else {
                left_out = left_out.saturating_add(1);
                continue;
            };
            let key = (kind(event), place.0, place.1);
            if read >= MAX_SPANS || (rows.len() >= MAX_ROWS && !rows.contains_key(&key)) {
                left_out = left_out.saturating_add(1);
                continue;
            }
            read += 1;
            rows.entry(key).or_default().push(span);
        }
        let rows = rows.into_iter().map(|((kind, process, thread), mut spans)| {
            spans.sort_by(|a, b| a.begin_us.total_cmp(&b.begin_us));
            let name = names.get(&(process, thread)).cloned().unwrap_or_else(|| format!("{process}.{thread}"));
            let name = match kind {
                RowKind::Kernels => format!("{name}: kernels"),
                RowKind::Copies => format!("{name}: copies"),
                RowKind::Api => format!("{name}: CUDA calls"),
                RowKind::Calls | RowKind::Other => name,
            };
            Row { kind, name, spans }
        });
        Ok(Self { rows: rows.collect(), left_out })
    }

    /// The end of its last span, in microseconds.
    pub(crate) fn end_us(&self) -> f64 {
        self.rows.iter().flat_map(|row| &row.spans).map(Span::end_us).fold(0.0, f64::max)
    }
}

fn parsed(bytes: &[u8]) -> Result<Value, TraceError> {
    if bytes.len() > MAX_TRACE_BYTES {
        return Err(TraceError::TooLarge { size_bytes: bytes.len() });
    }
    serde_json::from_slice(bytes).map_err(|source| TraceError::NotJson { source })
}

fn stated_left_out(whole: &Value) -> u64 {
    whole["otherData"]["left_out"].as_str().and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn place(event: &Value) -> Option<(u64, u64)> {
    Some((event["pid"].as_u64()?, event["tid"].as_u64()?))
}

fn span(event: &Value) -> Option<Span> {
    let time = |field: &str| event[field].as_f64().filter(|time| (0.0..1e15).contains(time));
    Some(Span { name: bounded(event["name"].as_str()?), begin_us: time("ts")?, duration_us: time("dur")? })
}

fn kind(event: &Value) -> RowKind {
    match event["cat"].as_str() {
        Some("call") => RowKind::Calls,
        Some("cuda_runtime" | "cuda_driver") => RowKind::Api,
        Some("kernel") => RowKind::Kernels,
        Some("gpu_memcpy" | "gpu_memset") => RowKind::Copies,
        _ => RowKind::Other,
    }
}

fn bounded(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A trace as the worker writes it, with that many kernels.
    pub(crate) fn sample(kernels: u32) -> Vec<u8> {
        let mut events = vec![
            json!({ "ph": "M", "name": "thread_name", "pid": 2, "tid": 7, "args": { "name": "Stream 7" } }),
            json!({ "ph": "X", "name": "call 1", "cat": "call", "pid": 1, "tid": 0, "ts": 0.0, "dur": 50.0, "args": {} }),
            json!({ "ph": "X", "name": "cudaLaunchKernel", "cat": "cuda_runtime", "pid": 1, "tid": 9, "ts": 1.0, "dur": 4.0, "args": {} }),
            json!({ "ph": "X", "name": "host_to_device", "cat": "gpu_memcpy", "pid": 2, "tid": 7, "ts": 2.0, "dur": 3.0, "args": {} }),
        ];
        events.extend((0..kernels).map(|n| {
            let begin = 10.0 + f64::from(n) * 2.0;
            json!({ "ph": "X", "name": format!("<b>f{n}</b>"), "cat": "kernel", "pid": 2, "tid": 7, "ts": begin, "dur": 1.0, "args": {} })
        }));
        json!({ "displayTimeUnit": "ns", "otherData": { "left_out": "3" }, "traceEvents": events })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn rows_are_read_by_what_they_hold() {
        let trace = Trace::read(&sample(2)).unwrap_or_default();
        let rows: Vec<_> = trace.rows.iter().map(|row| (row.kind, row.name.as_str(), row.spans.len())).collect();
        let expected = [
            (RowKind::Calls, "1.0", 1),
            (RowKind::Api, "1.9: CUDA calls", 1),
            (RowKind::Kernels, "Stream 7: kernels", 2),
            (RowKind::Copies, "Stream 7: copies", 1),
        ];
        assert_eq!(rows, expected);
        assert_eq!((trace.left_out, trace.end_us()), (3, 50.0));
    }

    #[test]
    fn what_is_not_well_formed_is_counted_and_left_out() {
        let text = r#"{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":-1,"dur":1},{"ph":"X","name":1,"pid":1,"tid":1,"ts":1,"dur":1},
            {"ph":"X","name":"b","pid":1,"tid":1,"ts":1e300,"dur":1},{"ph":"?"},null,7]}"#;
        let trace = Trace::read(text.as_bytes()).unwrap_or_default();
        assert_eq!((trace.rows.len(), trace.left_out), (0, 3));
        let boasts = text.replacen('{', r#"{"otherData":{"left_out":"18446744073709551615"},"#, 1);
        assert_eq!(Trace::read(boasts.as_bytes()).unwrap_or_default().left_out, u64::MAX);
        assert!(matches!(Trace::read(b"{}"), Err(TraceError::NoEvents)));
        assert!(matches!(Trace::read(b"\xff"), Err(TraceError::NotJson { .. })));
    }
}
