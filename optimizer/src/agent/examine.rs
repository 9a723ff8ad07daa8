//! The examination of an outside agent's answer before it is accepted: what can be judged without the run.

use nightshift_protocol::api::{MAX_ANSWER_BYTES, RequestQuestion};
use nightshift_protocol::attempt::AgentTool;
use serde_json::Value;

use super::schema;
use crate::reply::{CodeProblem, extract_call, extract_json, extract_program, extract_turn_program};

/// Why an answer is not accepted. The request stays open under the same lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerProblem {
    /// Nothing is in it.
    #[error("the answer is empty")]
    Empty,
    /// More than the limit.
    #[error("the answer has {bytes} bytes; at most {MAX_ANSWER_BYTES} are accepted")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// There is no JSON object where one is wanted.
    #[error("{0}; answer with exactly one JSON object that satisfies the schema of the request")]
    NotJson(String),
    /// The JSON object does not satisfy the schema.
    #[error("the JSON object does not satisfy the schema of the request: {0}")]
    Schema(String),
    /// There is no program where one is wanted.
    #[error("{0}")]
    NoCode(String),
    /// There is no call of a tool where a turn of a session is wanted.
    #[error("{0}; answer with exactly one call of a tool, in the form that the rules name")]
    NoCall(String),
}

impl AnswerProblem {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Empty => "answer.empty",
            Self::TooLarge { .. } => "answer.too_large",
            Self::NotJson(_) => "answer.not_json",
            Self::Schema(_) => "answer.schema_mismatch",
            Self::NoCode(_) => "answer.no_code",
            Self::NoCall(_) => "answer.no_call",
        }
    }
}

/// Examines an answer to a question: its size, and that it holds the JSON object or the program that is wanted. What only
/// the run knows, for example whether an edit applies, comes back as the next turn of the conversation.
pub fn examine_answer(question: &RequestQuestion, text: &str) -> Result<(), AnswerProblem> {
    if text.len() > MAX_ANSWER_BYTES {
        return Err(AnswerProblem::TooLarge { bytes: text.len() });
    }
    if text.trim().is_empty() {
        return Err(AnswerProblem::Empty);
    }
    if let Some(wanted) = &question.schema {
        let object: Value = extract_json(text).map_err(|problem| AnswerProblem::NotJson(problem.to_string()))?;
        return schema::check(wanted, &object).map_err(AnswerProblem::Schema);
    }
    if let Some(form) = question.form {
        return examine_program(extract_program(text, None, form));
    }
    let Some(form) = question.turn_form else { return Ok(()) };
    let call = extract_call(text).map_err(|problem| AnswerProblem::NoCall(problem.to_string()))?;
    if AgentTool::parse(&call.tool).is_none() {
        let known = AgentTool::ALL.map(AgentTool::as_str).join(", ");
        return Err(AnswerProblem::NoCall(format!("there is no tool `{}`, only {known}", call.tool)));
    }
    examine_program(extract_turn_program(text, None, form))
}

fn examine_program<T>(extracted: Result<T, CodeProblem>) -> Result<(), AnswerProblem> {
    match extracted {
        // Only the run has the program, and can say whether edits apply.
        Ok(_) | Err(CodeProblem::Edit(_)) => Ok(()),
        Err(problem) => Err(AnswerProblem::NoCode(problem.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::task::CandidateForm;
    use serde_json::json;

    use super::*;

    fn question(schema: Option<Value>, form: Option<CandidateForm>) -> RequestQuestion {
        RequestQuestion {
            system: String::new(),
            user: String::new(),
            earlier: Vec::new(),
            schema,
            form,
            turn_form: None,
            max_output_tokens: 1,
        }
    }

    fn code(question: &RequestQuestion, text: &str) -> Option<&'static str> {
        examine_answer(question, text).err().map(|problem| problem.code())
    }

    #[test]
    fn an_answer_of_ten_megabytes_is_too_large() {
        assert_eq!(code(&question(None, None), &"x".repeat(10 * 1024 * 1024)), Some("answer.too_large"));
        assert_eq!(code(&question(None, None), " \n"), Some("answer.empty"));
    }

    #[test]
    fn an_object_has_to_satisfy_the_schema() {
        let question = question(Some(schema::correction()), None);
        let good = json!({"critical_issue": "a", "why_it_matters": "b", "minimal_fix": "c"});
        assert_eq!(code(&question, &format!("```json\n{good}\n```")), None);
        assert_eq!(code(&question, "I cannot"), Some("answer.not_json"));
        let missing = json!({"critical_issue": "a", "why_it_matters": "b"});
        let problem = examine_answer(&question, &missing.to_string()).err().map(|problem| problem.to_string());
        assert!(problem.is_some_and(|problem| problem.contains("`minimal_fix` is missing")));
    }

    #[test]
    fn a_turn_has_to_call_one_tool_with_one_program_at_most() {
        let turn = RequestQuestion { turn_form: Some(CandidateForm::Native), ..question(None, None) };
        let build = "```json\n{\"tool\": \"build\", \"note\": \"n\"}\n```\n";
        let program = "```cpp\nint ns_run();\n```\n";
        let edit = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n";
        for good in [build.to_owned(), format!("{build}{program}"), format!("{build}{edit}")] {
            assert_eq!(code(&turn, &good), None, "{good}");
        }
        assert_eq!(code(&turn, "I would build it."), Some("answer.no_call"));
        assert_eq!(code(&turn, &build.replace("build", "shell")), Some("answer.no_call"));
        assert_eq!(code(&turn, &build.repeat(2)), Some("answer.no_call"));
        assert_eq!(code(&turn, &format!("{build}{program}{program}")), Some("answer.no_code"));
    }

    #[test]
    fn a_program_has_to_be_in_one_code_block() {
        let native = question(None, Some(CandidateForm::Native));
        assert_eq!(code(&native, "Here it comes."), Some("answer.no_code"));
        assert_eq!(code(&native, "```cpp\nvoid ns_run() {}\n```"), None);
        assert_eq!(code(&native, "```cpp\nvoid ns_run() {}"), Some("answer.no_code"));
        let torch = question(None, Some(CandidateForm::Torch));
        assert_eq!(code(&torch, "```python\nclass ModelNew: pass\n```"), None);
    }
}
