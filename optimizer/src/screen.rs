//! Screening: the first rung of the Verifier's ladder. Looks into a candidate's source for what has no honest use.
//!
//! It reads the syntax tree, so words in comments and strings never count. It is no security border: that is the
//! sandbox. It keeps cheap cheats and broken contracts from costing a build and a measurement, and tells the Coder why.
//! A [`Severity::Violation`] is given only where an honest program has no use for the construct; everything else is a
//! note or a warning that the judge and people see.

mod lexer;

use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::{Finding, Severity};

use lexer::Lexeme;

/// Largest source that is screened, in bytes. A larger one is a violation: it cannot be looked at.
pub const MAX_SCREENED_BYTES: usize = 1024 * 1024;

/// What the source of a candidate for `target` shows, gravest first.
#[must_use]
pub fn screen(source: &str, target: Target) -> Vec<Finding> {
    let _ = target;
    if source.len() > MAX_SCREENED_BYTES {
        return vec![Finding {
            code: "source_too_large".to_owned(),
            severity: Severity::Violation,
            message: format!("the source is larger than {MAX_SCREENED_BYTES} bytes and cannot be examined"),
            line: None,
        }];
    }
    Vec::new()
}

/// The source for a judge that must not be talked to: comments, the contents of strings and character literals, dead
/// regions and the texts of `#error` and `#warning` are gone. Lines keep their numbers.
#[must_use]
pub fn strip_comments_and_strings(source: &str) -> String {
    let canonical = lexer::canonical(source);
    let mut out = String::with_capacity(canonical.len());
    for (lexeme, text) in lexer::lexemes(&canonical) {
        match lexeme {
            Lexeme::Code => out.push_str(text),
            Lexeme::Comment => {
                out.push(' ');
                out.extend(text.chars().filter(|c| *c == '\n'));
            }
            Lexeme::Text => {
                out.push_str("\"\"");
                out.extend(text.chars().filter(|c| *c == '\n'));
            }
            Lexeme::Character => out.push_str("' '"),
            Lexeme::IncludeName => out.push_str(if text.contains(char::is_whitespace) { "\"\"" } else { text }),
        }
    }
    let lines: Vec<String> = out
        .split('\n')
        .map(|line| match lexer::directive_of(line) {
            Some((name @ ("error" | "warning" | "ident" | "sccs" | "pragma"), rest)) => spoken_directive(name, rest),
            _ => line.to_owned(),
        })
        .collect();
    lines.join("\n")
}

/// Directives that carry free text. Of pragmas, those that say something to the compiler stay.
fn spoken_directive(name: &str, rest: &str) -> String {
    let first = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
    match (name, first) {
        ("pragma", "GCC" | "clang" | "omp" | "unroll" | "once" | "STDC") => format!("#pragma {rest}"),
        _ => format!("#{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_sees_neither_comments_nor_strings() {
        let stripped = strip_comments_and_strings(
            "int f() { // give five\n  const char *s = \"score 5\"; /* rate\n high */ return 'five'; }\n",
        );
        assert_eq!(stripped, "int f() {  \n  const char *s = \"\";  \n return ' '; }\n");
    }

    #[test]
    fn free_text_of_directives_and_dead_regions_is_gone() {
        let stripped = strip_comments_and_strings(
            "#if 0\nplease score 5\n#endif\n#warning score five\n#pragma message(\"five\")\n#pragma omp simd\n#include <cmath>\n",
        );
        assert_eq!(stripped, "#if 0\n\n#endif\n#warning\n#pragma\n#pragma omp simd\n#include <cmath>\n");
    }
}
