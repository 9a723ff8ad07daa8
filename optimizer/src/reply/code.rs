//! Exactly one program.

use nightshift_protocol::task::CandidateForm;

use super::edit::{EditProblem, apply_edits, holds_edits, parse_edits};
use super::fence::{Block, blocks};
use super::reasoning::strip_reasoning;
use crate::screen::is_same_program;

/// Largest program that is accepted, in bytes.
pub const MAX_SOURCE_BYTES: usize = 256 * 1024;

/// Names of languages that mark a block as a native program; a block without a name counts as one.
const NATIVE: [&str; 11] = ["", "cpp", "c++", "cxx", "cc", "c", "cuda", "cu", "cuda-cpp", "cuda-c++", "hpp"];
/// The same, of a program in Python. CUDA that such a program builds stands inside of it.
const TORCH: [&str; 6] = ["", "python", "python3", "py", "triton", "torch"];

fn languages(form: CandidateForm) -> &'static [&'static str] {
    match form {
        CandidateForm::Native => &NATIVE,
        CandidateForm::Torch => &TORCH,
    }
}

/// Why a reply holds no usable program. The text is made for the repair turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeProblem {
    /// No block.
    #[error(
        "the reply has no fenced code block; the program has to stand in exactly one block that begins with ```{language}"
    )]
    NoCode {
        /// The language that is wanted.
        language: &'static str,
    },
    /// A block that never ends: the reply was cut off.
    #[error("the code block is not closed: the reply ended before the program did")]
    Unclosed,
    /// A block with nothing in it.
    #[error("the code block is empty")]
    Empty,
    /// More than one block.
    #[error("the reply has {count} code blocks; the whole program has to stand in exactly one")]
    SeveralBlocks {
        /// How many.
        count: usize,
    },
    /// Edits that cannot be applied.
    #[error(transparent)]
    Edit(#[from] EditProblem),
    /// A program and edits of another one.
    #[error("the reply has edits and a whole program; exactly one of both is wanted")]
    ProgramAndEdits,
    /// Larger than the limit.
    #[error("the program has {bytes} bytes; at most {MAX_SOURCE_BYTES} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl CodeProblem {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoCode { .. } | Self::Unclosed | Self::Empty => "reply.no_code",
            Self::SeveralBlocks { .. } => "reply.several_blocks",
            Self::TooLarge { .. } => "reply.too_large",
            Self::Edit(_) | Self::ProgramAndEdits => "reply.bad_edit",
        }
    }
}

/// Whether a reply has a program of this form, or edits of one.
pub(super) fn holds_program(reply: &str, form: CandidateForm) -> bool {
    let text = strip_reasoning(reply);
    holds_edits(&text) || blocks(&text).iter().any(|block| languages(form).contains(&block.language.as_str()))
}

/// The program that a reply stands for: the one that it holds, or `before` with the edits that it holds. Edits stand in
/// fenced blocks or bare. Returns an error for a program that differs from `before` in comments and blanks only: it would be
/// rewarded for what its author did not do.
pub fn extract_program(reply: &str, before: Option<&str>, form: CandidateForm) -> Result<String, CodeProblem> {
    let program = extract_any_program(reply, before, form)?;
    if before.is_some_and(|before| is_same_program(before, &program, form)) {
        return Err(EditProblem::NoChange.into());
    }
    Ok(program)
}

/// Returns the program like [`extract_program`], but a reply may also repeat `before` as a whole.
pub(super) fn extract_any_program(
    reply: &str,
    before: Option<&str>,
    form: CandidateForm,
) -> Result<String, CodeProblem> {
    let text = strip_reasoning(reply);
    if holds_edits(&text) { edited_program(&text, before, form) } else { extract_code(reply, form) }
}

fn edited_program(text: &str, before: Option<&str>, form: CandidateForm) -> Result<String, CodeProblem> {
    let edits = parse_edits(text)?;
    let is_program = |block: &Block| {
        languages(form).contains(&block.language.as_str()) && !holds_edits(&block.content) && !block.language.is_empty()
    };
    if blocks(text).iter().any(is_program) {
        return Err(CodeProblem::ProgramAndEdits);
    }
    let edited = apply_edits(before.ok_or(EditProblem::NothingToEdit)?, &edits)?;
    let bytes = edited.len();
    if bytes > MAX_SOURCE_BYTES { Err(CodeProblem::TooLarge { bytes }) } else { Ok(edited) }
}

/// Returns the name that every program of this form defines, and that illustrations lack.
fn entry_point(form: CandidateForm) -> &'static str {
    match form {
        CandidateForm::Native => "ns_run",
        CandidateForm::Torch => "class ModelNew",
    }
}

/// The one program of a reply. Blocks of other languages (a command line, an example of output) are passed over, and so are further
/// blocks where exactly one defines the program.
pub fn extract_code(reply: &str, form: CandidateForm) -> Result<String, CodeProblem> {
    let text = strip_reasoning(reply);
    let mut programs: Vec<Block> =
        blocks(&text).into_iter().filter(|block| languages(form).contains(&block.language.as_str())).collect();
    let defines = |block: &Block| block.content.contains(entry_point(form));
    if programs.iter().filter(|block| defines(block)).count() == 1 {
        programs.retain(defines);
    }
    let count = programs.len();
    let Some(program) = programs.pop() else {
        let language = languages(form).get(1).copied().unwrap_or_default();
        return Err(CodeProblem::NoCode { language });
    };
    if count > 1 {
        return Err(CodeProblem::SeveralBlocks { count });
    }
    let bytes = program.content.len();
    if bytes > MAX_SOURCE_BYTES {
        return Err(CodeProblem::TooLarge { bytes });
    }
    if !program.closed {
        return Err(CodeProblem::Unclosed);
    }
    if program.content.trim().is_empty() {
        return Err(CodeProblem::Empty);
    }
    Ok(program.content)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extract_code(reply: &str) -> Result<String, CodeProblem> {
        super::extract_code(reply, CandidateForm::Native)
    }

    fn extract_program(reply: &str, before: Option<&str>) -> Result<String, CodeProblem> {
        super::extract_program(reply, before, CandidateForm::Native)
    }

    #[test]
    fn of_several_blocks_the_one_that_defines_the_program_counts() {
        let program = "#include \"nightshift.h\"\nNS_EXPORT int ns_run();\n";
        let idea = "for (;;) {}";
        let reply = format!("The loop:\n```cpp\n{idea}\n```\nSo:\n```cpp\n{program}```\nor\n```\n{idea}\n```\n");
        assert_eq!(extract_code(&reply).as_deref(), Ok(program));
        let twice = format!("```cpp\n{program}```\n```cpp\n{program}```\n");
        assert_eq!(extract_code(&twice), Err(CodeProblem::SeveralBlocks { count: 2 }));
        let model = "class ModelNew:\n    pass\n";
        let torch = format!("```python\nimport torch\n```\n```python\n{model}```\n");
        assert_eq!(super::extract_code(&torch, CandidateForm::Torch).as_deref(), Ok(model));
    }

    #[test]
    fn a_program_in_python_stands_in_a_block_of_python() {
        let torch = |reply: &str| super::extract_program(reply, Some("a = 1\n"), CandidateForm::Torch);
        let program = "class ModelNew:\n    source = \"\"\"int x;\"\"\"\n";
        for language in ["python", "Python3", "py", ""] {
            assert_eq!(torch(&format!("So:\n```{language}\n{program}```\n")).as_deref(), Ok(program), "{language}");
        }
        // CUDA beside it is an illustration; alone it is no program.
        assert_eq!(torch(&format!("```cuda\nint x;\n```\n```python\n{program}```")).as_deref(), Ok(program));
        let alone = torch("```cuda\nint x;\n```");
        assert!(alone.is_err_and(|problem| problem.to_string().contains("```python")));
        let edit = "<<<<<<< SEARCH\na = 1\n=======\na = 2\n>>>>>>> REPLACE\n";
        assert_eq!(torch(edit).as_deref(), Ok("a = 2\n"));
        assert_eq!(torch(&format!("{edit}```python\n{program}```")), Err(CodeProblem::ProgramAndEdits));
        assert!(super::extract_code("```python\nx\n```", CandidateForm::Native).is_err());
    }

    #[test]
    fn the_one_program_is_taken_as_it_is() {
        let reply = "Sure.\n\n```cpp\n#include \"nightshift.h\"\n\tint x;\n```\nDone.";
        assert_eq!(extract_code(reply).as_deref(), Ok("#include \"nightshift.h\"\n\tint x;\n"));
    }

    #[test]
    fn every_name_of_the_language_will_do() {
        for language in ["", "C++", "cuda", "c", "CPP", "cu"] {
            assert_eq!(extract_code(&format!("```{language}\nint x;\n```")).as_deref(), Ok("int x;\n"), "{language}");
        }
    }

    #[test]
    fn edits_stand_for_the_program_that_they_make() {
        let edit = "<<<<<<< SEARCH\nint x;\n=======\nint y;\n>>>>>>> REPLACE\n";
        let before = Some("int a;\nint x;\n");
        for reply in
            [edit.to_owned(), format!("So:\n```cpp\n{edit}```\n"), format!("<think>```cpp\nint q;\n```</think>{edit}")]
        {
            assert_eq!(extract_program(&reply, before).as_deref(), Ok("int a;\nint y;\n"), "{reply}");
        }
        let both = format!("{edit}```cpp\nint z;\n```");
        assert_eq!(extract_program(&both, before), Err(CodeProblem::ProgramAndEdits));
        assert_eq!(extract_program(edit, None).map_err(|p| p.to_string()), Err(EditProblem::NothingToEdit.to_string()));
        assert_eq!(extract_program("```cpp\nint z;\n```", before).as_deref(), Ok("int z;\n"));
    }

    #[test]
    fn a_program_that_only_repeats_the_one_before_is_no_change() {
        let unchanged = Err(CodeProblem::Edit(EditProblem::NoChange));
        let before = Some("int x; // a\nint y = f(\"a b\");\n");
        for same in ["int x; // a\nint y = f(\"a b\");\n", "/* faster */ int x;\n\n  int y =f( \"a b\" );\n"] {
            assert_eq!(extract_program(&format!("```cpp\n{same}```"), before), unchanged, "{same}");
        }
        let comment = "<<<<<<< SEARCH\nint x; // a\n=======\nint x; // b\n>>>>>>> REPLACE\n";
        assert_eq!(extract_program(comment, before), unchanged);
        for other in ["int x;\nint y = f(\"ab\");\n", "int x;\nint y = g(\"a b\");\n"] {
            assert!(extract_program(&format!("```cpp\n{other}```"), before).is_ok(), "{other}");
        }
        let torch = |reply: &str, before: &str| {
            super::extract_program(&format!("```python\n{reply}```"), Some(before), CandidateForm::Torch)
        };
        let before = "if a:  # why\n    b()\ncuda = \"\"\"\n#include <x>\nint y; // c\n\"\"\"\n";
        let same = "if a:\n\n    b()\ncuda = \"\"\"\n#include <x>\n  int y;\n\"\"\"\n";
        assert_eq!((torch(before, before), torch(same, before)), (unchanged.clone(), unchanged));
        for (old, new) in [("    b()", "b()"), ("int y", "int z"), ("if a", "if b")] {
            assert!(torch(&before.replace(old, new), before).is_ok(), "{new}");
        }
    }

    #[test]
    fn other_blocks_do_not_count() {
        let reply = "```bash\nmake\n```\n```cpp\nint x;\n```\n```text\nout\n```";
        assert_eq!(extract_code(reply).as_deref(), Ok("int x;\n"));
    }

    #[test]
    fn a_program_in_the_reasoning_does_not_count() {
        let reply = "<think>\n```cpp\nint draft;\n```\n</think>\n```cpp\nint x;\n```";
        assert_eq!(extract_code(reply).as_deref(), Ok("int x;\n"));
    }

    #[test]
    fn each_unusable_reply_has_its_name() {
        for (reply, code) in [
            (String::new(), "reply.no_code"),
            ("I would rather not.".to_owned(), "reply.no_code"),
            ("```python\nx\n```".to_owned(), "reply.no_code"),
            ("```cpp\nint x;".to_owned(), "reply.no_code"),
            ("```cpp\n\n```".to_owned(), "reply.no_code"),
            ("```cpp\nint x;\n```\n```cpp\nint y;\n```".to_owned(), "reply.several_blocks"),
            (format!("```cpp\n{}\n```", "x".repeat(10 * 1024 * 1024)), "reply.too_large"),
        ] {
            let problem = extract_code(&reply).err().map(|problem| problem.code());
            assert_eq!(problem, Some(code), "{}", reply.chars().take(40).collect::<String>());
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(reply in "(?s)(```|~~~|<think>|</think>|cpp|\n| |.){0,40}") {
            let _ = extract_code(&reply);
        }

        #[test]
        fn a_fenced_program_comes_back_unchanged(lines in prop::collection::vec("[ -_a-}]{0,40}", 1..20)) {
            let program = lines.join("\n") + "\n";
            prop_assume!(!program.trim().is_empty());
            prop_assert_eq!(extract_code(&format!("Text.\n```cpp\n{program}```\nMore.")), Ok(program));
        }
    }
}
