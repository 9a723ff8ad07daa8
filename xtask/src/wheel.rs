//! The wheel for Python: built, installed into an empty environment, and tried there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{command, find_program, succeeds, target_folder};
use crate::tools;

/// What builds wheels, with the versions that `pyproject.toml` accepts.
const MATURIN: &str = "maturin>=1.9,<2";
/// The search path of a machine on which nothing was installed by its owner.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The smallest job that needs the store, a worker, the sandbox and a compiler.
const TRIAL: [&str; 5] = ["optimize", "row_softmax", "--model", "scripted", "--allow-unsandboxed"];

/// Finds maturin, or installs it where that is allowed.
pub(crate) fn maturin(may_install: bool) -> Result<Option<PathBuf>> {
    let folder = target_folder()?.join("maturin");
    let own = folder.join("bin/maturin");
    if let Some(found) = find_program(&["maturin"]).or_else(|| own.is_file().then(|| own.clone())) {
        return Ok(Some(found));
    }
    if !may_install {
        return Ok(None);
    }
    tools::ensure_python()?;
    environment(&folder)?;
    if !succeeds(command(folder.join("bin/pip")).args(["install", "--quiet", MATURIN]))? {
        bail!("`pip install {MATURIN}` failed: look at its output");
    }
    Ok(Some(own))
}

/// Builds the wheel from the build that the tests use, installs it alone, and lets it make a program faster.
pub(crate) fn check(maturin: &Path) -> Result<bool> {
    let folder = target_folder()?.join("wheel");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let (wheels, installed, home) = (folder.join("dist"), folder.join("environment"), folder.join("home"));
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    // The trial is not uploaded: whether older systems have its libraries is not asked.
    let mut build = command(maturin);
    build.args(["build", "--profile", "dev", "--compatibility", "linux", "--out"]).arg(&wheels);
    if !succeeds(&mut build)? {
        return Ok(false);
    }
    environment(&installed)?;
    let mut install = command(installed.join("bin/pip"));
    install.args(["install", "--quiet", "--no-index", "--find-links"]).arg(&wheels).arg("nightshift");
    if !succeeds(&mut install)? {
        return Ok(false);
    }
    let bin = installed.join("bin");
    let mut trial = command(bin.join("nightshift"));
    trial
        .args(TRIAL)
        .current_dir(&home)
        .env_clear()
        .env("HOME", &home)
        .env("PATH", format!("{}:{SYSTEM_PATH}", bin.display()));
    succeeds(&mut trial)
}

/// Makes an empty environment of Python.
pub(crate) fn environment(folder: &Path) -> Result<()> {
    let python = find_program(&["python3"]).context("python3 is not on the search path")?;
    if !succeeds(command(python).args(["-m", "venv"]).arg(folder))? {
        bail!("`python3 -m venv {}` failed: look at its output", folder.display());
    }
    Ok(())
}
