//! The configuration of Goose.
//!
//! The code inserts lines into the text, which keeps comments. Then it parses both texts and checks that nothing else
//! has changed.

use std::fmt::Write as _;

use yaml_serde::{Mapping, Value};

use super::{CALL_TIMEOUT_S, ENTRY, InstallError, Launch, TOKEN_VARIABLE, not_understood};

/// The key above the entries.
const KEY: &str = "extensions";

/// The indentation of the first entry of a file.
const INDENT: usize = 2;

pub(super) fn with_entry(before: &str, launch: &Launch) -> Result<String, InstallError> {
    let known = read(before)?;
    let after = edited(before, launch)?;
    let mut changed = read(&after).map_err(|_| by_hand())?;
    let mut known = known;
    let entry = take_entry(&mut changed);
    take_entry(&mut known);
    if entry.is_none() || changed != known {
        return Err(by_hand());
    }
    Ok(after)
}

fn by_hand() -> InstallError {
    not_understood(format!("`{KEY}` is written in a form that is not edited: add the entry of `--print` by hand"))
}

fn read(text: &str) -> Result<Mapping, InstallError> {
    if text.trim().is_empty() {
        return Ok(Mapping::new());
    }
    match yaml_serde::from_str(text).map_err(not_understood)? {
        Value::Mapping(mapping) => Ok(mapping),
        Value::Null => Ok(Mapping::new()),
        _ => Err(not_understood("it is not a mapping")),
    }
}

/// Removes the entry, and its key if that has no other entry.
fn take_entry(mapping: &mut Mapping) -> Option<Value> {
    let extensions = mapping.get_mut(KEY)?;
    let entry = extensions.as_mapping_mut().and_then(|extensions| extensions.remove(ENTRY));
    let is_empty = extensions.is_null() || extensions.as_mapping().is_some_and(Mapping::is_empty);
    if is_empty {
        mapping.remove(KEY);
    }
    entry
}

fn edited(before: &str, launch: &Launch) -> Result<String, InstallError> {
    let lines: Vec<&str> = before.lines().collect();
    let heading = lines
        .iter()
        .position(|line| line.strip_prefix(KEY).and_then(|rest| rest.trim_start().strip_prefix(':')).is_some());
    let Some(heading) = heading else {
        let mut text = before.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let _ = write!(text, "{KEY}:\n{}", block(INDENT, launch));
        return Ok(text);
    };
    let value = lines[heading].split_once(':').map_or("", |(_, value)| value);
    let value = value.split(" #").next().unwrap_or_default().trim();
    let is_empty = matches!(value, "{}" | "null" | "~");
    if !(value.is_empty() || is_empty) {
        return Err(by_hand());
    }
    let below = &lines[heading + 1..];
    let says_something = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let indent = below.iter().find(says_something).map_or(0, |line| indent_of(line));
    let indent = if indent == 0 { INDENT } else { indent };
    // The previous entry: its key, and all lines with a deeper indentation.
    let own = format!("{}{ENTRY}:", " ".repeat(indent));
    let begin = below.iter().position(|line| line.trim_end() == own);
    let end = begin.map(|begin| {
        let rest = &below[begin + 1..];
        let length = rest.iter().position(|line| !line.trim().is_empty() && indent_of(line) <= indent);
        begin + 1 + length.unwrap_or(rest.len())
    });
    let mut text = String::new();
    let mut push = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    for line in &lines[..heading] {
        push(line);
    }
    push(if is_empty { "extensions:" } else { lines[heading] });
    let (kept_before, kept_after) = match (begin, end) {
        (Some(begin), Some(end)) => (&below[..begin], &below[end..]),
        _ => (&below[..0], below),
    };
    let block = block(indent, launch);
    let kept = kept_before.iter().copied();
    for line in kept.chain(block.lines()).chain(kept_after.iter().copied()) {
        push(line);
    }
    Ok(text)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns the entry. JSON strings are valid YAML strings.
fn block(indent: usize, launch: &Launch) -> String {
    let (outer, inner) = (" ".repeat(indent), " ".repeat(indent + INDENT));
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let list = |texts: &mut dyn Iterator<Item = &str>| texts.map(quoted).collect::<Vec<_>>().join(", ");
    let args = list(&mut launch.args.iter().map(String::as_str));
    let keys = list(&mut launch.needs_token.then_some(TOKEN_VARIABLE).into_iter());
    let mut text = format!("{outer}{ENTRY}:\n");
    for (name, value) in [
        ("enabled", "true".to_owned()),
        ("type", "stdio".to_owned()),
        ("name", ENTRY.to_owned()),
        ("description", quoted("Verify and measure programs with Nightshift")),
        ("cmd", quoted(&launch.command)),
        ("args", format!("[{args}]")),
        ("envs", "{}".to_owned()),
        ("env_keys", format!("[{keys}]")),
        ("timeout", CALL_TIMEOUT_S.to_string()),
    ] {
        let _ = writeln!(text, "{inner}{name}: {value}");
    }
    text
}
