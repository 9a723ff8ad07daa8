//! A source as the compiler reads it: what is a comment or a literal is blanked out, and every byte keeps its place.

/// The source with blanks in place of comments, strings and characters. As long as the source, line by line.
pub(super) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_comment(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => find(bytes, at + 2, b"*/"),
            b'"' if is_raw(bytes, at) => raw_string(bytes, at),
            b'"' => literal(bytes, at, b'"'),
            // Between digits it separates them.
            b'\'' if at > 0 && bytes[at - 1].is_ascii_alphanumeric() && is_digit_separator(bytes, at) => at + 1,
            b'\'' => literal(bytes, at, b'\''),
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    // Blanks replace whole literals and comments, so that no character is left in halves.
    String::from_utf8(code).unwrap_or_default()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    let from = from.min(bytes.len());
    bytes[from..].windows(what.len()).position(|window| window == what).map_or(bytes.len(), |at| from + at + what.len())
}

/// A backslash at the end of a line carries the comment on.
fn line_comment(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        if bytes[at] == b'\n' {
            let before = if at > 0 && bytes[at - 1] == b'\r' { at - 1 } else { at };
            if before == 0 || bytes[before - 1] != b'\\' {
                return at;
            }
        }
        at += 1;
    }
    at
}

/// Returns the end of a literal: its closing mark, or the end of its line when the mark is missing.
fn literal(bytes: &[u8], from: usize, mark: u8) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'\n' => return at,
            byte if byte == mark => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// `R"`, also with one of the prefixes of encodings.
fn is_raw(bytes: &[u8], quote: usize) -> bool {
    let word = bytes[..quote].iter().rev().take_while(|byte| is_word(**byte)).count();
    matches!(&bytes[quote - word..quote], b"R" | b"LR" | b"uR" | b"UR" | b"u8R")
}

/// `"mark( ... )mark"`.
fn raw_string(bytes: &[u8], quote: usize) -> usize {
    let Some(open) = bytes[quote..].iter().position(|byte| *byte == b'(').map(|at| quote + at) else {
        return bytes.len();
    };
    let end = [b")", &bytes[quote + 1..open], b"\""].concat();
    find(bytes, open + 1, &end)
}

/// Whether the word before a `'` is a number, as in `1'000`; in `u8'x'` it is a prefix.
fn is_digit_separator(bytes: &[u8], at: usize) -> bool {
    let word = bytes[..at].iter().rev().take_while(|byte| is_word(**byte) || **byte == b'\'').count();
    bytes[at - word].is_ascii_digit()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether these bytes are a whole word.
pub(super) fn is_whole_word(code: &str, from: usize, to: usize) -> bool {
    let bytes = code.as_bytes();
    let joined = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(|byte| is_word(*byte));
    !joined(from.checked_sub(1)) && !joined(Some(to))
}

/// The line of a place, from 1.
pub(super) fn line_of(code: &str, at: usize) -> u32 {
    u32::try_from(code[..at].matches('\n').count()).unwrap_or(u32::MAX - 1) + 1
}

/// Whether a place belongs to a line that begins with `#`; a backslash at the end of a line carries it on.
pub(super) fn is_on_directive(code: &str, at: usize) -> bool {
    let mut start = at;
    loop {
        start = code[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let before = code[..start].trim_end_matches(['\n', '\r']);
        let carried_on = start > 0 && code[before.len()..start].matches('\n').count() == 1 && before.ends_with('\\');
        if !carried_on {
            return code[start..].trim_start_matches([' ', '\t']).starts_with('#');
        }
        start = before.len();
    }
}

/// Whether this is an identifier.
pub(super) fn is_name(text: &str) -> bool {
    text.bytes().all(is_word) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// A plain decimal number of 32 bits, without a sign but `-` and without leading zeros, which would make it octal.
pub(super) fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_octal = digits.len() > 1 && digits.starts_with('0');
    if !is_plain || is_octal {
        return None;
    }
    text.parse::<i32>().ok().map(i64::from)
}
