//! Where in a `task.toml` something stands.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::TaskError;
use super::{suggest, wording};

/// A step from a value to one within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// A parsed file with the places of its values.
pub(super) struct Document<'t> {
    text: &'t str,
    label: &'t str,
    root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    pub(super) fn parse(text: &'t str, label: &'t str) -> Result<Self, TaskError> {
        match DeTable::parse(text) {
            Ok(root) => Ok(Self { text, label, root }),
            Err(error) => {
                let at = line_and_column(text, error.span().map_or(0, |span| span.start));
                Err(TaskError::at("task.malformed", label, at, one_line(error.message())))
            }
        }
    }

    /// The number under `schema`, when there is one.
    pub(super) fn schema(&self) -> Option<i64> {
        match self.root.get_ref().get("schema")?.get_ref() {
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        }
    }

    /// An error at the value that the path leads to, or at the nearest one above it that the file has.
    pub(super) fn error(&self, code: &'static str, path: &[Step<'_>], message: String) -> TaskError {
        TaskError::at(code, self.label, line_and_column(self.text, self.span(path).start), message)
    }

    /// An error of deserialization, with a suggestion for unknown names.
    pub(super) fn deserialization(&self, error: &toml::de::Error) -> TaskError {
        let message = one_line(error.message());
        let at = line_and_column(self.text, error.span().map_or(0, |span| span.start));
        let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        match (quoted.split_first(), message.starts_with("unknown field"), message.starts_with("unknown variant")) {
            (Some((unknown, known)), true, _) => {
                let message = format!("unknown field `{unknown}`{}", suggestion(unknown, known));
                TaskError::at("task.unknown_field", self.label, at, message)
            }
            (Some((unknown, known)), _, true) => {
                let message = format!("unknown value `{unknown}`{}", suggestion(unknown, known));
                TaskError::at("task.malformed", self.label, at, message)
            }
            _ => TaskError::at("task.malformed", self.label, at, wording::for_people(&message)),
        }
    }

    fn span(&self, path: &[Step<'_>]) -> Range<usize> {
        let Some((Step::Key(first), rest)) = path.split_first() else { return 0..0 };
        let Some(mut value) = self.root.get_ref().get(*first) else { return 0..0 };
        for step in rest {
            let inner = match (step, value.get_ref()) {
                (Step::Key(key), DeValue::Table(table)) => table.get(*key),
                (Step::Index(index), DeValue::Array(array)) => array.get(*index),
                _ => None,
            };
            let Some(inner) = inner else { break };
            value = inner;
        }
        value.span()
    }
}

fn suggestion(unknown: &str, known: &[&str]) -> String {
    let hint = suggest::hint(unknown, known.iter().copied());
    if hint.is_empty() && !known.is_empty() { format!(": expected one of {}", known.join(", ")) } else { hint }
}

fn one_line(message: &str) -> String {
    message.lines().collect::<Vec<_>>().join("; ")
}

/// Line and column of a byte, both from 1, the column in characters.
pub(super) fn line_and_column(text: &str, byte: usize) -> (u32, u32) {
    let mut at = byte.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).saturating_add(1);
    (count(before.matches('\n').count()), count(before[line_start..].chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        assert_eq!(line_and_column("a = 1\né = x", 9), (2, 3));
        assert_eq!(line_and_column("", 10), (1, 1));
    }
}
