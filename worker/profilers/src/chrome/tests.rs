//! The trace, held against what its readers need.

use nightshift_protocol::profile::CopyDirection;

use super::super::activity::{ApiCall, Kernel, Transfer};
use super::*;

fn span(start_ns: u64, end_ns: u64) -> Span {
    Span { start_ns, end_ns }
}

fn activity(kernels: u64) -> Activity {
    Activity {
        kernels: (0..kernels)
            .map(|index| Kernel {
                span: span(2_000 + index * 10, 2_005 + index * 10),
                stream: 7,
                correlation: index,
                name: "f<\"quoted\", 1>(float *)\n".into(),
                short: "f".into(),
                mangled: None,
                grid: [1, 2, 3],
                block: [32, 1, 1],
                registers: 16,
                shared_bytes: 0,
            })
            .collect(),
        copies: vec![Transfer {
            span: span(1_900, 1_950),
            stream: 7,
            correlation: 99,
            direction: CopyDirection::HostToDevice,
            bytes: 8,
        }],
        api: vec![
            ApiCall { span: span(1_500, 1_600), name: "cudaLaunchKernel".into(), thread: 42, correlation: 0 },
            ApiCall { span: span(1_700, 1_800), name: "cudaMemcpyAsync".into(), thread: 42, correlation: 99 },
        ],
        cut: false,
    }
}

fn events(bytes: &[u8]) -> Vec<Value> {
    let whole: Value = serde_json::from_slice(bytes).unwrap_or_default();
    assert_eq!(whole["displayTimeUnit"], "ns");
    whole["traceEvents"].as_array().cloned().unwrap_or_default()
}

/// What Chrome's format asks of every event.
fn is_well_formed(event: &Value) -> bool {
    let has_place = event["pid"].is_u64() && event["tid"].is_u64() && event["name"].is_string();
    let time = |field: &str| event[field].as_f64().is_some_and(|time| time.is_finite() && time >= 0.0);
    has_place
        && match event["ph"].as_str() {
            Some("M") => event["args"]["name"].is_string(),
            Some("X") => time("ts") && time("dur") && event["cat"].is_string() && event["args"].is_object(),
            Some("s" | "f") => time("ts") && event["id"].is_u64() && event["cat"].is_string(),
            _ => false,
        }
}

#[test]
fn every_event_is_one_that_the_readers_know() {
    let calls = Calls { spans: vec![span(1_000, 9_000)], marked: true };
    let events = events(&trace(&activity(3), &calls));
    assert!(events.iter().all(is_well_formed), "{events:#?}");
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    // One call, three kernels, one copy, two calls of interfaces; one launch that is known.
    assert_eq!((count("X"), count("s"), count("f")), (7, 1, 1));
    let named = |what: &str| events.iter().any(|event| event["args"]["name"] == what);
    assert!(["Host", "Device", "Stream 7", "Thread 42", "Calls of the program"].into_iter().all(named));
}

#[test]
fn times_begin_with_the_first_call_and_are_microseconds() {
    let calls = Calls { spans: vec![span(1_000, 9_000)], marked: true };
    let events = events(&trace(&activity(1), &calls));
    let kernel = events.iter().find(|event| event["cat"] == "kernel").cloned().unwrap_or_default();
    assert_eq!((kernel["ts"].as_f64(), kernel["dur"].as_f64()), (Some(1.0), Some(0.005)));
    assert_eq!(kernel["args"]["grid"], json!([1, 2, 3]));
}

#[test]
fn a_long_trace_is_cut_and_says_so() {
    let calls = Calls { spans: vec![span(1_000, u64::MAX)], marked: true };
    let bytes = trace(&activity(30_000), &calls);
    let whole: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    assert_eq!(whole["otherData"]["left_out"], "10003");
    assert!(events(&bytes).iter().filter(|event| event["ph"] == "X").count() <= MAX_EVENTS + 1);
}

#[test]
fn a_trace_of_nothing_can_be_read_too() {
    let calls = Calls { spans: Vec::new(), marked: false };
    assert!(events(&trace(&Activity::default(), &calls)).iter().all(is_well_formed));
}
