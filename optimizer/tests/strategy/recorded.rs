//! Histories that earlier releases recorded: this one must read them and come to the same end.

use std::fs;
use std::path::Path;

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, Workflow};
use nightshift_optimizer::strategy::{StitchWorkflow, view};
use serde::Deserialize;
use serde_json::Value;

use super::simulator::Failure;

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
    assert!(recordings.len() >= 4, "the corpus is not where it should be");
    Ok(recordings)
}

#[test]
fn recorded_histories_come_to_the_same_end() -> Result<(), Failure> {
    for (name, recorded) in recordings()? {
        let mut state = None;
        for event in &recorded.events {
            state = Some(StitchWorkflow.apply(state, event)?);
        }
        let state = state.ok_or("no events")?;
        assert_eq!(serde_json::to_value(view(&state)?)?, serde_json::to_value(view(&recorded.state)?)?, "{name}");
        assert_eq!(StitchWorkflow.digest(&state)?, StitchWorkflow.digest(&recorded.state)?, "{name}");
        assert!(matches!(StitchWorkflow.decide(&state)?.as_slice(), [Command::Complete { .. }]), "{name}");
    }
    Ok(())
}

#[test]
fn a_run_goes_on_from_a_state_that_an_earlier_release_stored() -> Result<(), Failure> {
    for (name, recorded) in recordings()? {
        assert!(!recorded.states.is_empty(), "{name}");
        for (folded, stored) in recorded.states {
            let [Command::Schedule(order)] = &StitchWorkflow.decide(&stored)?[..] else {
                return Err(format!("{name}: nothing follows event {folded}").into());
            };
            let next = recorded.events.get(folded).and_then(Event::step_key);
            assert_eq!(next, Some(order.key.as_str()), "{name}, event {folded}");
            let mut state = stored;
            for event in &recorded.events[folded..] {
                state = StitchWorkflow.apply(Some(state), event)?;
            }
            assert_eq!(StitchWorkflow.digest(&state)?, StitchWorkflow.digest(&recorded.state)?, "{name}");
        }
    }
    Ok(())
}
