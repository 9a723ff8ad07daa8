//! Every dependency's licence against the list in `deny.toml`, for machines without `cargo deny`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{metadata, root};

/// Checks all packages of the lock file; how many there are.
pub(crate) fn check() -> Result<usize> {
    let deny: toml::Table = std::fs::read_to_string(root().join("deny.toml"))?.parse().context("deny.toml")?;
    let allowed: BTreeSet<String> = deny
        .get("licenses")
        .and_then(|licenses| licenses.get("allow"))
        .and_then(toml::Value::as_array)
        .context("deny.toml has no licenses.allow")?
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let metadata = metadata()?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo metadata without packages")?;
    let mut refused = Vec::new();
    for package in packages {
        let name = package.get("name").and_then(Value::as_str).unwrap_or("?");
        let licence = package.get("license").and_then(Value::as_str).unwrap_or("");
        if !is_allowed(licence, &allowed) {
            refused.push(format!("{name}: {}", if licence.is_empty() { "no licence stated" } else { licence }));
        }
    }
    if refused.is_empty() {
        Ok(packages.len())
    } else {
        bail!("licences that deny.toml does not allow:\n  {}", refused.join("\n  "))
    }
}

/// Returns whether an SPDX expression can be satisfied with allowed licences. `/` is the old spelling of `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let tokens: Vec<String> = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let mut rest = tokens.as_slice();
    let answer = any_of(&mut rest, allowed);
    answer && rest.is_empty()
}

fn any_of(tokens: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    let mut answer = all_of(tokens, allowed);
    while tokens.first().is_some_and(|token| token == "OR") {
        *tokens = tokens.get(1..).unwrap_or_default();
        answer |= all_of(tokens, allowed);
    }
    answer
}

fn all_of(tokens: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    let mut answer = one(tokens, allowed);
    while tokens.first().is_some_and(|token| token == "AND") {
        *tokens = tokens.get(1..).unwrap_or_default();
        answer &= one(tokens, allowed);
    }
    answer
}

fn one(tokens: &mut &[String], allowed: &BTreeSet<String>) -> bool {
    let Some((first, rest)) = tokens.split_first() else { return false };
    *tokens = rest;
    if first == "(" {
        let answer = any_of(tokens, allowed);
        *tokens = tokens.get(1..).unwrap_or_default();
        return answer;
    }
    let mut name = first.clone();
    if let [with, exception, rest @ ..] = *tokens
        && with == "WITH"
    {
        name = format!("{name} WITH {exception}");
        *tokens = rest;
    }
    allowed.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> BTreeSet<String> {
        ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"].map(str::to_owned).into()
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert!(is_allowed("GPL-3.0 OR MIT", &allowed()));
        assert!(is_allowed("MIT/GPL-3.0", &allowed()));
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR GPL-2.0", &allowed()));
    }

    #[test]
    fn every_part_of_a_conjunction_is_needed() {
        assert!(!is_allowed("MIT AND GPL-3.0", &allowed()));
        assert!(is_allowed("(MIT OR GPL-3.0) AND ISC", &allowed()));
        assert!(!is_allowed("", &allowed()));
    }
}
