//! Payloads as earlier releases stored and sent them: this one must read them and lose nothing. Files are never edited,
//! only joined by others.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nightshift_protocol::api::RunDigest;
use nightshift_protocol::campaign::{CampaignSpec, RunInput};
use nightshift_protocol::step::{StepInput, StepKind, StepOutput};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Every payload of a folder, read.
fn read_all<T: DeserializeOwned + Serialize>(folder: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(folder);
    let mut payloads = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let stored: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let payload: T =
            serde_json::from_value(stored.clone()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_holds(&serde_json::to_value(&payload).unwrap(), &stored, &path.display().to_string());
        payloads.push(payload);
    }
    assert!(!payloads.is_empty(), "{folder} is empty");
    payloads
}

/// Everything in the stored value is in the written one too; fields that were added since may join it.
fn assert_holds(written: &Value, stored: &Value, place: &str) {
    match (written, stored) {
        (Value::Object(written), Value::Object(stored)) => {
            for (field, value) in stored {
                let place = format!("{place}: {field}");
                assert_holds(written.get(field).unwrap_or(&Value::Null), value, &place);
            }
        }
        (Value::Array(written), Value::Array(stored)) => {
            assert_eq!(written.len(), stored.len(), "{place}");
            for (index, (written, stored)) in written.iter().zip(stored).enumerate() {
                assert_holds(written, stored, &format!("{place}[{index}]"));
            }
        }
        (Value::Number(written), Value::Number(stored)) => assert_eq!(written.as_f64(), stored.as_f64(), "{place}"),
        _ => assert_eq!(written, stored, "{place}"),
    }
}

#[test]
fn every_kind_of_step_input_is_read_as_it_was_stored() {
    let kinds: BTreeSet<StepKind> = read_all::<StepInput>("step_input").iter().map(StepInput::kind).collect();
    assert_eq!(kinds, BTreeSet::from(StepKind::ALL));
}

#[test]
fn step_outputs_are_read_as_they_were_stored() {
    let outputs = read_all::<StepOutput>("step_output");
    let variants: BTreeSet<_> = outputs.iter().map(std::mem::discriminant).map(|d| format!("{d:?}")).collect();
    assert!(variants.len() >= 12, "{variants:?}");
}

#[test]
fn campaigns_and_runs_are_read_as_they_were_stored() {
    assert!(read_all::<CampaignSpec>("campaign_spec").iter().any(|spec| spec.model.is_scripted()));
    assert!(read_all::<RunInput>("run_input").iter().all(|input| input.schema == 1));
    assert!(read_all::<RunDigest>("run_digest").iter().all(|digest| digest.best_attempt.is_some()));
}

#[test]
fn a_judge_step_that_was_stored_before_it_knew_the_parents_speedup_is_read() {
    let stored = include_str!("corpus/step_input/judge_before_parent_speedup.json");
    let StepInput::Judge { parent_speedup, parent_bound, .. } = serde_json::from_str(stored).unwrap() else {
        panic!("no judge")
    };
    assert_eq!((parent_speedup, parent_bound), (None, None));
}

#[test]
fn a_check_step_that_was_stored_with_golden_data_is_read() {
    let mut stored: Value = serde_json::from_str(include_str!("corpus/step_input/check.json")).unwrap();
    let expected: StepInput = serde_json::from_value(stored.clone()).unwrap();
    stored["golden"] = stored["library"].clone();
    assert_eq!(serde_json::from_value::<StepInput>(stored).unwrap(), expected);
}
