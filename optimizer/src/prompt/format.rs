//! Filters: how values look in a prompt.

/// Most bytes of a text in a fenced block.
const MAX_FENCED_BYTES: usize = 300 * 1024;

/// A text in a fenced block whose fence does not occur in it, so that nothing in the text can end the block.
#[expect(clippy::needless_pass_by_value, reason = "the signature that a template filter has")]
pub(super) fn fenced(text: String, language: Option<String>) -> String {
    let longest_run = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest_run.max(2) + 1);
    let language = language.unwrap_or_default();
    format!("{fence}{language}\n{}\n{fence}", clipped(text.trim_end_matches('\n'), MAX_FENCED_BYTES))
}

/// The beginning of a text that is too long, and how much is missing.
pub(super) fn clipped(text: &str, limit_bytes: usize) -> String {
    if text.len() <= limit_bytes {
        return text.to_owned();
    }
    let end = (0..=limit_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}\n[{} more bytes are left out]", &text[..end], text.len() - end)
}

/// A number with four significant digits, without an exponent where people would not use one.
pub(super) fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    if magnitude >= 1e9 || (magnitude > 0.0 && magnitude < 1e-4) {
        return format!("{value:.3e}");
    }
    let decimals = match magnitude {
        m if m >= 1_000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 1.0 => 3,
        m if m >= 0.1 => 4,
        _ => 6,
    };
    format!("{value:.decimals$}")
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

    #[test]
    fn numbers_read_well() {
        for (value, text) in
            [(1234.5, "1234"), (1.0, "1.000"), (0.02, "0.020000"), (2.5e12, "2.500e12"), (0.0, "0.000000")]
        {
            assert_eq!(significant(value), text);
        }
    }
}
