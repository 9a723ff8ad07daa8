//! A timeline as a trace that Perfetto and Chrome open: the JSON form of Chrome's trace events.

use serde_json::{Value, json};

use super::activity::{Activity, Span};
use super::timeline::{Calls, in_calls, is_launch};

/// Maximum number of pieces of work and calls in a trace, together.
pub(super) const MAX_EVENTS: usize = 20_000;

/// Rows of the trace.
const HOST: u64 = 1;
const DEVICE: u64 = 2;

/// Row of the host in which the calls of the program stand.
const CALLS_ROW: u64 = 0;

/// The trace of the calls of a program.
pub(super) fn trace(activity: &Activity, calls: &Calls) -> Vec<u8> {
    let origin_ns = calls.spans.first().map_or(0, |span| span.start_ns);
    let origin_ns = in_calls(activity, calls).map(|(_, call)| call.span.start_ns).chain([origin_ns]).min().unwrap_or(0);
    let complete = |name: &str, category: &str, process: u64, row: u64, span: Span, args: Value| {
        json!({
            "ph": "X", "name": name, "cat": category, "pid": process, "tid": row,
            "ts": microseconds(span.start_ns.saturating_sub(origin_ns)), "dur": microseconds(span.duration_ns()), "args": args,
        })
    };
    let mut events = vec![
        named("process_name", HOST, 0, "Host"),
        named("process_name", DEVICE, 0, "Device"),
        named("thread_name", HOST, CALLS_ROW, "Calls of the program"),
    ];
    if calls.marked {
        for (index, span) in calls.spans.iter().enumerate() {
            events.push(complete(&format!("call {}", index + 1), "call", HOST, CALLS_ROW, *span, json!({})));
        }
    }
    let mut rows = Vec::new();
    let mut work = Vec::new();
    let mut launching = Vec::new();
    for kernel in activity.kernels.iter().filter(|kernel| calls.of(kernel.span).is_some()) {
        let args = json!({
            "grid": kernel.grid, "block": kernel.block, "registers per thread": kernel.registers,
            "shared memory": kernel.shared_bytes, "stream": kernel.stream, "correlation": kernel.correlation,
        });
        rows.push(kernel.stream);
        launching.push((kernel.correlation, kernel.stream, kernel.span.start_ns));
        work.push((kernel.span, complete(&kernel.name, "kernel", DEVICE, kernel.stream, kernel.span, args)));
    }
    for copy in activity.copies.iter().filter(|copy| calls.of(copy.span).is_some()) {
        let args = json!({ "bytes": copy.bytes, "stream": copy.stream, "correlation": copy.correlation });
        rows.push(copy.stream);
        let name = copy.direction.as_str();
        work.push((copy.span, complete(name, "gpu_memcpy", DEVICE, copy.stream, copy.span, args)));
    }
    let mut threads = Vec::new();
    let mut launches = std::collections::HashMap::new();
    for (_, call) in in_calls(activity, calls) {
        let args = json!({ "correlation": call.correlation });
        threads.push(call.thread);
        if is_launch(&call.name) {
            launches.insert(call.correlation, (call.thread, call.span.start_ns));
        }
        work.push((call.span, complete(&call.name, "cuda_runtime", HOST, call.thread, call.span, args)));
    }
    work.sort_by_key(|(span, _)| *span);
    let left_out = work.len().saturating_sub(MAX_EVENTS);
    work.truncate(MAX_EVENTS);
    let last_ns = if left_out == 0 { u64::MAX } else { work.last().map_or(0, |(span, _)| span.start_ns) };
    events.extend(work.into_iter().map(|(_, event)| event));
    for (correlation, stream, start_ns) in launching.into_iter().filter(|(_, _, start_ns)| *start_ns <= last_ns) {
        let Some((thread, launched_ns)) = launches.get(&correlation) else { continue };
        let arrow = |phase: &str, process: u64, row: u64, at_ns: u64| {
            json!({
                "ph": phase, "name": "launch", "cat": "launch", "id": correlation, "pid": process, "tid": row, "bp": "e",
                "ts": microseconds(at_ns.saturating_sub(origin_ns)),
            })
        };
        events.push(arrow("s", HOST, *thread, *launched_ns));
        events.push(arrow("f", DEVICE, stream, start_ns));
    }
    for (process, label, mut found) in [(DEVICE, "Stream", rows), (HOST, "Thread", threads)] {
        found.sort_unstable();
        found.dedup();
        events.extend(found.into_iter().map(|row| named("thread_name", process, row, &format!("{label} {row}"))));
    }
    let left_out = left_out.to_string();
    let whole = json!({ "displayTimeUnit": "ns", "otherData": { "left_out": left_out }, "traceEvents": events });
    whole.to_string().into_bytes()
}

/// A name for a row.
fn named(what: &str, process: u64, row: u64, name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": process, "tid": row, "args": { "name": name } })
}

#[expect(clippy::cast_precision_loss, reason = "a trace shorter than 100 days keeps every nanosecond")]
fn microseconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e3
}

#[cfg(test)]
mod tests;
