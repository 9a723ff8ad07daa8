//! JSON files with comments and trailing commas, as the clients' editors write them.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::{Map, Value};

use super::{ENTRY, InstallError, not_understood};

/// Returns the text with the entry below a key.
pub(super) fn with_entry(before: &str, key: &str, entry: &Map<String, Value>) -> Result<String, InstallError> {
    let text = if before.trim().is_empty() { "{}\n" } else { before };
    let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(not_understood)?;
    let object = root.object_value().ok_or_else(|| not_understood("it is not an object"))?;
    let is_object = |name: &str| format!("`{name}` is not an object");
    let servers = match object.get(key) {
        Some(_) => object.object_value(key).ok_or_else(|| not_understood(is_object(key)))?,
        None => object.object_value_or_create(key).ok_or_else(|| not_understood(is_object(key)))?,
    };
    let value = input(&Value::Object(entry.clone()));
    match servers.get(ENTRY) {
        Some(known) => known.set_value(value),
        None => {
            servers.append(ENTRY, value);
        }
    }
    let mut after = root.to_string();
    if !after.ends_with('\n') {
        after.push('\n');
    }
    Ok(after)
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}
