//! Files of others: bounded, and read as what Python writes.

use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::failure::{Failure, Result};

/// Words that Python writes for numbers that JSON does not have.
const NO_NUMBERS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// An object in its own order; names that come twice are there twice.
#[derive(Debug)]
pub(crate) struct Entries(pub(crate) Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Entries;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The object in a file of at most so many bytes.
pub(crate) fn object(path: &Path, max_bytes: u64) -> Result<Entries> {
    let text = read(path, max_bytes)?;
    json(&text, path)
}

/// A text as what it holds.
pub(crate) fn json<T: serde::de::DeserializeOwned>(text: &str, path: &Path) -> Result<T> {
    serde_json::from_str(&with_words(text)).map_err(|error| {
        Failure::new("results.malformed", format!("`{}` is not what it should be: {error}", path.display()))
    })
}

/// The text of a file of at most so many bytes.
pub(crate) fn read(path: &Path, max_bytes: u64) -> Result<String> {
    let shown = path.display();
    let unread = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Failure::new("results.not_found", format!("there is no file `{shown}`"))
        }
        _ => Failure::new("results.unreadable", format!("`{shown}` cannot be read: {error}")),
    };
    // Opening a named pipe would block until a writer opens it.
    if !std::fs::metadata(path).map_err(unread)?.is_file() {
        let message = format!("`{shown}` is a folder, a pipe or a device, and no regular file");
        return Err(Failure::new("results.unreadable", message));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unread)?;
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(unread)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max_bytes {
        return Err(Failure::new("results.too_large", format!("`{shown}` has more than {max_bytes} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Failure::new("results.malformed", format!("`{shown}` is not UTF-8 text")))
}

/// Numbers that JSON does not have, as texts: what they stand for is said of the sample, and not of the whole file.
fn with_words(text: &str) -> Cow<'_, str> {
    if !NO_NUMBERS.iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut written = String::with_capacity(text.len().saturating_add(64));
    let (mut rest, mut in_string) = (text, false);
    while let Some(first) = rest.chars().next() {
        if let Some(word) = NO_NUMBERS.iter().find(|word| !in_string && rest.starts_with(**word)) {
            written.push('"');
            written.push_str(word);
            written.push('"');
            rest = rest.get(word.len()..).unwrap_or_default();
            continue;
        }
        let mut taken = first.len_utf8();
        if first == '"' {
            in_string = !in_string;
        } else if first == '\\' && in_string {
            // Whatever follows is part of the text.
            taken += rest.chars().nth(1).map_or(0, char::len_utf8);
        }
        written.push_str(rest.get(..taken).unwrap_or(rest));
        rest = rest.get(taken..).unwrap_or_default();
    }
    Cow::Owned(written)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_numbers_are_kept_as_texts_and_texts_stay_as_they_are() {
        let text = r#"{"a": NaN, "b": [-Infinity, 1], "c": "NaN \" Infinity \\", "d": Infinity}"#;
        let value: Value = serde_json::from_str(&with_words(text)).unwrap();
        let wanted = serde_json::json!({"a": "NaN", "b": ["-Infinity", 1], "c": "NaN \" Infinity \\", "d": "Infinity"});
        assert_eq!(value, wanted);
        assert!(matches!(with_words("{}"), Cow::Borrowed(_)));
    }

    #[test]
    fn files_that_are_not_what_they_should_be_are_told_why() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("eval_results.json");
        let code = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            object(&file, 20).unwrap_err().error.code
        };
        assert_eq!(code(b"{\"1\": "), "results.malformed");
        assert_eq!(code(b"[1, 2]"), "results.malformed");
        assert_eq!(code(b"\xff\xfe"), "results.malformed");
        assert_eq!(code(b"{\"1\": [1, 2, 3, 4, 5]}"), "results.too_large");
        assert_eq!(object(folder.path(), 20).unwrap_err().error.code, "results.unreadable");
        assert_eq!(object(&file.join("x"), 20).unwrap_err().error.code, "results.not_found");
    }

    #[test]
    fn a_name_that_comes_twice_is_there_twice() {
        let entries: Entries = serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3}"#).unwrap();
        let names: Vec<&str> = entries.0.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b", "a", "b"]);
    }
}
