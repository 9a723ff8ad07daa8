//! What the tests need from the machine, and how it gets there.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::command::{cargo, command, find_program, succeeds};

/// A program that tests use, with the package that brings it.
struct Tool {
    what: &'static str,
    programs: &'static [&'static str],
    package: &'static str,
}

const TOOLS: [Tool; 3] = [
    Tool { what: "a C++ compiler", programs: &["g++", "c++", "clang++"], package: "g++" },
    Tool { what: "the disassembler of binutils", programs: &["objdump"], package: "binutils" },
    Tool {
        what: "a browser for the tests of the pages",
        programs: &["chromium", "chromium-browser", "google-chrome"],
        package: "chromium",
    },
];

/// Makes sure that every tool is there: installs what is missing when that is allowed and possible, else says how.
pub(crate) fn ensure(may_install: bool) -> Result<()> {
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| find(tool).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let install = format!("apt-get update && apt-get install -y --no-install-recommends {}", packages.join(" "));
    let names: Vec<&str> = missing.iter().map(|tool| tool.what).collect();
    let apt_get = find_program(&["apt-get"]);
    if !may_install || apt_get.is_none() {
        bail!("missing: {}. Install with `{install}` (or run `cargo xtask test --install`)", names.join(", "));
    }
    println!("xtask: installing {}", packages.join(", "));
    let done = succeeds(command("sh").arg("-c").arg(&install).env("DEBIAN_FRONTEND", "noninteractive"))?;
    if !done || missing.iter().any(|tool| find(tool).is_none()) {
        bail!("`{install}` did not bring {}: run it as root and look at its output", names.join(", "));
    }
    Ok(())
}

fn find(tool: &Tool) -> Option<PathBuf> {
    find_program(tool.programs)
}

/// A cargo subcommand that checks the workspace, pinned so that every machine judges alike.
pub(crate) struct Subcommand {
    /// Its program, which is also the name of its package.
    pub(crate) program: &'static str,
    version: &'static str,
    /// How it is called.
    pub(crate) args: &'static [&'static str],
}

/// The subcommands.
pub(crate) const SUBCOMMANDS: [Subcommand; 2] = [
    Subcommand { program: "cargo-deny", version: "0.20.2", args: &["deny", "check", "bans", "licenses", "sources"] },
    Subcommand { program: "cargo-machete", version: "0.9.2", args: &["machete"] },
];

impl Subcommand {
    /// The command that installs it.
    pub(crate) fn install(&self) -> String {
        format!("cargo install --locked {}@{}", self.program, self.version)
    }

    /// Whether it is there, after installing it when that is allowed.
    pub(crate) fn is_there(&self, may_install: bool) -> Result<bool> {
        if find_program(&[self.program]).is_some() {
            return Ok(true);
        }
        if !may_install {
            return Ok(false);
        }
        println!("xtask: installing {} {}", self.program, self.version);
        let package = format!("{}@{}", self.program, self.version);
        let done = succeeds(cargo().args(["install", "--quiet", "--locked", &package]))?;
        if !done {
            bail!("`{}` failed: look at its output", self.install());
        }
        Ok(true)
    }
}
