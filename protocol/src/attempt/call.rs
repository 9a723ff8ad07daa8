//! A call of a session's tool with its arguments apart, and the reply that says the same as a text.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fence::fence_of;
use crate::task::CandidateForm;

/// Maximum length of a note that is kept, in characters.
pub const MAX_NOTE_CHARS: usize = 2_000;

/// The line that begins an edit in a reply.
pub const EDIT_SEARCH: &str = "<<<<<<< SEARCH";
/// The line between the searched lines and those that replace them.
pub const EDIT_DIVIDER: &str = "=======";
/// The line that ends an edit.
pub const EDIT_REPLACE: &str = ">>>>>>> REPLACE";

/// A replacement in the newest program of the session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProgramEdit {
    /// Whole lines of the program.
    pub search: String,
    /// The lines that replace them; empty to delete them.
    pub replace: String,
}

/// A call of a session's tool, as its block of JSON holds it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolCall {
    /// Name of the tool.
    pub tool: String,
    /// The author's remark on the call.
    #[serde(default)]
    pub note: String,
    /// An attempt's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// A turn's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Idempotency key of the author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Why the call cannot be used, where a native call became a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A call with its program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct SessionCall {
    /// The call.
    #[serde(flatten)]
    pub call: ToolCall,
    /// The whole program.
    #[serde(default)]
    pub program: Option<String>,
    /// Edits of the newest program.
    #[serde(default)]
    pub edits: Option<Vec<ProgramEdit>>,
}

impl SessionCall {
    /// Returns the reply: the call in a block of JSON, and the program or the edits behind it.
    #[must_use]
    pub fn to_reply(&self, form: CandidateForm) -> String {
        let mut text = format!("```json\n{}\n```\n", json!(self.call));
        if let Some(program) = self.program.as_ref().filter(|program| !program.trim().is_empty()) {
            let language = match form {
                CandidateForm::Native => "cpp",
                CandidateForm::Torch => "python",
            };
            let fence = fence_of(program);
            let _ = write!(text, "\n{fence}{language}\n{}{fence}\n", lines(program));
        }
        for ProgramEdit { search, replace } in self.edits.iter().flatten() {
            let (search, replace) = (lines(search), lines(replace));
            let _ = write!(text, "\n{EDIT_SEARCH}\n{search}{EDIT_DIVIDER}\n{replace}{EDIT_REPLACE}\n");
        }
        text
    }

    /// Returns why the reply of [`SessionCall::to_reply`] would mean something else; `None` if it says the same.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if let Some(line) = marker(self.program.as_deref().unwrap_or_default(), &[EDIT_SEARCH]) {
            return Some(format!(
                "`program` has the line `{line}`, which begins an edit: write that line in another way"
            ));
        }
        (1..).zip(self.edits.iter().flatten()).find_map(|(number, edit)| {
            let found = marker(&edit.search, &[EDIT_SEARCH, EDIT_DIVIDER, EDIT_REPLACE]).map(|line| ("search", line));
            let (part, line) =
                found.or_else(|| Some(("replace", marker(&edit.replace, &[EDIT_SEARCH, EDIT_REPLACE])?)))?;
            let way = "leave that line out of the edit, or give the whole program";
            Some(format!("`{part}` of edit {number} has the line `{line}`, which is a part of an edit's form: {way}"))
        })
    }

    /// Returns the idempotency key of a reply that [`SessionCall::to_reply`] wrote.
    #[must_use]
    pub fn key_of(reply: &str) -> Option<String> {
        let call: Value = serde_json::from_str(reply.strip_prefix("```json\n")?.lines().next()?).ok()?;
        call["key"].as_str().map(str::to_owned)
    }
}

/// Returns the first of these markers that is a line of the text.
fn marker(text: &str, markers: &[&'static str]) -> Option<&'static str> {
    text.lines().find_map(|line| markers.iter().copied().find(|marker| *marker == line.trim_end()))
}

/// Returns whole lines; nothing stays nothing.
fn lines(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> SessionCall {
        let call = ToolCall { tool: "measure".to_owned(), note: "say \"why\"".to_owned(), ..ToolCall::default() };
        SessionCall { call, ..SessionCall::default() }
    }

    #[test]
    fn a_reply_holds_the_call_and_the_program() {
        let program = Some("a\n```\nb".to_owned());
        let call = ToolCall { turn: Some(2), key: Some("k-1".to_owned()), ..call().call };
        let text = SessionCall { call, program, edits: None }.to_reply(CandidateForm::Native);
        assert!(text.contains("\n````cpp\na\n```\nb\n````\n"), "{text}");
        assert_eq!(SessionCall::key_of(&text).as_deref(), Some("k-1"));
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("\"turn\":2") && !line.contains("attempt")));
        assert_eq!(SessionCall::key_of("Hello.\n"), None);
    }

    #[test]
    fn edits_stand_in_blocks_and_may_delete() {
        let edits = Some(vec![ProgramEdit { search: "int a;".to_owned(), replace: String::new() }]);
        let text = SessionCall { edits, ..call() }.to_reply(CandidateForm::Torch);
        assert!(text.ends_with("\n<<<<<<< SEARCH\nint a;\n=======\n>>>>>>> REPLACE\n"), "{text}");
    }

    #[test]
    fn a_line_that_would_change_the_meaning_of_the_reply_is_a_problem() {
        let edit = |search: &str, replace: &str| {
            let edits = Some(vec![ProgramEdit { search: search.to_owned(), replace: replace.to_owned() }]);
            SessionCall { edits, ..call() }.problem()
        };
        for line in ["<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE  "] {
            let problem = edit(&format!("int a;\n{line}\nint b;"), "int c;");
            assert!(problem.is_some_and(|problem| problem.contains("`search` of edit 1")), "{line}");
        }
        for line in ["<<<<<<< SEARCH", ">>>>>>> REPLACE"] {
            let problem = edit("int a;", &format!("int b;\r\n{line}\r\n"));
            assert!(problem.is_some_and(|problem| problem.contains("`replace` of edit 1")), "{line}");
        }
        assert_eq!(edit("int a;", "int b;\n=======\nint c;"), None);
        assert_eq!(edit("a << SEARCH;\n // =======", " <<<<<<< SEARCH"), None);
        let program = |text: &str| SessionCall { program: Some(text.to_owned()), ..call() }.problem();
        assert!(program("a\n<<<<<<< SEARCH\nb").is_some_and(|problem| problem.contains("`program`")));
        assert_eq!(program("a\n=======\n>>>>>>> REPLACE\nb"), None);
    }
}
