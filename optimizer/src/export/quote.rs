//! Texts that others wrote, as parts of files in other languages.

use std::fmt::Write as _;

/// One line without control characters: for comments, which it must not leave.
pub(super) fn one_line(text: &str) -> String {
    let words = text.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect::<String>();
    // A backslash at the end of a line would go on with the comment; one at the end of a word of it does nothing.
    words.split_whitespace().collect::<Vec<_>>().join(" ").trim_end_matches('\\').to_owned()
}

/// Neither a control character nor one that changes the direction of what follows.
fn is_plain(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns
}

/// A literal of Python. What is not printable ASCII is escaped, so that it reads as what it is.
pub(super) fn python(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            ' '..='~' => quoted.push(c),
            c => {
                let code = u32::from(c);
                let escaped = if code <= 0xFFFF { format!("\\u{code:04x}") } else { format!("\\U{code:08x}") };
                quoted.push_str(&escaped);
            }
        }
    }
    quoted.push('"');
    quoted
}

/// A text as literals of Python below each other, one for each line.
pub(super) fn python_lines(text: &str) -> String {
    let lines: Vec<String> = text.split_inclusive('\n').map(|line| format!("    {}", python(line))).collect();
    if lines.is_empty() { "    \"\"".to_owned() } else { lines.join("\n") }
}

/// A literal of C++. What is not printable ASCII is given byte by byte.
pub(super) fn cpp(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            // A question mark may begin a trigraph.
            b'"' | b'\\' | b'?' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            byte => {
                // Writing to a text does not fail.
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_stays_one_line() {
        assert_eq!(one_line("a\n#include <x>\r\u{2028}b\u{202e}c \\"), "a #include <x> b c ");
        assert_eq!(one_line("  many   words "), "many words");
    }

    #[test]
    fn literals_hold_what_they_quote() {
        assert_eq!(python("a\"\\\n\u{1}\u{e9}\u{1f600}"), "\"a\\\"\\\\\\n\\u0001\\u00e9\\U0001f600\"");
        assert_eq!(python_lines("a\r\nb"), "    \"a\\u000d\\n\"\n    \"b\"");
        assert_eq!(python_lines(""), "    \"\"");
        assert_eq!(cpp("a\"\\?\u{e9}1"), "\"a\\\"\\\\\\?\\303\\2511\"");
    }
}
