//! The packages of the tests that look at pages in a browser (`tests/browser`).

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{command, find_program, root, succeeds};

/// How they are installed.
const INSTALL: &str = "npm ci --prefix tests/browser";

/// Makes sure that the packages are there in the versions that the lock file names.
pub(crate) fn ensure(may_install: bool) -> Result<()> {
    let folder = root().join("tests/browser");
    let wanted = read(&folder.join("package-lock.json"))?;
    let missing = missing(&folder, &wanted);
    if missing.is_empty() {
        return Ok(());
    }
    if !may_install {
        bail!("missing: {}. Install with `{INSTALL}` (or run `cargo xtask test --install`)", missing.join(", "));
    }
    let Some(npm) = find_program(&["npm"]) else {
        bail!("the tests of the pages need npm: install Node 20 or newer with it");
    };
    println!("xtask: installing {}", missing.join(", "));
    if !succeeds(command(npm).args(INSTALL.split_whitespace().skip(1)))? {
        bail!("`{INSTALL}` failed: look at its output");
    }
    Ok(())
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
}

/// Packages of the lock file that are not there, or are there in another version.
fn missing(folder: &Path, lock: &Value) -> Vec<String> {
    let packages = lock.get("packages").and_then(Value::as_object);
    let packages = packages.into_iter().flatten().filter(|(place, _)| !place.is_empty());
    packages
        .filter_map(|(place, package)| {
            let wanted = package.get("version")?.as_str()?;
            let there = read(&folder.join(place).join("package.json")).ok();
            let has = there.as_ref().and_then(|package| package.get("version")?.as_str());
            (has != Some(wanted)).then(|| format!("{} {wanted}", place.trim_start_matches("node_modules/")))
        })
        .collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_package_of_another_version_counts_as_missing() {
        let folder = std::env::temp_dir().join(format!("nightshift-xtask-{}", std::process::id()));
        let package = folder.join("node_modules/one");
        std::fs::create_dir_all(&package).unwrap();
        std::fs::write(package.join("package.json"), r#"{"version": "1.0.0"}"#).unwrap();
        let lock = |version: &str| json!({ "packages": { "": {}, "node_modules/one": { "version": version } } });
        assert!(missing(&folder, &lock("1.0.0")).is_empty());
        assert_eq!(missing(&folder, &lock("1.0.1")), ["one 1.0.1"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
