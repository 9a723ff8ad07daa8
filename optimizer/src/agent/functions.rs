//! The tools of an agent session as functions, for endpoints with native tool calls. A call becomes the text that says the
//! same: history, replay and playback know only texts.

use nightshift_protocol::attempt::{AgentTool, SessionCall};
use nightshift_protocol::task::CandidateForm;
use serde_json::{Map, Value, json};

use crate::model::{FunctionCall, FunctionDefinition};
use crate::reply::strip_reasoning;

/// Returns the tools of a session.
pub(super) fn session_functions() -> Vec<FunctionDefinition> {
    AgentTool::ALL
        .map(|tool| FunctionDefinition { name: tool.as_str(), description: about(tool), parameters: parameters(tool) })
        .into()
}

fn about(tool: AgentTool) -> &'static str {
    match tool {
        AgentTool::Build => "Compile a program.",
        AgentTool::Check => "Compile a program and check its results.",
        AgentTool::Measure => "Compile, check and time a program. This is no submission.",
        AgentTool::Profile => "Compile, check, time and profile a program: what bounds it.",
        AgentTool::Submit => {
            "Take a program through every step. Only submitted programs count, and submissions are few."
        }
        AgentTool::Diagnose => "Have the Verifier name the bottleneck or the error of a submitted attempt.",
        AgentTool::Read => "Show the program and the result of a submitted attempt or of an earlier turn.",
        AgentTool::Finish => "End the session. The note is its summary.",
    }
}

fn parameters(tool: AgentTool) -> Value {
    let number = |what: &str| json!({"type": "integer", "description": what});
    let mut properties = json!({
        "note": {"type": "string", "description": "One sentence: what you try, and why. With finish: the summary."},
    });
    if tool.takes_program() {
        properties["program"] = json!({
            "type": "string",
            "description": "The whole program. Leave it and edits out to use the newest program as it is.",
        });
        properties["edits"] = json!({
            "type": "array",
            "description": "Instead of program: edits of the newest program, made in order.",
            "items": {
                "type": "object",
                "properties": {
                    "search": {"type": "string", "description": "Whole lines that stand in the program exactly once."},
                    "replace": {"type": "string", "description": "The lines that replace them."},
                },
                "required": ["search", "replace"],
            },
        });
    }
    if matches!(tool, AgentTool::Diagnose | AgentTool::Read) {
        properties["attempt"] = number("Number of a submitted attempt.");
    }
    if tool == AgentTool::Read {
        properties["turn"] = number("Number of an earlier turn.");
    }
    json!({"type": "object", "properties": properties, "required": ["note"]})
}

/// Returns the reply as a text. Blocks of the text itself would be read as further calls or programs: such a text is left out.
pub(super) fn as_text(text: &str, calls: &[FunctionCall], form: CandidateForm) -> String {
    let said = strip_reasoning(text);
    let said = said.trim();
    let mut parts: Vec<String> = Vec::new();
    if !said.is_empty() && !["```", "~~~", "<<<<<<<"].iter().any(|mark| said.contains(mark)) {
        parts.push(format!("{said}\n"));
    }
    parts.extend(calls.iter().map(|call| call_as_text(call, form)));
    parts.join("\n")
}

/// Returns a call as a text. A call that has no such text becomes a block that is refused with the reason.
fn call_as_text(call: &FunctionCall, form: CandidateForm) -> String {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { call.arguments.as_str() };
    // A block without a JSON object is refused when it is read.
    let Ok(mut given) = serde_json::from_str::<Map<String, Value>>(arguments) else {
        return format!("```json\n{arguments}\n```\n");
    };
    given.insert("tool".to_owned(), json!(call.name));
    // Keys and refusals are the evaluator's.
    given.retain(|name, _| name != "key" && name != "refused");
    let read = serde_json::from_value::<SessionCall>(Value::Object(given.clone())).map_err(|error| error.to_string());
    match read.and_then(|read| read.problem().map_or(Ok(read), Err)) {
        Ok(read) => read.to_reply(form),
        Err(reason) => {
            given.insert("refused".to_owned(), json!(reason));
            format!("```json\n{}\n```\n", Value::Object(given))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::extract_call;

    fn call(name: &str, arguments: &str) -> FunctionCall {
        FunctionCall { name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn a_call_becomes_the_text_that_says_the_same() {
        let measure = call("measure", r#"{"note": "n", "program": "int ns_run();"}"#);
        let text = as_text("I try this.", std::slice::from_ref(&measure), CandidateForm::Native);
        assert_eq!(
            text,
            "I try this.\n\n```json\n{\"note\":\"n\",\"tool\":\"measure\"}\n```\n\n```cpp\nint ns_run();\n```\n"
        );
        let text = as_text("```json\n{\"tool\": \"build\"}\n```", &[measure], CandidateForm::Native);
        assert!(text.starts_with("```json\n{\"note\"") && !text.contains("build"), "{text}");
        let cut = as_text("", &[call("build", "{\"note\": \"n")], CandidateForm::Native);
        assert_eq!(cut, "```json\n{\"note\": \"n\n```\n");
    }

    #[test]
    fn text_next_to_a_call_cannot_hide_it() {
        let build = [call("build", r#"{"note": "n"}"#)];
        for text in ["I try.\n<think>and never close", "<think>hm</think>I try."] {
            let text = as_text(text, &build, CandidateForm::Native);
            assert!(text.starts_with("I try.\n\n```json\n") && !text.contains("think"), "{text}");
        }
        let text = as_text("~~~cpp\nint x;\n~~~", &build, CandidateForm::Native);
        assert!(extract_call(&text).is_ok_and(|call| call.tool == "build") && !text.contains("~~~"), "{text}");
    }

    #[test]
    fn a_call_that_has_no_text_keeps_its_tool_and_says_why() {
        for (arguments, reason) in [
            (r#"{"note": "n", "program": 5}"#, "invalid type: integer `5`"),
            (r#"{"note": "n", "edits": [{"search": "a"}]}"#, "missing field `replace`"),
            (r#"{"note": "n", "edits": [{"search": "a\n=======\nb", "replace": ""}]}"#, "`search` of edit 1"),
            (r#"{"note": "n", "program": "a\n<<<<<<< SEARCH\nb"}"#, "`program` has the line"),
        ] {
            let text = as_text("", &[call("measure", arguments)], CandidateForm::Native);
            assert!(text.contains(r#""tool":"measure""#), "{text}");
            let refused = extract_call(&text).err().map(|problem| problem.to_string()).unwrap_or_default();
            assert!(refused.contains(reason), "{arguments}: {refused}");
        }
    }

    #[test]
    fn each_tool_is_a_function_with_a_schema() {
        let functions = session_functions();
        assert_eq!(functions.len(), AgentTool::ALL.len());
        for function in functions {
            let tool = AgentTool::parse(function.name);
            let has_program = function.parameters["properties"].get("program").is_some();
            assert_eq!(Some(has_program), tool.map(AgentTool::takes_program), "{}", function.name);
        }
    }
}
