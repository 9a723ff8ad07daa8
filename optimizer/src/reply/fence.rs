//! Fenced blocks of a Markdown text.

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// First word behind the opening fence, in lower case; empty when there is none.
    pub(super) language: String,
    /// The lines between the fences, each with its end.
    pub(super) content: String,
    /// Whether the closing fence was found.
    pub(super) closed: bool,
}

/// Every fenced block, in order. Fences are three or more backticks or tildes, indented by at most three spaces; a
/// block ends at a fence of the same character that is at least as long.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Fence, Block)> = None;
    for line in text.split_inclusive('\n') {
        let fence = Fence::parse(line);
        match (open.take(), fence) {
            (None, Some((fence, info))) => {
                let language = info.split([' ', '\t', '{', ',', ':']).next().unwrap_or_default().to_ascii_lowercase();
                open = Some((fence, Block { language, content: String::new(), closed: false }));
            }
            (None, None) => {}
            (Some((opening, mut block)), Some((closing, ""))) if closing.closes(&opening) => {
                block.closed = true;
                blocks.push(block);
            }
            (Some((opening, mut block)), _) => {
                block.content.push_str(line);
                open = Some((opening, block));
            }
        }
    }
    blocks.extend(open.map(|(_, block)| block));
    blocks
}

struct Fence {
    character: char,
    length: usize,
}

impl Fence {
    /// The fence of a line, and what stands behind it.
    fn parse(line: &str) -> Option<(Self, &str)> {
        let unindented = line.trim_start_matches(' ');
        if line.len() - unindented.len() > 3 {
            return None;
        }
        let character = unindented.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let rest = unindented.trim_start_matches(character);
        let length = unindented.len() - rest.len();
        let info = rest.trim();
        // Backticks in the info make it inline code, as in ```` ```x``` ````.
        if length < 3 || (character == '`' && info.contains('`')) {
            return None;
        }
        Some((Self { character, length }, info))
    }

    fn closes(&self, opening: &Self) -> bool {
        self.character == opening.character && self.length >= opening.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(language: &str, content: &str, closed: bool) -> Block {
        Block { language: language.to_owned(), content: content.to_owned(), closed }
    }

    #[test]
    fn blocks_are_found_with_their_language() {
        let text = "Here:\n```cpp title=x\nint a;\n```\nand\n~~~\nb\n~~~\n";
        assert_eq!(blocks(text), [block("cpp", "int a;\n", true), block("", "b\n", true)]);
    }

    #[test]
    fn a_longer_fence_may_hold_a_shorter_one() {
        assert_eq!(blocks("````md\n```\nx\n```\n````\n"), [block("md", "```\nx\n```\n", true)]);
    }

    #[test]
    fn a_block_that_is_never_closed_says_so() {
        assert_eq!(blocks("```cpp\nint a;"), [block("cpp", "int a;", false)]);
    }

    #[test]
    fn inline_code_is_no_fence() {
        assert_eq!(blocks("```x``` is inline\n     ```\n"), []);
    }
}
