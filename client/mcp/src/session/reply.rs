//! The reply of a turn as the run reads it: a tool call in JSON, and a program or edits.

use std::fmt::Write as _;

use nightshift_protocol::attempt::AgentTool;
use nightshift_protocol::task::CandidateForm;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// A replacement in the newest program of the session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// Whole lines of the program, exactly as they stand there, once.
    pub(crate) search: String,
    /// The lines that replace them; empty to delete them.
    pub(crate) replace: String,
}

/// A call of a session's tool.
#[derive(Debug, Clone)]
pub(crate) struct TurnCall<'a> {
    pub(crate) tool: AgentTool,
    pub(crate) note: &'a str,
    pub(crate) attempt: Option<u32>,
    pub(crate) turn: Option<u32>,
    pub(crate) key: &'a str,
    pub(crate) program: Option<&'a str>,
    pub(crate) edits: &'a [Edit],
}

impl TurnCall<'_> {
    /// Returns the text of the reply.
    pub(crate) fn text(&self, form: CandidateForm) -> String {
        let Self { tool, note, attempt, turn, key, program, edits } = self;
        let mut call = json!({ "tool": tool, "note": note, "key": key });
        for (field, number) in [("attempt", attempt), ("turn", turn)] {
            if let Some(number) = number {
                call[field] = json!(number);
            }
        }
        let mut text = format!("```json\n{call}\n```\n");
        if let Some(program) = program {
            let language = match form {
                CandidateForm::Native => "cpp",
                CandidateForm::Torch => "python",
            };
            let fence = fence(program);
            let _ = write!(text, "\n{fence}{language}\n{}{fence}\n", lines(program));
        }
        for Edit { search, replace } in *edits {
            let (search, replace) = (lines(search), lines(replace));
            let _ = write!(text, "\n<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n");
        }
        text
    }
}

/// Returns the idempotency key of a reply that [`TurnCall::text`] wrote.
pub(crate) fn key_of(reply: &str) -> Option<String> {
    let call: Value = serde_json::from_str(reply.strip_prefix("```json\n")?.lines().next()?).ok()?;
    call["key"].as_str().map(str::to_owned)
}

/// Returns whole lines; nothing stays nothing.
fn lines(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Returns a fence that no line of the program closes.
fn fence(program: &str) -> String {
    let longest = program.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '`').count()).max();
    "`".repeat(longest.map_or(3, |longest| longest + 1).max(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(program: Option<&'a str>, edits: &'a [Edit]) -> TurnCall<'a> {
        let tool = AgentTool::Measure;
        TurnCall { tool, note: "say \"why\"", attempt: None, turn: Some(2), key: "k-1", program, edits }
    }

    #[test]
    fn a_reply_holds_the_call_and_the_program() {
        let text = call(Some("a\n```\nb"), &[]).text(CandidateForm::Native);
        assert!(text.contains("\n````cpp\na\n```\nb\n````\n"), "{text}");
        assert_eq!(key_of(&text).as_deref(), Some("k-1"));
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("\"turn\":2") && !line.contains("attempt")));
        assert_eq!(key_of("Hello.\n"), None);
    }

    #[test]
    fn edits_stand_in_blocks_and_may_delete() {
        let edits = [Edit { search: "int a;".to_owned(), replace: String::new() }];
        let text = call(None, &edits).text(CandidateForm::Torch);
        assert!(text.ends_with("\n<<<<<<< SEARCH\nint a;\n=======\n>>>>>>> REPLACE\n"), "{text}");
    }
}
