//! What goes into the bundle, and a hash over it that needs no compiler to be made again.
//!
//! The compiler tells which files it read, so that a change of a page that only the server renders leaves the bundle as it
//! is. Packages count with the checksum of the lock file, settings with what the workspace says about them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::checksum::sha256;
use super::compile;
use crate::command::{cargo, root};

const CRATE: &str = "dashboard/Cargo.toml";

/// What went into a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sources {
    /// Our files, from the root of the workspace.
    files: BTreeSet<String>,
    /// Packages of others, with their versions.
    packages: BTreeSet<String>,
}

impl Sources {
    /// What the last build read.
    pub(super) fn of_build(dep_info: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(dep_info).with_context(|| format!("{} is missing", dep_info.display()))?;
        let root = root().canonicalize()?;
        let files = dependencies(&text)
            .iter()
            .map(|path| Path::new(path).strip_prefix(&root).map(|path| path.to_string_lossy().into_owned()))
            .collect::<std::result::Result<BTreeSet<_>, _>>()
            .context("the build read a file outside the workspace")?;
        if files.is_empty() {
            bail!("{} names no source", dep_info.display());
        }
        Ok(Self { files, packages: packages()? })
    }

    /// Hash over everything that could change the bundle, as it is now.
    pub(super) fn digest(&self) -> Result<String> {
        let mut lines = Vec::new();
        for file in &self.files {
            let content = std::fs::read_to_string(root().join(file)).with_context(|| format!("{file} is gone"))?;
            lines.push(format!("{file} {}", sha256(shared(&content).as_bytes())));
        }
        let lock = table("Cargo.lock")?;
        let locked = lock.get("package").and_then(Value::as_array).context("Cargo.lock lists no packages")?;
        for package in &self.packages {
            lines.push(format!("{package} {}", checksum(locked, package).unwrap_or("is gone")));
        }
        lines.extend(settings()?);
        Ok(sha256(lines.join("\n").as_bytes()))
    }
}

/// A source without the items of one line that only the server compiles: modules of pages come and go.
fn shared(content: &str) -> String {
    let mut kept = Vec::new();
    let mut lines = content.lines().peekable();
    while let Some(line) = lines.next() {
        let is_servers = line.trim() == "#[cfg(feature = \"ssr\")]";
        if is_servers && lines.peek().is_some_and(|next| next.trim_end().ends_with(';')) {
            lines.next();
        } else {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// The files of a list as compilers write it for `make`: `target: one two\ with\ space`.
fn dependencies(text: &str) -> Vec<String> {
    let Some((_, list)) = text.lines().next().and_then(|line| line.split_once(": ")) else { return Vec::new() };
    let marked = list.replace("\\ ", "\0");
    marked.split_whitespace().map(|path| path.replace('\0', " ")).collect()
}

/// Packages of others that the build compiled, as `name version`.
fn packages() -> Result<BTreeSet<String>> {
    let output = cargo()
        .args(["tree", "--package", "nightshift-dashboard", "--no-default-features", "--features", "hydrate"])
        .args([
            "--target",
            compile::TARGET,
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--locked",
        ])
        .output()?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .lines()
        // Our own packages are named with their folder.
        .filter(|line| !line.contains(" (/"))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some(format!("{} {}", words.next()?, words.next()?.trim_start_matches('v')))
        })
        .collect())
}

fn checksum<'a>(locked: &'a [Value], package: &str) -> Option<&'a str> {
    let (name, version) = package.split_once(' ')?;
    let text = |entry: &'a Value, key: &str| entry.get(key).and_then(Value::as_str);
    let found = locked.iter().find(|e| text(e, "name") == Some(name) && text(e, "version") == Some(version))?;
    text(found, "checksum")
}

/// What the workspace says about the build: compiler, profile, and how packages are asked for that are not the server's.
fn settings() -> Result<Vec<String>> {
    let (workspace, package) = (table("Cargo.toml")?, table(CRATE)?);
    let mut lines = vec![
        format!("toolchain {}", table("rust-toolchain.toml")?),
        format!(
            "profiles {:?} {:?}",
            at(&workspace, &["profile", "release"]),
            at(&workspace, &["profile", "wasm-release"])
        ),
        format!("edition {:?}", at(&workspace, &["workspace", "package", "edition"])),
        format!("features {:?}", at(&package, &["features", "hydrate"])),
    ];
    let dependencies = package.get("dependencies").and_then(Value::as_table).context("the pages need packages")?;
    for (name, asked) in dependencies {
        let is_optional = asked.get("optional").and_then(Value::as_bool).unwrap_or(false);
        if !is_optional {
            lines.push(format!("{name} {asked} {:?}", at(&workspace, &["workspace", "dependencies", name])));
        }
    }
    Ok(lines)
}

fn at<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(*first)?, |value, key| value.get(key))
}

fn table(file: &str) -> Result<Table> {
    std::fs::read_to_string(root().join(file))?.parse().with_context(|| format!("{file} cannot be read"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_list_is_read_with_its_escaped_spaces() {
        let text = "/t/a.wasm: /w/src/lib.rs /w/src/with\\ space.rs\n\n/w/src/lib.rs:\n";
        assert_eq!(dependencies(text), ["/w/src/lib.rs", "/w/src/with space.rs"]);
        assert!(dependencies("").is_empty());
    }

    #[test]
    fn what_only_the_server_compiles_does_not_count() {
        let one = "mod a;\n#[cfg(feature = \"ssr\")]\nmod b;\nmod c;\n";
        let other = "mod a;\n#[cfg(feature = \"ssr\")]\nmod other;\n#[cfg(feature = \"ssr\")]\nuse x;\nmod c;";
        assert_eq!(shared(one), shared(other));
        let long = "#[cfg(feature = \"ssr\")]\nfn f() {\n}\n";
        assert_eq!(shared(long), long.trim_end());
    }

    #[test]
    fn a_package_of_another_version_changes_the_hash() {
        let one = Sources { files: BTreeSet::new(), packages: BTreeSet::from(["leptos 0.0.1".to_owned()]) };
        let other = Sources { files: BTreeSet::new(), packages: BTreeSet::from(["leptos 0.0.2".to_owned()]) };
        assert_ne!(one.digest().unwrap(), other.digest().unwrap());
    }

    #[test]
    fn the_lock_file_tells_the_checksum_of_a_package() {
        let lock: Table = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"c\"\n".parse().unwrap();
        let locked = lock["package"].as_array().unwrap();
        assert_eq!(checksum(locked, "a 1.0.0"), Some("c"));
        assert_eq!(checksum(locked, "a 2.0.0"), None);
    }
}
