//! Tests that this release reads events of earlier releases and writes them identically. The file of events is only
//! extended, never edited.

use std::collections::BTreeSet;

use nightshift_engine::event::Event;
use serde_json::Value;

#[test]
fn every_kind_of_event_is_read_and_written_as_it_was_stored() -> Result<(), serde_json::Error> {
    let stored: Vec<Value> = serde_json::from_str(include_str!("corpus/events.json"))?;
    let mut kinds = BTreeSet::new();
    for value in stored {
        let event: Event = serde_json::from_value(value.clone())?;
        assert_eq!(serde_json::to_value(&event)?, value);
        assert_eq!(value["event"], event.kind());
        kinds.insert(event.kind());
    }
    assert_eq!(kinds.len(), 15, "{kinds:?}");
    Ok(())
}
