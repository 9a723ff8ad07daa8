//! Every dependency against `deny.toml`: its licence, its name and where it comes from.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{metadata, root};

/// The only registry that packages may come from; those of the workspace have no source.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What `deny.toml` says.
struct Rules {
    licences: BTreeSet<String>,
    banned: BTreeSet<String>,
}

impl Rules {
    fn read() -> Result<Self> {
        let file: toml::Table = std::fs::read_to_string(root().join("deny.toml"))?.parse().context("deny.toml")?;
        let list = |section: &str, name: &str| {
            let list = file.get(section).and_then(|section| section.get(name)).and_then(toml::Value::as_array);
            list.with_context(|| format!("deny.toml has no {section}.{name}"))
        };
        let licences = list("licenses", "allow")?.iter().filter_map(toml::Value::as_str);
        let banned = list("bans", "deny")?.iter().filter_map(|entry| entry.get("crate")?.as_str());
        Ok(Self { licences: licences.map(str::to_owned).collect(), banned: banned.map(str::to_owned).collect() })
    }

    /// What is wrong with a package as cargo describes it.
    fn objection(&self, package: &Value) -> Option<String> {
        let field = |name: &str| package.get(name).and_then(Value::as_str);
        let (name, licence) = (field("name").unwrap_or("?"), field("license").unwrap_or_default());
        if self.banned.contains(name) {
            return Some(format!("{name}: banned"));
        }
        if let Some(source) = field("source").filter(|source| *source != REGISTRY) {
            return Some(format!("{name}: from {source}"));
        }
        (!is_allowed(licence, &self.licences))
            .then(|| format!("{name}: {}", if licence.is_empty() { "no licence stated" } else { licence }))
    }
}

/// Checks all packages of the lock file; how many there are.
pub(crate) fn check() -> Result<usize> {
    let rules = Rules::read()?;
    let metadata = metadata()?;
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo metadata without packages")?;
    let refused: Vec<String> = packages.iter().filter_map(|package| rules.objection(package)).collect();
    if refused.is_empty() {
        Ok(packages.len())
    } else {
        bail!("packages that deny.toml does not allow:\n  {}", refused.join("\n  "))
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
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_package_is_refused_for_its_name_its_source_or_its_licence() {
        let rules = Rules::read().unwrap();
        let objection = |name: &str, source: Option<&str>, licence: Option<&str>| {
            rules.objection(&json!({ "name": name, "source": source, "license": licence }))
        };
        assert_eq!(objection("good", Some(REGISTRY), Some("MIT")), None);
        assert_eq!(objection("ours", None, Some("MIT OR Apache-2.0")), None);
        assert_eq!(objection("openssl-sys", Some(REGISTRY), Some("MIT")).unwrap(), "openssl-sys: banned");
        let fork = "git+https://github.com/someone/fork";
        assert_eq!(objection("fork", Some(fork), Some("MIT")).unwrap(), format!("fork: from {fork}"));
        assert_eq!(objection("copyleft", Some(REGISTRY), Some("GPL-3.0")).unwrap(), "copyleft: GPL-3.0");
        assert_eq!(objection("silent", Some(REGISTRY), None).unwrap(), "silent: no licence stated");
    }

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
