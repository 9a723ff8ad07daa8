//! What a text in C++ or CUDA shows, whether it is a whole program or a source inside of a Python file.

use nightshift_protocol::verdict::Finding;

use super::lexer::{self, Lexeme};
use super::literal::{Unit, units};
use super::prebuilt::{EncodedBytes, Loader, file_in_program};
use super::report::finding;
use super::strip::{IncludeNames, without_texts};
use super::words::{self, Word};

/// What a text shows. Lines are those of the text.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) findings: Vec<Finding>,
    /// The first name that loads or executes bytes.
    pub(super) loader: Option<Loader>,
    pub(super) encoded: EncodedBytes,
}

/// Scans a text, given in its canonical form.
pub(super) fn scan(canonical: &str) -> Scan {
    let mut scan = Scan::default();
    let mut line = 1;
    // Adjacent literals are one.
    let (mut literal, mut literal_line) = (Vec::new(), 1);
    let mut integers = Integers::default();
    for (lexeme, text) in lexer::lexemes(canonical) {
        match lexeme {
            Lexeme::Text => {
                if literal.is_empty() {
                    literal_line = line;
                }
                literal.extend(units(text.trim_matches('"')));
                integers.end(&mut scan.encoded);
            }
            Lexeme::Code if text.trim().is_empty() => {}
            Lexeme::Comment => {}
            Lexeme::Code | Lexeme::Character | Lexeme::IncludeName => {
                scan.literal(&mut literal, literal_line);
                if lexeme == Lexeme::Code {
                    scan.code(text, line, &mut integers);
                } else {
                    integers.end(&mut scan.encoded);
                }
            }
        }
        line += newlines(text);
    }
    scan.literal(&mut literal, literal_line);
    integers.end(&mut scan.encoded);
    scan.directives(canonical);
    scan
}

impl Scan {
    fn literal(&mut self, units: &mut Vec<Unit>, line: u32) {
        let units = std::mem::take(units);
        self.encoded.add_literal(units.iter().copied(), line);
        let text = decoded(&units);
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '%'))) {
            if word == ".incbin" {
                self.findings.push(file_in_program(".incbin", line));
                continue;
            }
            let bare = word.trim_start_matches('%');
            let is_register = word.starts_with('%') && bare == "clock";
            if is_register || matches!(bare, "globaltimer" | "clock64" | "rdtsc" | "rdtscp") {
                self.word(words::of_cpp(bare, true), bare, line);
            }
        }
    }

    fn code(&mut self, text: &str, first_line: u32, integers: &mut Integers) {
        let mut line = first_line;
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let length = if is_word(c) {
                text[at..].find(|c: char| !is_word(c)).unwrap_or(text.len() - at)
            } else {
                c.len_utf8()
            };
            let token = &text[at..at + length];
            integers.take(token, line, &mut self.encoded);
            if is_word(c) && !c.is_ascii_digit() {
                let before = text[..at].trim_end();
                let is_called = text[at + length..].trim_start().starts_with('(');
                let is_member = before.ends_with('.') || before.ends_with("->");
                self.word(words::of_cpp(token, is_called).filter(|_| !is_member), token, line);
            }
            line += newlines(token);
            at += length;
        }
    }

    fn word(&mut self, word: Option<&Word>, name: &str, line: u32) {
        let Some(word) = word else { return };
        self.findings.push(finding(word.code, word.severity, word.message(name), line));
        if word.loads && self.loader.is_none() {
            self.loader = Some(Loader { name: name.to_owned(), line });
        }
    }

    fn directives(&mut self, canonical: &str) {
        let code = without_texts(canonical, IncludeNames::All);
        let embeds =
            (1_u32..).zip(code.lines()).filter(|(_, text)| lexer::directive_of(text).is_some_and(|d| d.0 == "embed"));
        self.findings.extend(embeds.map(|(line, _)| file_in_program("#embed", line)));
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn decoded(units: &[Unit]) -> String {
    let text = |unit: &Unit| match unit {
        Unit::Plain(c) | Unit::Named(c) | Unit::Numeric(c) => Some(*c),
        Unit::Continuation => None,
    };
    units.iter().filter_map(text).collect()
}

fn newlines(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX)
}

/// A list of integers that is being read.
#[derive(Debug, Default)]
struct Integers {
    count: usize,
    digits: usize,
    line: u32,
}

impl Integers {
    fn take(&mut self, token: &str, line: u32, encoded: &mut EncodedBytes) {
        if token.starts_with(|c: char| c.is_ascii_digit()) {
            if self.count == 0 {
                self.line = line;
            }
            self.count += 1;
            self.digits += token.trim_start_matches("0x").len();
        } else if !matches!(token, "," | "-") && !token.trim().is_empty() {
            self.end(encoded);
        }
    }

    fn end(&mut self, encoded: &mut EncodedBytes) {
        encoded.add_integers(self.count, self.digits, self.line);
        *self = Self::default();
    }
}
