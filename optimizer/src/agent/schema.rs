//! JSON schemas of structured replies, in the strict form: every field required, no others.

use serde_json::{Value, json};

/// What limits the time of a program.
const LIMITS: [&str; 5] = ["memory", "compute", "latency", "launch", "host"];

pub(super) fn plan() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    let limit = json!({"type": "string", "enum": LIMITS});
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
                "expected_bottleneck": limit,
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
        "bound": {"type": "string", "enum": LIMITS},
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

/// Whether a value satisfies one of the schemas above: `type`, `enum`, `properties`, `required`,
/// `additionalProperties: false` and `items`. The error names the place and what is wrong there.
pub(super) fn check(schema: &Value, value: &Value) -> Result<(), String> {
    check_at(schema, value, "the object")
}

fn check_at(schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|wanted| is_of_type(value, wanted)) {
        return Err(format!("{place} has to be of type {}", types.join(" or ")));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        return Err(format!("{place} has to be one of {}", allowed.join(", ")));
    }
    if let Some(object) = value.as_object() {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if let Some(missing) = required.into_iter().find(|name| !object.contains_key(*name)) {
            return Err(format!("`{missing}` is missing in {place}"));
        }
        for (name, value) in object {
            match schema["properties"].get(name) {
                Some(schema) => check_at(schema, value, &format!("`{name}` of {place}"))?,
                None if schema["additionalProperties"] == false => {
                    return Err(format!("{place} has no field `{name}`"));
                }
                None => {}
            }
        }
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for (index, value) in values.iter().enumerate() {
            check_at(items, value, &format!("item {} of {place}", index + 1))?;
        }
    }
    Ok(())
}

fn is_of_type(value: &Value, wanted: &str) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_is_named_with_its_place() {
        let wrong = |schema: &Value, value: &Value| check(schema, value).err().unwrap_or_default();
        let diagnosis = json!({
            "bound": "memory", "critical_issue": "a", "modification": "b", "metrics": ["c"],
            "expected_gain": null, "route": "optimize", "repeat_reason": null,
        });
        assert_eq!(check(&super::diagnosis(), &diagnosis), Ok(()));
        let with = |name: &str, value: Value| {
            let mut changed = diagnosis.clone();
            changed[name] = value;
            wrong(&super::diagnosis(), &changed)
        };
        assert!(with("bound", json!("luck")).starts_with("`bound` of the object has to be one of \"memory\""));
        assert_eq!(with("expected_gain", json!("1")), "`expected_gain` of the object has to be of type number or null");
        assert_eq!(with("metrics", json!(["a", 1])), "item 2 of `metrics` of the object has to be of type string");
        assert_eq!(with("more", json!(1)), "the object has no field `more`");
        assert_eq!(wrong(&super::diagnosis(), &json!([])), "the object has to be of type object");
    }
}
