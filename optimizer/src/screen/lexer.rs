//! Splits C++ and CUDA into code, comments and literals.
//!
//! The source is first brought into a canonical form: spliced lines joined, `#if 0` regions removed.
//! Lines keep their numbers.

/// What a piece of the source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lexeme {
    /// Code, of any kind.
    Code,
    /// `// ...` or `/* ... */`.
    Comment,
    /// A string literal with its quotes, raw ones included.
    Text,
    /// A character literal with its quotes.
    Character,
    /// The name in an `#include`, with its quotes or angle brackets.
    IncludeName,
}

/// Returns the source with spliced lines joined and without `#if 0` regions, in as many lines.
pub(super) fn canonical(source: &str) -> String {
    without_dead_regions(&splice(source))
}

/// Joins lines that end in a backslash; the removed line ends are put back where the joined line ends.
fn splice(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut owed_lines = 0_usize;
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        if c == '\\' {
            // Blanks between the backslash and the line end are ignored, as common compilers do.
            let after = rest[1..].trim_start_matches([' ', '\t', '\r']);
            if let Some(next_line) = after.strip_prefix('\n') {
                owed_lines += 1;
                rest = next_line;
                continue;
            }
        }
        out.push(c);
        if c == '\n' {
            out.extend(std::iter::repeat_n('\n', owed_lines));
            owed_lines = 0;
        }
        rest = &rest[c.len_utf8()..];
    }
    out.extend(std::iter::repeat_n('\n', owed_lines));
    out
}

/// Blanks the region between `#if 0` and its `#else`, `#elif` or `#endif`: the compiler skips it, so it neither counts
/// against the candidate nor reaches the judge.
fn without_dead_regions(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut depth_in_dead = 0_usize;
    let mut dead = false;
    for line in source.split_inclusive('\n') {
        let directive = directive_of(line);
        if dead {
            match directive {
                Some(("if" | "ifdef" | "ifndef", _)) => depth_in_dead += 1,
                Some(("endif", _)) if depth_in_dead > 0 => depth_in_dead -= 1,
                Some(("endif" | "else" | "elif", _)) if depth_in_dead == 0 => dead = false,
                _ => {}
            }
            if dead {
                if line.ends_with('\n') {
                    out.push('\n');
                }
                continue;
            }
        } else if matches!(directive, Some(("if", rest)) if is_zero(rest)) {
            dead = true;
            depth_in_dead = 0;
        }
        out.push_str(line);
    }
    out
}

fn is_zero(condition: &str) -> bool {
    let condition = condition.split("//").next().unwrap_or("").split("/*").next().unwrap_or("").trim();
    matches!(condition.trim_matches(['(', ')', ' ']), "0" | "false")
}

/// Returns name and rest of a preprocessor directive, when the line is one.
pub(super) fn directive_of(line: &str) -> Option<(&str, &str)> {
    let after = line.trim_start().strip_prefix('#')?.trim_start();
    let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
    Some((&after[..end], after[end..].trim()))
}

/// Splits the source into pieces whose concatenation is the source.
pub(super) fn lexemes(source: &str) -> Vec<(Lexeme, &str)> {
    let mut pieces = Vec::new();
    let (mut code_start, mut line_start, mut at) = (0, 0, 0);
    let bytes = source.as_bytes();
    while at < bytes.len() {
        if bytes[at] == b'\n' {
            line_start = at + 1;
        }
        let found = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => Some((Lexeme::Comment, end_of_line(source, at))),
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = source[at + 2..].find("*/").map_or(source.len(), |length| at + 2 + length + 2);
                Some((Lexeme::Comment, end))
            }
            b'"' if names_include(&source[line_start..at]) => {
                Some((Lexeme::IncludeName, end_of_quoted(source, at, b'"')))
            }
            b'"' if is_raw_prefix(bytes, at) => Some((Lexeme::Text, end_of_raw(source, at))),
            b'"' => Some((Lexeme::Text, end_of_quoted(source, at, b'"'))),
            b'<' if names_include(&source[line_start..at]) => {
                let line_end = end_of_line(source, at);
                let end = source[at..line_end].find('>').map_or(line_end, |length| at + length + 1);
                Some((Lexeme::IncludeName, end))
            }
            // Between digits a quote only groups them: `1'000'000`.
            b'\'' if !is_digit_separator(bytes, at) => Some((Lexeme::Character, end_of_quoted(source, at, b'\''))),
            _ => None,
        };
        if let Some((lexeme, end)) = found {
            if code_start < at {
                pieces.push((Lexeme::Code, &source[code_start..at]));
            }
            pieces.push((lexeme, &source[at..end]));
            line_start = source[at..end].rfind('\n').map_or(line_start, |newline| at + newline + 1);
            at = end;
            code_start = end;
        } else {
            at += 1;
        }
    }
    if code_start < source.len() {
        pieces.push((Lexeme::Code, &source[code_start..]));
    }
    pieces
}

fn end_of_line(source: &str, at: usize) -> usize {
    source[at..].find('\n').map_or(source.len(), |length| at + length)
}

/// Returns the end of a quoted literal; an unterminated one ends with its line.
fn end_of_quoted(source: &str, at: usize, quote: u8) -> usize {
    let bytes = source.as_bytes();
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'\n' => return i,
            b if b == quote => return i + 1,
            _ => i += 1,
        }
    }
    source.len()
}

fn end_of_raw(source: &str, at: usize) -> usize {
    let body = &source[at + 1..];
    let Some(open) = body.find('(') else { return source.len() };
    let closing = format!("){}\"", &body[..open]);
    body[open..].find(&closing).map_or(source.len(), |length| at + 1 + open + length + closing.len())
}

fn is_raw_prefix(bytes: &[u8], quote_at: usize) -> bool {
    let mut start = quote_at;
    while start > 0 && (bytes[start - 1].is_ascii_alphanumeric() || bytes[start - 1] == b'_') {
        start -= 1;
    }
    matches!(&bytes[start..quote_at], b"R" | b"LR" | b"uR" | b"UR" | b"u8R")
}

fn is_digit_separator(bytes: &[u8], at: usize) -> bool {
    let mut start = at;
    while start > 0 && (bytes[start - 1].is_ascii_alphanumeric() || bytes[start - 1] == b'\'') {
        start -= 1;
    }
    start < at && bytes[start].is_ascii_digit() && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric)
}

/// Whether the text before a name on its line is a directive that includes it.
fn names_include(before: &str) -> bool {
    let directive = before.trim_start().strip_prefix('#').map(str::trim);
    matches!(directive, Some("include" | "include_next" | "import" | "embed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(source: &str) -> String {
        lexemes(source).into_iter().filter(|(lexeme, _)| *lexeme == Lexeme::Code).map(|(_, text)| text).collect()
    }

    #[test]
    fn pieces_put_together_are_the_source() {
        let source = "int a = 1'000; /* x */ char c = 'y'; // z\nauto s = R\"q(a\")q\"; #include \"b\"\n\"open";
        let whole: String = lexemes(source).into_iter().map(|(_, text)| text).collect();
        assert_eq!(whole, source);
    }

    #[test]
    fn a_raw_string_ends_at_its_own_delimiter() {
        assert_eq!(code_of("auto s = R\"x(\" // not the end )\")x\"; int t;"), "auto s = R; int t;");
    }

    #[test]
    fn digit_separators_are_no_character_literals() {
        assert_eq!(code_of("int n = 1'000'000; f('a');"), "int n = 1'000'000; f();");
    }

    #[test]
    fn a_comment_marker_in_a_string_starts_no_comment() {
        assert_eq!(code_of("p(\"/*\"); q(); p(\"*/\");"), "p(); q(); p();");
    }

    #[test]
    fn a_spliced_name_is_whole_again_and_lines_keep_their_numbers() {
        let canonical = canonical("sys\\\ntem(x);\nnext();\n");
        assert_eq!(canonical, "system(x);\n\nnext();\n");
    }

    #[test]
    fn a_dead_region_vanishes_and_its_else_branch_stays() {
        let canonical = canonical("#if 0\nthread t;\n#if 1\nx\n#endif\n#else\nint y;\n#endif\n");
        assert_eq!(canonical, "#if 0\n\n\n\n\n#else\nint y;\n#endif\n");
    }
}
