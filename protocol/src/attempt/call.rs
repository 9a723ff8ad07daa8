//! A call of a session's tool with its arguments apart, and the reply that says the same as a text.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::task::CandidateForm;

/// The lines of an edit in a reply.
const SEARCH: &str = "<<<<<<< SEARCH";
const DIVIDER: &str = "=======";
const REPLACE: &str = ">>>>>>> REPLACE";

/// A replacement in the newest program of the session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProgramEdit {
    /// Whole lines of the program.
    pub search: String,
    /// The lines that replace them; empty to delete them.
    pub replace: String,
}

/// A call of a session's tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct SessionCall {
    /// Name of the tool.
    #[serde(default)]
    pub tool: String,
    /// What the Coder says about it.
    #[serde(default)]
    pub note: String,
    /// An attempt's number.
    #[serde(default)]
    pub attempt: Option<u32>,
    /// A turn's number.
    #[serde(default)]
    pub turn: Option<u32>,
    /// Idempotency key.
    #[serde(default)]
    pub key: Option<String>,
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
        let mut call = json!({ "tool": self.tool, "note": self.note });
        for (field, number) in [("attempt", self.attempt), ("turn", self.turn)] {
            if let Some(number) = number {
                call[field] = json!(number);
            }
        }
        if let Some(key) = &self.key {
            call["key"] = json!(key);
        }
        let mut text = format!("```json\n{call}\n```\n");
        if let Some(program) = self.program.as_ref().filter(|program| !program.trim().is_empty()) {
            let language = match form {
                CandidateForm::Native => "cpp",
                CandidateForm::Torch => "python",
            };
            let fence = fence(program);
            let _ = write!(text, "\n{fence}{language}\n{}{fence}\n", lines(program));
        }
        for ProgramEdit { search, replace } in self.edits.iter().flatten() {
            let (search, replace) = (lines(search), lines(replace));
            let _ = write!(text, "\n{SEARCH}\n{search}{DIVIDER}\n{replace}{REPLACE}\n");
        }
        text
    }

    /// Returns why the reply of [`SessionCall::to_reply`] would mean something else; `None` if it says the same.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if let Some(line) = marker(self.program.as_deref().unwrap_or_default(), &[SEARCH]) {
            return Some(format!(
                "`program` has the line `{line}`, which begins an edit: write that line in another way"
            ));
        }
        (1..).zip(self.edits.iter().flatten()).find_map(|(number, edit)| {
            let found = marker(&edit.search, &[SEARCH, DIVIDER, REPLACE]).map(|line| ("search", line));
            let (part, line) = found.or_else(|| Some(("replace", marker(&edit.replace, &[SEARCH, REPLACE])?)))?;
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

/// Returns a fence that no line of the program closes.
fn fence(program: &str) -> String {
    let longest = program.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '`').count()).max();
    "`".repeat(longest.map_or(3, |longest| longest + 1).max(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> SessionCall {
        SessionCall { tool: "measure".to_owned(), note: "say \"why\"".to_owned(), ..SessionCall::default() }
    }

    #[test]
    fn a_reply_holds_the_call_and_the_program() {
        let program = Some("a\n```\nb".to_owned());
        let text = SessionCall { turn: Some(2), key: Some("k-1".to_owned()), program, ..call() };
        let text = text.to_reply(CandidateForm::Native);
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
