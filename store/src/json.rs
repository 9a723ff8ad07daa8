//! Removes NUL characters from stored JSON and text: Postgres refuses them, and SQLite truncates at them.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Serialize, de, ser};
use serde_json::Value;

use crate::packed;

/// The escape sequence that serde writes for a NUL character.
const ESCAPED_NUL: &str = "\\u0000";
/// Replaces a NUL character.
const REPLACEMENT: &str = "\u{fffd}";

/// Returns the text without NUL characters.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', REPLACEMENT)) } else { Cow::Borrowed(text) }
}

/// Returns the value as JSON text without NUL characters.
pub(crate) fn write<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string(value)?;
    if !text.contains(ESCAPED_NUL) {
        return Ok(text);
    }
    // An escaped backslash before `u0000` looks the same, so the decision needs the parsed value.
    let mut value: Value = serde_json::from_str(&text)?;
    clean_value(&mut value);
    serde_json::to_string(&value)
}

/// Like [`write`], with compression of large values. For values that SQL never reads.
pub(crate) fn write_packed<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    packed::pack(write(value)?).map_err(<serde_json::Error as ser::Error>::custom)
}

/// Parses a stored JSON text, which may be compressed.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(&packed::unpack(text).map_err(<serde_json::Error as de::Error>::custom)?)
}

fn clean_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(cleaned) = clean(text) {
                *text = cleaned;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_value),
        Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(key, mut value)| {
                    clean_value(&mut value);
                    (clean(&key).into_owned(), value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nul_characters_are_replaced_in_values_and_keys() {
        let text = write(&json!({"a\0b": ["x\0", {"y": "\0"}]})).unwrap();
        assert_eq!(read::<Value>(&text).unwrap(), json!({"a\u{fffd}b": ["x\u{fffd}", {"y": "\u{fffd}"}]}));
    }

    #[test]
    fn a_text_that_only_looks_like_an_escaped_nul_stays() {
        let value = json!({"source": "printf(\"\\u0000\")"});
        assert_eq!(read::<Value>(&write(&value).unwrap()).unwrap(), value);
    }

    #[test]
    fn numbers_survive_the_way_through_text() {
        for number in [0.1_f64 + 0.2, 1.0 / 3.0, 5e-324, 1.797_693_134_862_315_7e308, 40_217.812_345_678_91] {
            let back: f64 = read(&write(&number).unwrap()).unwrap();
            assert_eq!(back.to_bits(), number.to_bits(), "{number}");
        }
    }
}
