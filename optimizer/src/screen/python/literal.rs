//! String literals of a Python file, decoded: adjacent ones are joined, escapes carried out.

use tree_sitter::Node;

use super::super::literal::{Unit, units};
use super::tree::{line_of, text, walk};

/// A decoded literal.
#[derive(Debug)]
pub(super) struct Literal {
    /// What it says. An interpolation of an f-string stands as its expression, or as `0` where that holds texts.
    pub(super) text: String,
    pub(super) units: Vec<Unit>,
    /// The line in the file of each line of the text.
    lines: Vec<u32>,
    first_line: u32,
    last_line: u32,
}

impl Literal {
    /// Decodes a node of the kind `string` or `concatenated_string`.
    pub(super) fn of(node: Node<'_>, source: &str) -> Self {
        let first_line = line_of(node);
        let last_line = u32::try_from(node.end_position().row).unwrap_or(u32::MAX).saturating_add(1);
        let mut literal =
            Self { text: String::new(), units: Vec::new(), lines: vec![first_line], first_line, last_line };
        // Strings in the interpolation of another one are no part of it.
        let mut nested_until = 0;
        walk(node, |part, _| match part.kind() {
            _ if part.start_byte() < nested_until => {}
            "interpolation" => nested_until = part.end_byte(),
            "string" => literal.add(part, source),
            _ => {}
        });
        literal
    }

    /// Returns the line in the file of a line of the text, from 1.
    pub(super) fn line_in_file(&self, line: u32) -> u32 {
        let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        self.lines.get(index).or(self.lines.last()).copied().unwrap_or(1)
    }

    /// Returns a literal that takes as many lines and holds this code, which has the lines of the decoded text.
    pub(super) fn rewritten(&self, code: Option<&str>) -> String {
        let newlines = |from: u32, to: u32| "\n".repeat(usize::try_from(to.saturating_sub(from)).unwrap_or(0));
        let Some(code) = code else { return "\"\"".to_owned() + &newlines(self.first_line, self.last_line) };
        let mut out = String::from("\"\"\"");
        let mut at = self.first_line;
        for (index, (line, text)) in self.lines.iter().zip(code.replace("\"\"\"", "\"\"").split('\n')).enumerate() {
            // Lines of the text that one line of the file holds are told apart as they were written.
            out.push_str(if index > 0 && *line == at { "\\n" } else { "" });
            out.push_str(&newlines(at, *line));
            out.push_str(text);
            at = *line;
        }
        out + "\"\"\"" + &newlines(at, self.last_line)
    }

    fn add(&mut self, node: Node<'_>, source: &str) {
        let mut line = line_of(node);
        // An adjacent literal may begin a line of the text on a later line of the file.
        if let Some(last) = self.lines.last_mut().filter(|_| self.text.is_empty() || self.text.ends_with('\n')) {
            *last = line;
        }
        let mut cursor = node.walk();
        let mut prefix = "";
        for part in node.children(&mut cursor) {
            let written = text(part, source);
            match part.kind() {
                "string_start" => prefix = written,
                "string_content" => self.content(written, prefix, &mut line),
                "interpolation" => {
                    let inner = written.trim_matches(['{', '}']);
                    let expression = if inner.contains(['"', '\'', '#', '\n']) { "0" } else { inner };
                    self.text.push_str(expression);
                    line += u32::try_from(written.matches('\n').count()).unwrap_or(0);
                }
                _ => {}
            }
        }
    }

    fn content(&mut self, written: &str, prefix: &str, line: &mut u32) {
        let is = |letter: char| prefix.contains(|c: char| c.eq_ignore_ascii_case(&letter));
        let decoded = if is('r') { written.chars().map(Unit::Plain).collect() } else { units(written) };
        let mut doubled = false;
        for unit in decoded {
            match unit {
                Unit::Continuation => *line += 1,
                Unit::Plain('\n') => {
                    *line += 1;
                    self.push('\n', *line);
                }
                // In an f-string `{{` stands for `{`.
                Unit::Plain(c @ ('{' | '}')) if is('f') => {
                    doubled = !doubled;
                    if doubled {
                        self.push(c, *line);
                    }
                }
                Unit::Plain(c) | Unit::Named(c) | Unit::Numeric(c) => self.push(c, *line),
            }
            self.units.push(unit);
        }
    }

    fn push(&mut self, c: char, line: u32) {
        self.text.push(c);
        if c == '\n' {
            self.lines.push(line);
        }
    }
}
