//! The tool that a reply of an agent session names, and the program that it carries.

use nightshift_protocol::attempt::{MAX_NOTE_CHARS, SessionCall, ToolCall};
use nightshift_protocol::task::CandidateForm;

use super::code::{CodeProblem, extract_any_program, holds_program};
use super::fence::blocks;
use super::json::JsonProblem;
use super::reasoning::strip_reasoning;

/// Largest JSON object that is accepted, in bytes.
const MAX_CALL_BYTES: usize = 16 * 1024;
/// Longest idempotency key that is kept, in characters.
const MAX_KEY_CHARS: usize = 128;

/// Returns the one tool call of a reply: in a block of JSON, or bare in front of everything else.
pub fn extract_call(reply: &str) -> Result<ToolCall, JsonProblem> {
    let text = strip_reasoning(reply);
    let found: Vec<String> =
        blocks(&text).into_iter().filter(|block| block.language == "json").map(|block| block.content).collect();
    let object = match found.as_slice() {
        [one] => one.as_str(),
        [] if text.trim_start().starts_with('{') => text.trim_start(),
        [] => return Err(JsonProblem::Missing),
        several => return Err(JsonProblem::Several { count: several.len() }),
    };
    let unusable = |message: String| JsonProblem::Unusable { message };
    let first = serde_json::Deserializer::from_str(object).into_iter::<ToolCall>().next();
    let mut call = first.ok_or(JsonProblem::Missing)?.map_err(|error| unusable(error.to_string()))?;
    if let Some(message) = call.refused.take() {
        return Err(unusable(message));
    }
    let bytes = object.trim().len();
    if bytes > MAX_CALL_BYTES && !found.is_empty() {
        return Err(JsonProblem::TooLarge { bytes, limit_bytes: MAX_CALL_BYTES });
    }
    call.note = call.note.chars().take(MAX_NOTE_CHARS).collect();
    Ok(call)
}

/// Returns the idempotency key of a reply, also of one whose call cannot be used.
#[must_use]
pub fn key_of(reply: &str, call: &Result<ToolCall, JsonProblem>) -> Option<String> {
    let key = match call {
        Ok(call) => call.key.clone(),
        Err(_) => SessionCall::key_of(reply),
    };
    key.map(|key| key.chars().take(MAX_KEY_CHARS).collect())
}

/// Returns the program of a reply: whole, or as edits of `before`; none where the reply has neither.
pub fn extract_turn_program(
    reply: &str,
    before: Option<&str>,
    form: CandidateForm,
) -> Result<Option<String>, CodeProblem> {
    if !holds_program(reply, form) {
        return Ok(None);
    }
    extract_any_program(reply, before, form).map(Some)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROGRAM: &str = "#include \"nightshift.h\"\nNS_EXPORT int ns_run();\n";

    #[test]
    fn a_call_is_found_in_its_block_or_in_front() {
        for reply in [
            "First a build.\n```json\n{\"tool\": \"build\", \"note\": \"n\"}\n```\n```cpp\nint ns_run();\n```\n",
            "{\"tool\": \"build\", \"note\": \"n\"}\n\n```cpp\nint ns_run();\n```\n",
        ] {
            let call = extract_call(reply);
            assert_eq!(
                call.as_ref().map(|call| (call.tool.as_str(), call.note.as_str())),
                Ok(("build", "n")),
                "{reply}"
            );
            let program = extract_turn_program(reply, None, CandidateForm::Native);
            assert_eq!(program, Ok(Some("int ns_run();\n".to_owned())));
        }
        let read =
            extract_call("```json\n{\"tool\": \"read\", \"turn\": 3}\n```").map(|call| (call.turn, call.attempt));
        assert_eq!(read, Ok((Some(3), None)));
    }

    #[test]
    fn a_reply_names_exactly_one_tool() {
        assert_eq!(extract_call("I would like to build."), Err(JsonProblem::Missing));
        let call = "```json\n{\"tool\": \"build\"}\n```\n";
        assert_eq!(extract_call(&call.repeat(2)), Err(JsonProblem::Several { count: 2 }));
        let without = extract_call("```json\n{\"note\": \"n\"}\n```");
        assert!(without.is_err_and(|problem| problem.to_string().contains("missing field `tool`")));
    }

    #[test]
    fn a_refused_call_names_its_limit_and_keeps_its_key() {
        let note = "x".repeat(MAX_CALL_BYTES);
        let reply = format!("```json\n{{\"tool\": \"build\", \"key\": \"k-1\", \"note\": \"{note}\"}}\n```\n");
        let call = extract_call(&reply);
        assert_eq!(key_of(&reply, &call).as_deref(), Some("k-1"));
        assert!(call.is_err_and(|problem| problem.to_string().contains("at most 16384 are allowed")));
        let refused = extract_call("```json\n{\"tool\": \"build\", \"refused\": \"why\"}\n```\n");
        assert_eq!(refused, Err(JsonProblem::Unusable { message: "why".to_owned() }));
    }

    #[test]
    fn a_program_is_whole_or_edited_or_none() {
        let call = "```json\n{\"tool\": \"check\"}\n```\n";
        assert_eq!(extract_turn_program(call, Some(PROGRAM), CandidateForm::Native), Ok(None));
        let edit = format!("{call}<<<<<<< SEARCH\nNS_EXPORT int ns_run();\n=======\nint ns_run();\n>>>>>>> REPLACE\n");
        let edited = extract_turn_program(&edit, Some(PROGRAM), CandidateForm::Native);
        assert_eq!(edited, Ok(Some("#include \"nightshift.h\"\nint ns_run();\n".to_owned())));
        assert!(extract_turn_program(&edit, None, CandidateForm::Native).is_err());
        let again = format!("{call}```cpp\n{PROGRAM}```\n");
        let again = extract_turn_program(&again, Some(PROGRAM), CandidateForm::Native);
        assert_eq!(again, Ok(Some(PROGRAM.to_owned())), "a turn may send its program again");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(reply in "(?s)(```|json|cpp|[{]|[}]|\"tool\"|<think>|:|\n|.){0,40}") {
            let _ = extract_call(&reply);
            let _ = extract_turn_program(&reply, None, CandidateForm::Native);
        }
    }
}
