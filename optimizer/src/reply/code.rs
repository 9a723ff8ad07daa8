//! Exactly one program.

use super::fence::{Block, blocks};
use super::reasoning::strip_reasoning;

/// Largest program that is accepted, in bytes.
pub const MAX_SOURCE_BYTES: usize = 256 * 1024;

/// Names of languages that mark a block as a program; a block without a name counts as one.
const LANGUAGES: [&str; 11] = ["", "cpp", "c++", "cxx", "cc", "c", "cuda", "cu", "cuda-cpp", "cuda-c++", "hpp"];

/// Why a reply holds no usable program. The text is made for the repair turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeProblem {
    /// No block.
    #[error(
        "the reply has no fenced code block; the program has to stand in exactly one block that begins with ```cpp"
    )]
    NoCode,
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
    /// Larger than the limit.
    #[error("the program has {bytes} bytes; at most {MAX_SOURCE_BYTES} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl CodeProblem {
    /// Stable code, documented in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoCode | Self::Unclosed | Self::Empty => "reply.no_code",
            Self::SeveralBlocks { .. } => "reply.several_blocks",
            Self::TooLarge { .. } => "reply.too_large",
        }
    }
}

/// The one program of a reply. Blocks of other languages (a command line, an example of output) are passed over.
pub fn extract_code(reply: &str) -> Result<String, CodeProblem> {
    let text = strip_reasoning(reply);
    let mut programs: Vec<Block> =
        blocks(&text).into_iter().filter(|block| LANGUAGES.contains(&block.language.as_str())).collect();
    let count = programs.len();
    let Some(program) = programs.pop() else { return Err(CodeProblem::NoCode) };
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
