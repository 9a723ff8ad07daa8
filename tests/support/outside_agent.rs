//! Answers of an outside agent for the task of `tiny_task.rs`.

use std::path::Path;

use serde_json::{Value, json};

/// The answer to a request: the prepared replies of the task, completed where the schema wants more.
pub(crate) fn answer_of(task: &Path, taken: &Value) -> String {
    match taken["request"]["role"].as_str().expect("a role") {
        "planner" => {
            let subtask = json!({
                "title": "gaussian", "scope": ["gaussian"], "fusion_boundary": "the whole program",
                "contract": {"inputs": [], "outputs": []}, "methods": ["one pass"], "expected_bottleneck": "compute",
                "risk": "none", "time_share": null, "expected_gain": null, "target_speedup": null,
            });
            json!({"summary": "Fewer passes.", "subtasks": [subtask], "correctness_risks": []}).to_string()
        }
        "coder" => std::fs::read_to_string(task.join("replies/subtask1.attempt1.write_code.md")).expect("a reply"),
        "verifier" => json!({
            "bound": "compute", "critical_issue": "none", "modification": "stop here", "metrics": [],
            "expected_gain": null, "route": "stop", "repeat_reason": null,
        })
        .to_string(),
        "judge" => rating(&taken["question"]["schema"]["required"]),
        other => panic!("no answer for the role {other}: {taken}"),
    }
}

fn rating(fields: &Value) -> String {
    let mut rating = serde_json::Map::new();
    for name in fields.as_array().expect("the fields of a rating") {
        let name = name.as_str().expect("a name");
        let value = match name {
            "major_hacking" => json!(false),
            "reasons" => json!(["It does what was asked for."]),
            _ => json!(4),
        };
        rating.insert(name.to_owned(), value);
    }
    Value::Object(rating).to_string()
}
