//! Events as stored text. A result is serialized once, because it may be large and is part of the event and of the
//! report's digest.

use nightshift_engine::event::Event;

use crate::failure::Failure;
use crate::json;

/// An event to append.
#[derive(Debug)]
pub(crate) struct EventText {
    pub(crate) kind: &'static str,
    pub(crate) body: String,
    /// Whether the event requires a decision of the driver.
    pub(crate) wakes: bool,
}

impl EventText {
    pub(crate) fn of(event: &Event) -> Result<Self, Failure> {
        Ok(Self { kind: event.kind(), body: json::write(event)?, wakes: event.requires_decision() })
    }

    /// Returns [`Event::StepCompleted`] for an output that is serialized already.
    pub(crate) fn step_completed(key: &str, output: &str) -> Result<Self, Failure> {
        let key = json::write(key)?;
        let body = format!(r#"{{"event":"step_completed","key":{key},"output":{output}}}"#);
        Ok(Self { kind: "step_completed", body, wakes: true })
    }
}

/// Number of digits of an artifact's hash.
const HASH_DIGITS: usize = 64;

/// Returns the artifact hashes in a JSON text: strings of exactly [`HASH_DIGITS`] hexadecimal digits.
///
/// A string that only looks like a hash keeps an artifact longer than needed, which is harmless.
pub(crate) fn artifact_hashes(text: &str) -> impl Iterator<Item = String> + '_ {
    let bytes = text.as_bytes();
    let mut begin = 0;
    std::iter::from_fn(move || {
        loop {
            let digits = begin + bytes.get(begin..)?.iter().position(|byte| *byte == b'"')? + 1;
            begin = digits;
            let candidate = bytes.get(digits..digits + HASH_DIGITS)?;
            if bytes.get(digits + HASH_DIGITS) == Some(&b'"') && candidate.iter().all(u8::is_ascii_hexdigit) {
                begin = digits + HASH_DIGITS + 1;
                return text.get(digits..digits + HASH_DIGITS).map(str::to_ascii_lowercase);
            }
        }
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_completed_step_is_written_as_the_event_itself_would_be() {
        let output = json!({"text": "a\"b\n", "list": [1, 0.1, null], "nul": "x\0y"});
        let key = "it\"3\u{0}/build";
        let ours = EventText::step_completed(key, &json::write(&output).unwrap()).unwrap();
        let event = Event::StepCompleted { key: key.to_owned(), output };
        let theirs = EventText::of(&event).unwrap();
        assert_eq!((ours.kind, ours.wakes), (theirs.kind, theirs.wakes));
        assert_eq!(ours.body.replace("\\u0000", "\u{fffd}"), theirs.body);
        json::read::<Event>(&ours.body).unwrap();
    }

    #[test]
    fn hashes_are_found_wherever_they_stand_and_nothing_else_is() {
        let (a, b) = ("a1".repeat(32), "0F".repeat(32));
        let value = json!({"source": a, "list": [b, "c1".repeat(31), "d1".repeat(33), "zz".repeat(32)], "quote": "\""});
        let found: Vec<String> = artifact_hashes(&json::write(&value).unwrap()).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.contains(&a) && found.contains(&b.to_lowercase()), "{found:?}");
        assert_eq!(artifact_hashes("\"\"").count(), 0);
    }
}
