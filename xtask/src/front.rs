//! `cargo xtask front`: the bundle that browsers are sent, built from the pages' crate, reproducible byte for byte.
//!
//! The bundle is committed, so that `cargo run` alone serves living pages. What was built from what is in its manifest;
//! `--check` builds again and compares, and an ordinary test notices sources that are newer than the bundle.

mod bindings;
mod checksum;
mod compile;
mod manifest;
mod sources;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::command::root;
use manifest::{FileFacts, Manifest};
use sources::Sources;

/// What the bundle consists of.
const FILES: [&str; 2] = ["app.js", "app_bg.wasm"];
/// The manifest beside them.
const MANIFEST: &str = "manifest.json";

/// Where the bundle is kept.
fn dist() -> PathBuf {
    root().join("dashboard/dist")
}

/// Builds the bundle and writes it.
pub(crate) fn write(may_install: bool) -> Result<()> {
    if !compile::target_is_there(may_install)? {
        bail!("the target {} is missing: install it with `{}`", compile::TARGET, compile::INSTALL);
    }
    let (files, sources) = build()?;
    std::fs::create_dir_all(dist())?;
    let mut facts = BTreeMap::new();
    for (name, content) in &files {
        let stored = manifest::compress(content)?;
        std::fs::write(dist().join(format!("{name}.br")), &stored)?;
        println!("front: {name}: {} bytes, {} compressed", content.len(), stored.len());
        facts.insert((*name).to_owned(), FileFacts::of(content));
    }
    let manifest = Manifest { files: facts, digest: sources.digest()?, sources };
    std::fs::write(dist().join(MANIFEST), manifest.to_json()?).context("the manifest could not be written")
}

/// Builds the bundle and compares it with the one that is kept. Returns whether they are the same.
pub(crate) fn check() -> Result<bool> {
    let kept = Manifest::read(&dist().join(MANIFEST))?;
    let (files, _) = build()?;
    let mut same = true;
    for (name, content) in &files {
        let built = FileFacts::of(content);
        let stored = std::fs::read(dist().join(format!("{name}.br")))?;
        let stored = FileFacts::of(&manifest::decompress(&stored)?);
        if kept.files.get(*name) != Some(&stored) {
            eprintln!("front: dashboard/dist/{name}.br is not what its manifest says: run `cargo xtask front`");
            same = false;
        }
        if built != stored {
            eprintln!(
                "front: {name} is built with the hash {}, and the one that is kept has {}. Run `cargo xtask front` and \
                 commit dashboard/dist. If only other machines build it differently, the one of the checks decides.",
                built.sha256, stored.sha256
            );
            same = false;
        }
    }
    Ok(same)
}

/// Returns whether the bundle can be built here, installing what is missing when that is allowed; else how it could.
pub(crate) fn can_build(may_install: bool) -> Result<std::result::Result<(), String>> {
    Ok(if compile::target_is_there(may_install)? {
        Ok(())
    } else {
        Err(format!("the target {} is not installed (`{}`)", compile::TARGET, compile::INSTALL))
    })
}

/// The lints of the code that browsers run: the workspace's own see it only as the server builds it.
pub(crate) fn lints() -> Result<bool> {
    compile::lint()
}

/// Files with their content, in the order of [`FILES`].
type Files = Vec<(&'static str, Vec<u8>)>;

fn build() -> Result<(Files, Sources)> {
    let program = compile::program()?;
    let sources = Sources::of_build(&program.dep_info)?;
    Ok((bindings::generate(&program.wasm)?, sources))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_was_built_from_the_sources_that_are_here() {
        let kept = Manifest::read(&dist().join(MANIFEST)).unwrap();
        let now = kept.sources.digest().unwrap();
        assert_eq!(now, kept.digest, "dashboard/dist is older than its sources: run `cargo xtask front` and commit it");
    }

    #[test]
    fn each_file_of_the_bundle_has_the_hash_of_the_manifest() {
        let kept = Manifest::read(&dist().join(MANIFEST)).unwrap();
        assert_eq!(kept.files.keys().map(String::as_str).collect::<Vec<_>>(), FILES);
        for (name, facts) in &kept.files {
            let stored = std::fs::read(dist().join(format!("{name}.br"))).unwrap();
            assert_eq!(&FileFacts::of(&manifest::decompress(&stored).unwrap()), facts, "{name}");
        }
    }
}
