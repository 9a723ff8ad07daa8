//! Characters that let a source look different to a reader than to a compiler, and sources that are no text at all.

use std::collections::BTreeSet;

use nightshift_protocol::verdict::Finding;

use super::report::violation;

/// Maximum size of a source in bytes.
pub const MAX_SOURCE_BYTES: usize = 1024 * 1024;

const NUL: &str = "the source holds a NUL byte, and compilers and readers may stop there: delete it, and write the escape `\\0` \
                   where a program needs one";
const EMPTY: &str = "the source is empty: write the whole program into one block";

/// Capital Greek letters, and the small omicron, that look like Latin letters.
const GREEK_LOOKALIKES: &str = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧο";

/// Returns why a source cannot be screened at all: it is too large, empty, or not text.
pub(super) fn unusable(source: &str) -> Option<Finding> {
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!(
            "the source has {} bytes, and at most {MAX_SOURCE_BYTES} are examined: compute tables in the program instead \
             of writing them out",
            source.len()
        );
        return Some(violation("source_too_large", message, 1));
    }
    if source.trim().is_empty() {
        return Some(violation("empty_source", EMPTY, 1));
    }
    let at = source.find('\0')?;
    Some(violation("not_text", NUL, line_at(source, at)))
}

/// Finds characters that change what a reader sees: text direction, line ends, terminal control, invisible tags.
pub(super) fn characters(source: &str) -> Vec<Finding> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut line = 1;
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        let what = match c {
            '\n' => {
                line += 1;
                continue;
            }
            '\t' | '\u{b}' | '\u{c}' => continue,
            '\r' if chars.peek() == Some(&'\n') => continue,
            '\r' | '\u{2028}' | '\u{2029}' => "ends a line for some readers only",
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                "changes the direction of the text after it"
            }
            '\u{e0000}'..='\u{e007f}' => "is invisible, and readable for a model",
            c if c.is_control() => "steers a terminal",
            _ => continue,
        };
        if !seen.insert(c) {
            continue;
        }
        let message = format!(
            "the character U+{:04X} {what}, so that readers do not see the program that is built: delete it, and write \
             comments and names in plain letters",
            u32::from(c)
        );
        found.push(violation("hidden_text", message, line));
    }
    found
}

/// Finds names in code that look like other names. `code` is the source without comments and texts.
pub(super) fn names(code: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, text) in (1_u32..).zip(code.lines()) {
        for name in text.split(|c: char| !(c.is_alphanumeric() || c == '_' || is_invisible(c))) {
            if name.is_ascii() || !is_lookalike(name) {
                continue;
            }
            let message = format!(
                "the name `{}` has invisible letters or letters that look like others: spell it with ASCII letters",
                name.escape_default()
            );
            found.push(violation("lookalike_name", message, line));
        }
    }
    found
}

fn is_lookalike(name: &str) -> bool {
    let mixes =
        |is_foreign: fn(char) -> bool| name.contains(is_foreign) && name.contains(|c: char| c.is_ascii_alphabetic());
    // Python takes the full-width and the mathematical letters for ASCII letters.
    name.contains(|c: char| is_invisible(c) || matches!(c, '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}'))
        || mixes(|c| matches!(c, '\u{400}'..='\u{52f}'))
        || mixes(|c| GREEK_LOOKALIKES.contains(c))
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}')
}

fn line_at(source: &str, at: usize) -> u32 {
    let before = source.get(..at).unwrap_or(source).matches('\n').count();
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}
