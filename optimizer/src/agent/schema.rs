//! JSON schemas of structured replies, in the strict form: every field required, no others.

use serde_json::{Value, json};

pub(super) fn plan() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    let tensors = json!({
        "type": "array",
        "items": object(&json!({"name": text, "dtype": text, "shape": texts, "layout": text})),
    });
    object(&json!({
        "summary": text,
        "subtasks": {
            "type": "array",
            "items": object(&json!({
                "title": text,
                "scope": texts,
                "fusion_boundary": text,
                "contract": object(&json!({"inputs": tensors, "outputs": tensors})),
                "methods": texts,
                "expected_bottleneck": text,
                "risk": text,
                "time_share": {"type": ["number", "null"]},
                "expected_gain": {"type": ["number", "null"]},
                "target_speedup": {"type": ["number", "null"]},
            })),
        },
        "correctness_risks": texts,
    }))
}

pub(super) fn diagnosis() -> Value {
    object(&json!({
        "bound": {"type": "string", "enum": ["memory", "compute", "latency", "launch", "host"]},
        "critical_issue": {"type": "string"},
        "modification": {"type": "string"},
        "metrics": {"type": "array", "items": {"type": "string"}},
        "expected_gain": {"type": ["number", "null"]},
        "route": {"type": "string", "enum": ["repair", "optimize", "next_subtask", "replan", "stop"]},
        "repeat_reason": {"type": ["string", "null"]},
    }))
}

pub(super) fn correction() -> Value {
    let text = json!({"type": "string"});
    object(&json!({"critical_issue": text, "why_it_matters": text, "minimal_fix": text}))
}

/// `engineering` is the name under which the second score is asked for.
pub(super) fn rating(engineering: &str) -> Value {
    let score = json!({"type": "integer", "enum": [1, 2, 3, 4, 5]});
    object(&json!({
        "anti_hacking": score,
        engineering: score,
        "operator_coverage": score,
        "skill_compliance": score,
        "major_hacking": {"type": "boolean"},
        "reasons": {"type": "array", "items": {"type": "string"}},
    }))
}

fn object(properties: &Value) -> Value {
    let required: Vec<Value> =
        properties.as_object().into_iter().flat_map(|map| map.keys()).map(|k| json!(k)).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
