//! Constants that a program declares as tunable, read from its source and written back into it.
//!
//! ```c++
//! NIGHTSHIFT_TUNABLE(TILE, 64, 16, 32, 64, 128);
//! ```
//!
//! declares the constant `TILE`, which is 64 as the program stands, and may be any of the four values. A variant is the
//! same source with another value in the second place: what was built, checked and timed is then, byte for byte, what
//! becomes the attempt. Declarations are found in the text as the compiler sees it, outside of comments and literals.

use std::ops::Range;

use serde::{Deserialize, Serialize};

mod text;

/// The macro, as `nightshift.h` defines it.
pub const MACRO: &str = "NIGHTSHIFT_TUNABLE";

/// Most declarations of one program.
pub const MAX_TUNABLES: usize = 8;

/// Most values of one declaration.
pub const MAX_VALUES: usize = 16;

/// Most variants that the declarations of one program may come to.
pub const MAX_CONFIGURATIONS: u32 = 256;

/// Longest name, in characters.
const MAX_NAME_CHARS: usize = 64;

/// Maximum number of problems that are listed.
const MAX_PROBLEMS: usize = 8;

/// One declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tunable {
    /// The constant.
    pub name: String,
    /// Line of the declaration, from 1.
    pub line: u32,
    /// Its value as the program stands.
    pub value: i64,
    /// The values that it may have, as they are declared.
    pub values: Vec<i64>,
}

/// What is wrong with one declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: u32,
    /// What is wrong.
    pub message: String,
}

/// Declarations that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", told(problems))]
pub struct BadTunables {
    /// Each problem, in the order of the lines.
    pub problems: Vec<Problem>,
}

fn told(problems: &[Problem]) -> String {
    let lines = problems.iter().take(MAX_PROBLEMS).map(|problem| format!("line {}: {}", problem.line, problem.message));
    lines.collect::<Vec<_>>().join("; ")
}

/// The declarations of a program, in their order.
pub fn parse(source: &str) -> Result<Vec<Tunable>, BadTunables> {
    Ok(declarations(source)?.into_iter().map(|declaration| declaration.tunable).collect())
}

/// How many variants these declarations come to: 1 when there are none.
#[must_use]
pub fn configurations(tunables: &[Tunable]) -> u32 {
    tunables.iter().fold(1, |product: u32, tunable| {
        product.saturating_mul(u32::try_from(tunable.values.len()).unwrap_or(u32::MAX))
    })
}

/// At most `limit` variants, as values in the order of the declarations: the program as it stands, then those that differ
/// from it in one value, then others, spread over what is left.
#[must_use]
pub fn variants(tunables: &[Tunable], limit: usize) -> Vec<Vec<i64>> {
    let standing: Vec<i64> = tunables.iter().map(|tunable| tunable.value).collect();
    let mut variants = vec![standing.clone()];
    for (place, tunable) in tunables.iter().enumerate() {
        for value in tunable.values.iter().filter(|value| **value != tunable.value) {
            let mut variant = standing.clone();
            variant[place] = *value;
            variants.push(variant);
        }
    }
    let total = configurations(tunables);
    let step = (total / 2 + 1..=total.saturating_mul(2)).find(|step| coprime(*step, total)).unwrap_or(1);
    for turn in 0..u64::from(total) {
        let mut index = turn * u64::from(step) % u64::from(total);
        let variant: Vec<i64> = tunables
            .iter()
            .map(|tunable| {
                let count = tunable.values.len() as u64;
                let value = tunable.values[usize::try_from(index % count).unwrap_or(0)];
                index /= count;
                value
            })
            .collect();
        let changed = variant.iter().zip(&standing).filter(|(value, standing)| value != standing).count();
        if changed > 1 {
            variants.push(variant);
        }
    }
    variants.truncate(limit.max(1));
    variants
}

fn coprime(a: u32, b: u32) -> bool {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

/// The source with these values in its declarations, in their order. Values that are not declared change nothing.
pub fn with_values(source: &str, values: &[i64]) -> Result<String, BadTunables> {
    let mut written = String::with_capacity(source.len() + 16);
    let mut from = 0;
    for (declaration, value) in declarations(source)?.into_iter().zip(values) {
        if declaration.tunable.values.contains(value) {
            written.push_str(&source[from..declaration.value_at.start]);
            written.push_str(&value.to_string());
            from = declaration.value_at.end;
        }
    }
    written.push_str(&source[from..]);
    Ok(written)
}

/// A declaration with the place of its value.
struct Declaration {
    tunable: Tunable,
    value_at: Range<usize>,
}

fn declarations(source: &str) -> Result<Vec<Declaration>, BadTunables> {
    let code = text::code_only(source);
    let mut found: Vec<Declaration> = Vec::new();
    let mut problems: Vec<Problem> = Vec::new();
    let mut from = 0;
    while let Some(at) = code[from..].find(MACRO).map(|at| from + at) {
        from = at + MACRO.len();
        if !text::is_whole_word(&code, at, from) {
            continue;
        }
        let line = text::line_of(&code, at);
        let mut refuse = |message: String| problems.push(Problem { line, message });
        match one(&code, at, line) {
            Err(message) => refuse(message),
            Ok(declaration) if found.iter().any(|other| other.tunable.name == declaration.tunable.name) => {
                refuse(format!("`{}` is declared twice", declaration.tunable.name));
            }
            Ok(declaration) => found.push(declaration),
        }
    }
    if problems.is_empty()
        && let Some(problem) = too_many(&found)
    {
        problems.push(problem);
    }
    if problems.is_empty() { Ok(found) } else { Err(BadTunables { problems }) }
}

fn too_many(found: &[Declaration]) -> Option<Problem> {
    if let Some(beyond) = found.get(MAX_TUNABLES) {
        let message = format!("a program declares at most {MAX_TUNABLES} tunables, here are {}", found.len());
        return Some(Problem { line: beyond.tunable.line, message });
    }
    let tunables: Vec<Tunable> = found.iter().map(|declaration| declaration.tunable.clone()).collect();
    let total = configurations(&tunables);
    let last = tunables.last()?;
    (total > MAX_CONFIGURATIONS).then(|| Problem {
        line: last.line,
        message: format!("the tunables come to {total} variants, at most {MAX_CONFIGURATIONS} are allowed"),
    })
}

/// Reads the declaration whose macro begins at `at`.
fn one(code: &str, at: usize, line: u32) -> Result<Declaration, String> {
    if text::is_on_directive(code, at) {
        return Err(format!("`{MACRO}` may not stand in a preprocessor directive: declare it on a line of its own"));
    }
    let open = at + MACRO.len();
    let rest = &code[open..];
    let blank = rest.len() - rest.trim_start().len();
    if !rest[blank..].starts_with('(') {
        return Err(format!("`{MACRO}` wants (NAME, VALUE, ALLOWED VALUES...)"));
    }
    let begin = open + blank + 1;
    let inside = code[begin..].find([')', '(', ';']).map(|end| &code[begin..begin + end]);
    let Some(inside) = inside.filter(|inside| code[begin + inside.len()..].starts_with(')')) else {
        return Err(format!("the parenthesis of `{MACRO}` is not closed, or holds more than plain numbers"));
    };
    if !code[begin + inside.len() + 1..].trim_start().starts_with(';') {
        return Err(format!("`{MACRO}(...)` ends with a semicolon"));
    }
    let mut parts = Vec::new();
    let mut part_at = begin;
    for part in inside.split(',') {
        let start = part_at + (part.len() - part.trim_start().len());
        parts.push((part.trim(), start..start + part.trim().len()));
        part_at += part.len() + 1;
    }
    let Some(((name, _), [(value, value_at), allowed @ ..])) = parts.split_first() else {
        return Err(format!("`{MACRO}` wants (NAME, VALUE, ALLOWED VALUES...)"));
    };
    if !text::is_name(name) || name.chars().count() > MAX_NAME_CHARS {
        return Err(format!("`{name}` is no name of a constant: at most {MAX_NAME_CHARS} letters, digits and `_`"));
    }
    let number = |text: &str| {
        text::number(text)
            .ok_or_else(|| format!("`{name}`: `{text}` is no plain decimal number that fits into 32 bits"))
    };
    let value = number(value)?;
    let values = allowed.iter().map(|(text, _)| number(text)).collect::<Result<Vec<_>, _>>()?;
    if !(2..=MAX_VALUES).contains(&values.len()) {
        return Err(format!("`{name}` wants 2 to {MAX_VALUES} allowed values, not {}", values.len()));
    }
    if let Some(twice) = values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
        return Err(format!("`{name}` allows {} twice", twice.1));
    }
    if !values.contains(&value) {
        return Err(format!("`{name}` is {value}, which is none of its allowed values"));
    }
    let tunable = Tunable { name: (*name).to_owned(), line, value, values };
    Ok(Declaration { tunable, value_at: value_at.clone() })
}

#[cfg(test)]
mod tests;
