//! Exactly one JSON object.

use serde::de::DeserializeOwned;

use super::fence::blocks;
use super::reasoning::strip_reasoning;

/// Largest JSON object that is accepted, in bytes.
const MAX_JSON_BYTES: usize = 256 * 1024;

/// Why a reply holds no usable object. The text is made for the repair turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonProblem {
    /// Nothing that looks like an object.
    #[error("the reply has no JSON object")]
    Missing,
    /// More than one candidate.
    #[error("the reply has {count} JSON blocks; exactly one is wanted")]
    Several {
        /// How many.
        count: usize,
    },
    /// Larger than the limit.
    #[error("the JSON object has {bytes} bytes; at most {limit_bytes} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// Not JSON, or not of the shape that was asked for.
    #[error("the JSON object cannot be used: {message}")]
    Unusable {
        /// What is wrong, and where.
        message: String,
    },
}

/// The one object of a reply: bare, in a fenced block, or with a sentence around it.
pub fn extract_json<T: DeserializeOwned>(reply: &str) -> Result<T, JsonProblem> {
    let text = strip_reasoning(reply);
    let text = text.trim();
    let fenced: Vec<String> = blocks(text)
        .into_iter()
        .filter(|block| matches!(block.language.as_str(), "json" | ""))
        .map(|block| block.content)
        .collect();
    let object = match fenced.as_slice() {
        // Braces first: a bare object may itself hold a text with a fenced block.
        _ if text.starts_with('{') => text,
        [one] => one.trim(),
        [] => between_braces(text).ok_or(JsonProblem::Missing)?,
        several => return Err(JsonProblem::Several { count: several.len() }),
    };
    if object.len() > MAX_JSON_BYTES {
        return Err(JsonProblem::TooLarge { bytes: object.len(), limit_bytes: MAX_JSON_BYTES });
    }
    serde_json::from_str(object).map_err(|error| JsonProblem::Unusable { message: error.to_string() })
}

fn between_braces(text: &str) -> Option<&str> {
    let (first, last) = (text.find('{')?, text.rfind('}')?);
    text.get(first..=last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Answer {
        score: u8,
    }

    #[test]
    fn an_object_is_found_bare_fenced_or_in_a_sentence() {
        for reply in [
            "{\"score\": 4}",
            "  {\"score\": 4}\n",
            "```json\n{\"score\": 4}\n```",
            "```\n{\"score\": 4}\n```",
            "My answer is {\"score\": 4}.",
            "<think>{\"score\": 1}</think>{\"score\": 4}",
        ] {
            assert_eq!(extract_json::<Answer>(reply), Ok(Answer { score: 4 }), "{reply}");
        }
    }

    #[test]
    fn a_text_with_a_fence_inside_an_object_is_no_block() {
        #[derive(Deserialize)]
        struct Text {
            text: String,
        }
        let reply = "{\"text\": \"a\\n```\\nb\\n```\\n\"}";
        assert_eq!(extract_json::<Text>(reply).map(|t| t.text), Ok("a\n```\nb\n```\n".to_owned()));
    }

    #[test]
    fn the_problem_says_what_to_change() {
        let Err(JsonProblem::Unusable { message }) = extract_json::<Answer>("{\"points\": 4}") else { panic!("used") };
        assert!(message.contains("missing field `score`"), "{message}");
        assert_eq!(extract_json::<Answer>("no"), Err(JsonProblem::Missing));
        let twice = "```json\n{\"score\": 4}\n```\n```json\n{\"score\": 5}\n```";
        assert_eq!(extract_json::<Answer>(twice), Err(JsonProblem::Several { count: 2 }));
        let large = format!("{{\"x\": \"{}\"}}", "y".repeat(MAX_JSON_BYTES));
        assert!(matches!(extract_json::<Answer>(&large), Err(JsonProblem::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(reply in "(?s)(```|json|[{]|[}]|<think>|</think>|\"|:|\n|.){0,40}") {
            let _ = extract_json::<Answer>(&reply);
        }
    }
}
