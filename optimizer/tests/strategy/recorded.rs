//! Histories that earlier releases recorded: this one must read them and come to the same end.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nightshift_engine::event::Event;
use nightshift_engine::workflow::Command;
use nightshift_optimizer::strategy::{STATE_FORMAT, view};
use serde::Deserialize;
use serde_json::Value;

use super::simulator::Failure;
use super::stored::StoredWorkflow;

/// A recorded run: never edited, only joined by others.
#[derive(Deserialize)]
struct Recorded {
    /// The log.
    events: Vec<Event>,
    /// The state that the recording release stored at the end.
    state: Value,
    /// States that it stored on the way, by the number of events folded.
    states: Vec<(usize, Value)>,
}

fn recordings() -> Result<Vec<(String, Recorded)>, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/history");
    let mut recordings = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        recordings.push((path.display().to_string(), serde_json::from_str(&fs::read_to_string(&path)?)?));
    }
    assert!(recordings.len() >= 10, "the corpus is not where it should be");
    Ok(recordings)
}

/// Fields that older recordings do not have. They are derived from the same events.
const NOTED_LATER: [&str; 4] = ["modification", "gain", "rule", "advice"];

/// A view without what was noted later, so that recordings of every age compare.
fn as_recorded(mut view: Value) -> Value {
    fn strip(value: &mut Value) {
        if let Some(attempts) = value.get_mut("attempts").and_then(Value::as_array_mut) {
            for attempt in attempts.iter_mut().filter_map(Value::as_object_mut) {
                attempt.retain(|key, _| !NOTED_LATER.contains(&key.as_str()));
                if let Some(route) = attempt.get_mut("route").and_then(Value::as_object_mut) {
                    route.retain(|key, _| !NOTED_LATER.contains(&key.as_str()));
                }
            }
        }
    }
    strip(&mut view);
    view
}

#[test]
fn recorded_histories_come_to_the_same_end() -> Result<(), Failure> {
    for (name, recorded) in recordings()? {
        let mut state = None;
        for event in &recorded.events {
            state = Some(StoredWorkflow.apply(state, event)?);
        }
        let state = state.ok_or("no events")?;
        let (now, then) = (serde_json::to_value(view(&state)?)?, serde_json::to_value(view(&recorded.state)?)?);
        // Recordings that hold it are held to it.
        let is_old = !then.to_string().contains("\"rule\":");
        if is_old {
            assert_eq!(as_recorded(now), then, "{name}");
        } else {
            assert_eq!(now, then, "{name}");
        }
        assert_eq!(StoredWorkflow.digest(&state)?, StoredWorkflow.digest(&recorded.state)?, "{name}");
        assert!(matches!(StoredWorkflow.decide(&state)?.as_slice(), [Command::Complete { .. }]), "{name}");
    }
    Ok(())
}

#[test]
fn a_run_goes_on_from_a_state_that_an_earlier_release_stored() -> Result<(), Failure> {
    for (name, recorded) in recordings()? {
        assert!(!recorded.states.is_empty(), "{name}");
        for (folded, stored) in recorded.states {
            let decided = StoredWorkflow.decide(&stored)?;
            let next = recorded.events.get(folded).and_then(Event::step_key).ok_or("the recording ends here")?;
            let follows = |command: &Command| matches!(command, Command::Schedule(order) if order.key == next);
            assert!(decided.iter().any(follows), "{name}, event {folded}: {next} does not follow");
            let mut state = stored;
            for event in &recorded.events[folded..] {
                state = StoredWorkflow.apply(Some(state), event)?;
            }
            assert_eq!(StoredWorkflow.digest(&state)?, StoredWorkflow.digest(&recorded.state)?, "{name}");
        }
    }
    Ok(())
}

/// Where the fields of states are kept: a line with their format, then one line for each.
const FIELDS_FILE: &str = "tests/corpus/state_fields.txt";

/// The fields of a value by their paths, those of list entries together.
fn note_fields(value: &Value, path: &str, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = format!("{path}.{name}");
                note_fields(value, &path, fields);
                fields.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| note_fields(item, path, fields)),
        _ => {}
    }
}

#[test]
fn states_have_the_fields_of_their_format() -> Result<(), Failure> {
    let mut fields = BTreeSet::new();
    for (_, recorded) in recordings()? {
        let mut state = None;
        for event in &recorded.events {
            let next = StoredWorkflow.apply(state, event)?;
            note_fields(&next, "", &mut fields);
            state = Some(next);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIELDS_FILE);
    let text = fs::read_to_string(&path)?;
    let (first, rest) = text.split_once('\n').ok_or("no first line")?;
    let known: BTreeSet<String> = rest.lines().map(str::to_owned).collect();
    let new: Vec<&String> = fields.difference(&known).collect();
    let is_raised = first != format!("format {STATE_FORMAT}");
    assert!(new.is_empty() || is_raised, "raise STATE_FORMAT: an earlier release would leave out {new:?}");
    if std::env::var_os("UPDATE_STATE_FIELDS").is_some() {
        let lines: Vec<String> = std::iter::once(format!("format {STATE_FORMAT}")).chain(fields).collect();
        return Ok(fs::write(path, lines.join("\n") + "\n")?);
    }
    assert!(!is_raised, "write the fields of the new format: UPDATE_STATE_FIELDS=1 cargo test -p nightshift-optimizer");
    Ok(())
}
