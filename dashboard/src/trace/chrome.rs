//! Traces as downloads: the JSON that Perfetto and Chrome open.

use nightshift_protocol::api::StepView;
use serde_json::{Map, Value, json};

use super::{TraceError, parsed};

/// Maximum number of events of a download.
const MAX_EVENTS: usize = 400_000;

/// A stored trace with nothing but events that its readers know, and with facts about where it comes from.
pub(crate) fn well_formed(bytes: &[u8], about: &[(&str, String)]) -> Result<Vec<u8>, TraceError> {
    let mut whole = parsed(bytes)?;
    let Some(Value::Array(events)) = whole.get_mut("traceEvents").map(Value::take) else {
        return Err(TraceError::NoEvents);
    };
    let events: Vec<Value> = events.into_iter().filter(is_well_formed).take(MAX_EVENTS).collect();
    let mut other = match whole.get_mut("otherData").map(Value::take) {
        Some(Value::Object(other)) => other,
        _ => Map::new(),
    };
    other.extend(about.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
    Ok(json!({ "displayTimeUnit": "ns", "otherData": other, "traceEvents": events }).to_string().into_bytes())
}

/// The steps of a run, or of one attempt, as a trace: a row for each worker. For runs whose programs were not traced.
pub(crate) fn of_steps(steps: &[&StepView], about: &[(&str, String)]) -> Vec<u8> {
    let begun = steps.iter().filter_map(|step| Some((*step, step.started_at?)));
    let origin_ms = begun.clone().map(|(_, at)| at.0).min().unwrap_or(0);
    let mut workers: Vec<String> = begun.clone().map(|(step, _)| worker(step)).collect();
    workers.sort_unstable();
    workers.dedup();
    let row = |name: &str| workers.iter().position(|known| known == name).map_or(0, |place| place + 1);
    let mut events =
        vec![json!({ "ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": { "name": "Nightshift" } })];
    events.extend(
        workers.iter().map(
            |name| json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": row(name), "args": { "name": name } }),
        ),
    );
    for (step, began) in begun {
        let end_ms = step.finished_at.map_or(began.0, |end| end.0.max(began.0));
        events.push(json!({
            "ph": "X", "name": step.key, "cat": step.kind.as_str(), "pid": 1, "tid": row(&worker(step)),
            "ts": microseconds(began.0.saturating_sub(origin_ms)), "dur": microseconds(end_ms.saturating_sub(began.0)),
            "args": { "status": step.status.as_str(), "tries": step.tries },
        }));
    }
    let other: Map<String, Value> = about.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({ "displayTimeUnit": "ms", "otherData": other, "traceEvents": events }).to_string().into_bytes()
}

fn worker(step: &StepView) -> String {
    step.worker.as_ref().map_or_else(|| "server".to_owned(), ToString::to_string)
}

#[expect(clippy::cast_precision_loss, reason = "a trace shorter than 100 days keeps every microsecond")]
fn microseconds(ms: i64) -> f64 {
    ms.max(0) as f64 * 1e3
}

/// What Chrome's format asks of every event.
fn is_well_formed(event: &Value) -> bool {
    let has_place = event["pid"].is_u64() && event["tid"].is_u64() && event["name"].is_string();
    let time = |field: &str| event[field].as_f64().is_some_and(|time| time.is_finite() && time >= 0.0);
    has_place
        && match event["ph"].as_str() {
            Some("M") => event["args"]["name"].is_string(),
            Some("X") => time("ts") && time("dur"),
            Some("s" | "f") => time("ts") && !event["id"].is_null(),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn a_download_holds_only_what_its_readers_know() {
        let mut whole: Value = serde_json::from_slice(&sample(2)).unwrap_or_default();
        if let Some(events) = whole["traceEvents"].as_array_mut() {
            events.extend([
                json!({ "ph": "Z" }),
                json!(null),
                json!({ "ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": -4, "dur": 1 }),
            ]);
        }
        let bytes = well_formed(whole.to_string().as_bytes(), &[("run", "run_1".to_owned())]).unwrap_or_default();
        let read: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let events = read["traceEvents"].as_array().cloned().unwrap_or_default();
        assert_eq!(events.len(), 6);
        assert!(events.iter().all(is_well_formed));
        assert_eq!(
            (read["otherData"]["run"].as_str(), read["otherData"]["left_out"].as_str()),
            (Some("run_1"), Some("3"))
        );
    }

    #[test]
    fn a_recorded_profile_of_a_device_is_a_download_without_losses() {
        let stored = include_bytes!("../../tests/fixtures/h200_trace.json");
        let read = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap_or_default() };
        let (before, after) = (read(stored), read(&well_formed(stored, &[]).unwrap_or_default()));
        assert_eq!(before["traceEvents"], after["traceEvents"]);
        assert!(
            after["traceEvents"]
                .as_array()
                .is_some_and(|events| events.len() > 30 && events.iter().all(is_well_formed))
        );
    }

    #[test]
    fn steps_are_a_trace_of_their_workers() {
        let step: StepView = serde_json::from_value(json!({
            "id": format!("stp_{}", "0".repeat(32)), "run": format!("run_{}", "0".repeat(32)), "key": "subtask1/attempt1/build",
            "kind": "build", "status": "completed", "tries": 1, "epoch": 1, "worker": null, "scheduled_at": 1_000,
            "started_at": 2_000, "finished_at": 3_500, "failure": null, "waiting_for": null,
        }))
        .unwrap_or_else(|error| panic!("{error}"));
        let read: Value = serde_json::from_slice(&of_steps(&[&step], &[])).unwrap_or_default();
        let events = read["traceEvents"].as_array().cloned().unwrap_or_default();
        assert!(events.iter().all(is_well_formed), "{events:?}");
        assert_eq!((events[2]["ts"].as_f64(), events[2]["dur"].as_f64()), (Some(0.0), Some(1_500_000.0)));
    }
}
