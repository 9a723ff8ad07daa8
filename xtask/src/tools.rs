//! What the tests need from the machine, and how it gets there.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::command::{command, find_program, succeeds};

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
