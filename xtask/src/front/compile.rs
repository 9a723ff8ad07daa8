//! Compiling the pages' crate for browsers, alike on every machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{command, find_program, root, succeeds};

/// What browsers run.
pub(super) const TARGET: &str = "wasm32-unknown-unknown";
/// How it is installed.
pub(super) const INSTALL: &str = "rustup target add wasm32-unknown-unknown";
const PROFILE: &str = "wasm-release";
/// The package and what of it goes in: the server's side stays out.
const PACKAGE: [&str; 5] = ["--package", "nightshift-dashboard", "--no-default-features", "--features", "hydrate"];
/// What of cargo's environment is about this machine (where packages come from), not about what is built.
const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_SOURCE_"];

/// What the compiler made.
pub(super) struct Program {
    pub(super) wasm: PathBuf,
    /// The list of files that went in.
    pub(super) dep_info: PathBuf,
}

/// Returns whether the target is there, after installing it when that is allowed.
pub(super) fn target_is_there(may_install: bool) -> Result<bool> {
    let is_there = || -> Result<bool> {
        let folder = rustc(&["--print", "target-libdir", "--target", TARGET])?;
        Ok(Path::new(&folder).is_dir())
    };
    if is_there()? || !may_install || find_program(&["rustup"]).is_none() {
        return is_there();
    }
    println!("front: installing the target {TARGET}");
    if !succeeds(command("rustup").args(["target", "add", TARGET]))? {
        bail!("`{INSTALL}` failed: look at its output");
    }
    is_there()
}

/// Compiles; the profile, the flags and the folder are ours, whatever the caller's environment says.
pub(super) fn program() -> Result<Program> {
    let mut cargo = clean_cargo()?;
    cargo.arg("rustc").args(PACKAGE).args(["--lib", "--crate-type", "cdylib", "--profile", PROFILE]);
    if !succeeds(&mut cargo)? {
        bail!("the pages' program did not compile");
    }
    let folder = target_dir().join(TARGET).join(PROFILE);
    Ok(Program { wasm: folder.join("nightshift_dashboard.wasm"), dep_info: folder.join("nightshift_dashboard.d") })
}

/// Lints the same code.
pub(super) fn lint() -> Result<bool> {
    let mut cargo = clean_cargo()?;
    succeeds(cargo.arg("clippy").args(PACKAGE).args(["--lib", "--", "-D", "warnings"]))
}

fn target_dir() -> PathBuf {
    root().join("target/front")
}

/// A cargo that is told everything here: flags of the caller would change the bytes, and its folder may be locked.
#[expect(clippy::disallowed_methods, reason = "what the caller's environment says about building is dropped")]
fn clean_cargo() -> Result<Command> {
    let mut cargo = command(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    for (name, _) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let is_about_building =
            ["CARGO", "RUSTC", "RUSTFLAGS", "RUSTDOC"].iter().any(|prefix| text.starts_with(prefix));
        if is_about_building && !KEPT.iter().any(|kept| text.starts_with(kept)) {
            cargo.env_remove(&name);
        }
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", remapped()?.join("\u{1f}"));
    cargo.env("CARGO_TARGET_DIR", target_dir()).env("CARGO_BUILD_TARGET", TARGET);
    cargo.arg("--locked");
    Ok(cargo)
}

/// Folders of this machine are in no message of the program.
fn remapped() -> Result<Vec<String>> {
    let sysroot = rustc(&["--print", "sysroot"])?;
    let version = rustc(&["--version", "--verbose"])?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
    let library = Path::new(&sysroot).join("lib/rustlib/src/rust");
    Ok([
        (cargo_home()?, "/cargo".to_owned()),
        (library, format!("/rustc/{commit}")),
        (root().canonicalize()?, "/nightshift".to_owned()),
    ]
    .into_iter()
    .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
    .collect())
}

fn cargo_home() -> Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).context("there is no folder of cargo")
}

fn rustc(args: &[&str]) -> Result<String> {
    let output = command("rustc").args(args).output().context("cannot run rustc")?;
    if !output.status.success() {
        bail!("rustc {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
