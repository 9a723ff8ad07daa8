//! Filters: how values look in a prompt.

use nightshift_protocol::fence::fence_of;

/// Most bytes of a text in a fenced block.
const MAX_FENCED_BYTES: usize = 300 * 1024;

/// A text in a fenced block whose fence does not occur in it, so that nothing in the text can end the block.
#[expect(clippy::needless_pass_by_value, reason = "the signature that a template filter has")]
pub(super) fn fenced(text: String, language: Option<String>) -> String {
    let fence = fence_of(&text);
    let language = language.unwrap_or_default();
    format!("{fence}{language}\n{}\n{fence}", clipped(text.trim_end_matches('\n'), MAX_FENCED_BYTES))
}

/// Returns a program in a fenced block that nothing in it can end.
pub(crate) fn fenced_program(text: String) -> String {
    fenced(text, None)
}

/// The beginning of a text that is too long, and how much is missing.
pub(crate) fn clipped(text: &str, limit_bytes: usize) -> String {
    if text.len() <= limit_bytes {
        return text.to_owned();
    }
    let end = (0..=limit_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}\n[{} more bytes are left out]", &text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_can_end_its_block() {
        assert_eq!(fenced("x".to_owned(), Some("cpp".to_owned())), "```cpp\nx\n```");
        assert_eq!(fenced("a\n````\nb\n".to_owned(), None), "`````\na\n````\nb\n`````");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(clipped("ééé", 3), "é\n[4 more bytes are left out]");
        assert_eq!(clipped("abc", 3), "abc");
    }
}
