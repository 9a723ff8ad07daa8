//! Screens the source of a candidate: the first rung of the Verifier's ladder.
//!
//! The evaluator runs a candidate in a sandbox and verifies what it computes, so the screening refuses only what the
//! evaluator cannot see: sources that are no text, text that looks different to readers than to compilers, machine code in
//! place of a program, and libraries of headers that the task does not allow. Everything else that is worth a look is a
//! warning or a note. `docs/explanation/screening.md` lists the rules.

mod assembly;
mod cpp;
mod hidden;
mod lexer;
mod literal;
mod native;
mod prebuilt;
mod python;
mod report;
mod strip;
mod words;

use std::collections::BTreeSet;

use nightshift_protocol::task::{CandidateForm, CudaLibrary, Target, TaskSpec};
use nightshift_protocol::verdict::Finding;

pub use hidden::MAX_SOURCE_BYTES;
pub use strip::strip_comments_and_strings;

/// Returns the findings of a candidate of this task, the gravest first.
#[must_use]
pub fn screen_candidate(source: &str, spec: &TaskSpec) -> Vec<Finding> {
    match spec.form {
        CandidateForm::Native => screen_native(source, spec.target, &spec.libraries),
        CandidateForm::Torch => screen_torch(source),
    }
}

/// Returns the findings of a program in C++ or CUDA, the gravest first. `libraries` are those that the task allows.
#[must_use]
pub fn screen_native(source: &str, target: Target, libraries: &BTreeSet<CudaLibrary>) -> Vec<Finding> {
    screened(source, CandidateForm::Native, |source| native::findings(source, target, libraries))
}

/// Returns the findings of a program in Python, the gravest first.
#[must_use]
pub fn screen_torch(source: &str) -> Vec<Finding> {
    screened(source, CandidateForm::Torch, python::findings)
}

/// Returns the source of a candidate without anything that could address the judge: comments, and texts that are no code.
/// Lines keep their numbers.
#[must_use]
pub fn strip_candidate(source: &str, form: CandidateForm) -> String {
    match form {
        CandidateForm::Native => strip_comments_and_strings(source),
        CandidateForm::Torch => python::stripped(source),
    }
}

/// True if two programs differ in comments and blanks only.
pub(crate) fn is_same_program(one: &str, other: &str, form: CandidateForm) -> bool {
    let code = match form {
        CandidateForm::Native => strip::without_comments,
        CandidateForm::Torch => python::without_comments,
    };
    code(one) == code(other)
}

fn screened(source: &str, form: CandidateForm, rules: impl FnOnce(&str) -> Vec<Finding>) -> Vec<Finding> {
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    if let Some(refusal) = hidden::unusable(source) {
        return vec![refusal];
    }
    let mut found = hidden::characters(source);
    found.extend(hidden::names(&strip_candidate(source, form)));
    found.extend(rules(source));
    report::ordered(found)
}
