//! Macros, whose bodies the syntax tree leaves as opaque text: their words are examined, and names that are pasted
//! together are put together.

use std::collections::HashMap;

use super::lexer::{Lexeme, directive_of, lexemes};

/// Most tokens that expansion may give before it is called off.
const MAX_EXPANDED_TOKENS: usize = 200_000;
/// Deepest nesting of macros that is followed.
const MAX_DEPTH: usize = 8;

/// A preprocessing token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) text: String,
    pub(super) line: u32,
    /// Whether it came out of a `##`.
    pub(super) pasted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Identifier,
    /// A string literal.
    Text,
    Other,
}

impl Token {
    fn is(&self, text: &str) -> bool {
        self.kind == TokenKind::Other && self.text == text
    }
}

/// The tokens of a piece of source that begins at this line.
pub(super) fn tokens(source: &str, first_line: u32) -> Vec<Token> {
    let mut found = Vec::new();
    let mut line = first_line;
    for (lexeme, text) in lexemes(source) {
        match lexeme {
            Lexeme::Code => code_tokens(text, line, &mut found),
            Lexeme::Text => {
                found.push(Token { kind: TokenKind::Text, text: text.to_owned(), line, pasted: false });
            }
            Lexeme::Character | Lexeme::IncludeName => {
                found.push(Token { kind: TokenKind::Other, text: text.to_owned(), line, pasted: false });
            }
            Lexeme::Comment => {}
        }
        line = line.saturating_add(newlines(text));
    }
    found
}

fn newlines(text: &str) -> u32 {
    u32::try_from(text.bytes().filter(|b| *b == b'\n').count()).unwrap_or(u32::MAX)
}

fn code_tokens(text: &str, first_line: u32, found: &mut Vec<Token>) {
    let mut line = first_line;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (kind, length) = if c.is_alphabetic() || c == '_' || c == '$' {
            (TokenKind::Identifier, word_length(rest))
        } else if c.is_ascii_digit() {
            (TokenKind::Other, word_length(rest))
        } else if ["##", "::", "->"].iter().any(|pair| rest.starts_with(pair)) {
            (TokenKind::Other, 2)
        } else {
            (TokenKind::Other, c.len_utf8())
        };
        if c == '\n' {
            line = line.saturating_add(1);
        }
        if !c.is_whitespace() {
            found.push(Token { kind, text: rest[..length].to_owned(), line, pasted: false });
        }
        rest = &rest[length..];
    }
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len())
}

/// A macro.
#[derive(Debug, Clone)]
pub(super) struct Macro {
    pub(super) name: String,
    /// Names of the parameters; none for a macro without a parameter list.
    pub(super) parameters: Option<Vec<String>>,
    pub(super) body: Vec<Token>,
    pub(super) line: u32,
}

impl Macro {
    pub(super) fn pastes(&self) -> bool {
        self.body.iter().any(|token| token.is("##"))
    }

    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.parameters.as_ref().is_some_and(|names| names.iter().any(|parameter| parameter == name))
    }
}

/// The macros that the canonical source defines.
pub(super) fn definitions(canonical: &str) -> Vec<Macro> {
    let mut macros = Vec::new();
    for (number, line) in (1_u32..).zip(canonical.lines()) {
        let Some(("define", rest)) = directive_of(line) else { continue };
        let length = word_length(rest);
        let (name, after) = rest.split_at(length);
        if name.is_empty() {
            continue;
        }
        let (parameters, body) = match after.strip_prefix('(').and_then(|list| list.split_once(')')) {
            Some((list, body)) => {
                let names = list.split(',').map(|name| name.trim().trim_end_matches("...").trim().to_owned());
                let names = names.map(|name| if name.is_empty() { "__VA_ARGS__".to_owned() } else { name });
                (Some(names.collect()), body)
            }
            None => (None, after),
        };
        macros.push(Macro { name: name.to_owned(), parameters, body: tokens(body, number), line: number });
    }
    macros
}

/// The names that the program's code makes by pasting, with the lines where they are made; none when there was too much
/// to follow.
pub(super) fn pasted_names(canonical: &str, macros: &[Macro]) -> Option<Vec<(String, u32)>> {
    if !macros.iter().any(Macro::pastes) {
        return Some(Vec::new());
    }
    let by_name: HashMap<&str, &Macro> =
        macros.iter().map(|definition| (definition.name.as_str(), definition)).collect();
    let code: String =
        canonical.split_inclusive('\n').map(|line| if directive_of(line).is_some() { "\n" } else { line }).collect();
    let mut expansion = Expansion { macros: &by_name, active: Vec::new(), produced: 0 };
    let expanded = expansion.expand(&tokens(&code, 1), 0)?;
    Some(expanded.into_iter().filter(|token| token.pasted).map(|token| (token.text, token.line)).collect())
}

struct Expansion<'a> {
    macros: &'a HashMap<&'a str, &'a Macro>,
    /// Macros that are being expanded: none is expanded within itself.
    active: Vec<&'a str>,
    produced: usize,
}

impl Expansion<'_> {
    fn expand(&mut self, input: &[Token], depth: usize) -> Option<Vec<Token>> {
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(token) = input.get(at) {
            at += 1;
            let definition = match token.kind {
                TokenKind::Identifier if depth < MAX_DEPTH && !self.active.contains(&token.text.as_str()) => {
                    self.macros.get(token.text.as_str()).copied()
                }
                _ => None,
            };
            let Some(definition) = definition else {
                self.produced += 1;
                if self.produced > MAX_EXPANDED_TOKENS {
                    return None;
                }
                out.push(token.clone());
                continue;
            };
            let body = match &definition.parameters {
                None => definition.body.clone(),
                Some(parameters) => {
                    let Some((arguments, after)) = arguments(input, at) else {
                        out.push(token.clone());
                        continue;
                    };
                    at = after;
                    self.substituted(definition, parameters, &arguments, depth)?
                }
            };
            let mut made = pasted(&body);
            for part in &mut made {
                part.line = token.line;
            }
            self.active.push(&definition.name);
            let inner = self.expand(&made, depth + 1);
            self.active.pop();
            out.extend(inner?);
        }
        Some(out)
    }

    fn substituted(
        &mut self,
        definition: &Macro,
        parameters: &[String],
        arguments: &[Vec<Token>],
        depth: usize,
    ) -> Option<Vec<Token>> {
        let body = &definition.body;
        let mut out = Vec::new();
        for (i, token) in body.iter().enumerate() {
            let parameter = parameters.iter().position(|name| *name == token.text);
            let Some(index) = parameter.filter(|_| token.kind == TokenKind::Identifier) else {
                out.push(token.clone());
                continue;
            };
            let mut argument = arguments.get(index).cloned().unwrap_or_default();
            if index + 1 == parameters.len() {
                // A variadic parameter takes the rest; more arguments than parameters do not compile otherwise.
                argument.extend(arguments.iter().skip(index + 1).flatten().cloned());
            }
            // Operands of a paste are taken as they are, other arguments are expanded first.
            let beside_paste = body.get(i + 1).is_some_and(|next| next.is("##"))
                || i.checked_sub(1).and_then(|before| body.get(before)).is_some_and(|before| before.is("##"));
            out.extend(if beside_paste { argument } else { self.expand(&argument, depth + 1)? });
        }
        Some(out)
    }
}

/// The arguments of an invocation whose `(` is expected at this position, and the position after its `)`.
fn arguments(input: &[Token], at: usize) -> Option<(Vec<Vec<Token>>, usize)> {
    input.get(at).filter(|token| token.is("("))?;
    let mut arguments = vec![Vec::new()];
    let mut depth = 0_usize;
    for (i, token) in input.iter().enumerate().skip(at + 1) {
        if token.is(")") && depth == 0 {
            return Some((arguments, i + 1));
        }
        if token.is(",") && depth == 0 {
            arguments.push(Vec::new());
            continue;
        }
        if token.is("(") {
            depth += 1;
        } else if token.is(")") {
            depth -= 1;
        }
        if let Some(last) = arguments.last_mut() {
            last.push(token.clone());
        }
    }
    None
}

/// Carries out every `##`.
fn pasted(body: &[Token]) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::with_capacity(body.len());
    let mut at = 0;
    while let Some(token) = body.get(at) {
        at += 1;
        if token.is("##")
            && let (Some(left), Some(right)) = (out.last_mut(), body.get(at))
        {
            left.text.push_str(&right.text);
            left.pasted = true;
            at += 1;
        } else {
            out.push(token.clone());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        pasted_names(source, &definitions(source)).unwrap_or_default().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn pasted_names_are_put_together() {
        assert_eq!(names("#define T thr##ead\nT t;\n"), ["thread"]);
        assert_eq!(names("#define CAT(a, b) a##b\nCAT(sys, tem)(0);\n"), ["system"]);
        assert_eq!(names("#define P(a, b, c) a##b##c\nP(s, yst, em)(0);\n"), ["system"]);
    }

    #[test]
    fn indirection_is_followed() {
        let source =
            "#define A sys\n#define B tem\n#define CAT_(a, b) a##b\n#define CAT(a, b) CAT_(a, b)\nCAT(A, B)(0);\n";
        assert_eq!(names(source), ["system"]);
    }

    #[test]
    fn a_macro_that_names_itself_ends() {
        assert_eq!(names("#define A A A A B##C\nA;\n"), ["BC"]);
    }

    #[test]
    fn an_explosion_is_called_off() {
        let mut source = String::from("#define P(a) x##a\n#define M0 P(1) P(1) P(1) P(1) P(1) P(1) P(1) P(1)\n");
        for level in 1..8 {
            let below = format!("M{} ", level - 1).repeat(6);
            source.extend(["#define M", &level.to_string(), " ", &below, "\n"]);
        }
        source.push_str("M7;\n");
        assert_eq!(pasted_names(&source, &definitions(&source)), None);
    }
}
