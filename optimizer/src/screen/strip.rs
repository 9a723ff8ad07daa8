//! C++ and CUDA without text that could address a model: for the judge, and for rules that look at code alone.

use super::assembly::{self, Assembly};
use super::lexer::{self, Lexeme};

/// Returns the source without comments, contents of literals, `#if 0` regions and texts of directives. Of inline assembly the
/// instructions and constraints stay. Lines keep their numbers.
#[must_use]
pub fn strip_comments_and_strings(source: &str) -> String {
    let code = stripped(&lexer::canonical(source), IncludeNames::WithoutBlanks, &mut Some(Assembly::default()));
    let lines: Vec<String> = code
        .split('\n')
        .map(|line| match lexer::directive_of(line) {
            Some((name @ ("error" | "warning" | "ident" | "sccs" | "pragma"), rest)) => text_directive(name, rest),
            _ => line.to_owned(),
        })
        .collect();
    lines.join("\n")
}

/// Which names of included files stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IncludeNames {
    All,
    /// A name with blanks could be a sentence.
    WithoutBlanks,
}

/// Returns a canonical source without comments and contents of literals.
pub(super) fn without_texts(canonical: &str, names: IncludeNames) -> String {
    stripped(canonical, names, &mut None)
}

/// Returns code and literals of a source, without comments and without blanks between them.
pub(super) fn without_comments(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    for (lexeme, text) in lexer::lexemes(&lexer::canonical(source)) {
        match lexeme {
            Lexeme::Comment => {}
            Lexeme::Code => out.extend(text.split_whitespace()),
            Lexeme::Text | Lexeme::Character | Lexeme::IncludeName => out.push_str(text),
        }
    }
    out
}

fn stripped(canonical: &str, names: IncludeNames, assembly: &mut Option<Assembly>) -> String {
    let mut out = String::with_capacity(canonical.len());
    for (lexeme, text) in lexer::lexemes(canonical) {
        match lexeme {
            Lexeme::Code => {
                if let Some(assembly) = assembly {
                    assembly.read(text);
                }
                out.push_str(text);
            }
            Lexeme::Comment => {
                out.push(' ');
                out.extend(text.chars().filter(|c| *c == '\n'));
            }
            Lexeme::Text => {
                out.push('"');
                if assembly.as_ref().is_some_and(Assembly::is_open) {
                    out.push_str(&assembly::instructions(text));
                }
                out.push('"');
                out.extend(text.chars().filter(|c| *c == '\n'));
            }
            Lexeme::Character => out.push_str("' '"),
            Lexeme::IncludeName if names == IncludeNames::All || !text.contains(char::is_whitespace) => {
                out.push_str(text);
            }
            Lexeme::IncludeName => out.push_str("\"\""),
        }
    }
    out
}

/// Drops the text of a directive that may hold free text. Pragmas that the compiler acts on stay.
fn text_directive(name: &str, rest: &str) -> String {
    let first = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
    match (name, first) {
        ("pragma", "GCC" | "clang" | "omp" | "unroll" | "once" | "STDC") => format!("#pragma {rest}"),
        _ => format!("#{name}"),
    }
}
