//! What the tests need from the machine, and how it gets there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{cargo, command, find_program, succeeds};
use crate::postgres_programs;

/// A program that tests use, with the package that brings it.
struct Tool {
    what: &'static str,
    find: fn() -> Option<PathBuf>,
    package: &'static str,
}

const TOOLS: [Tool; 5] = [
    Tool { what: "a C++ compiler", find: || find_program(&["g++", "c++", "clang++"]), package: "g++" },
    Tool { what: "the disassembler of binutils", find: || find_program(&["objdump"]), package: "binutils" },
    Tool {
        what: "a browser for the tests of the pages",
        find: || find_program(&["chromium", "chromium-browser", "google-chrome"]),
        package: "chromium",
    },
    Tool { what: "Node for the tests of the pages", find: || find_program(&["node"]), package: "nodejs npm" },
    Tool {
        what: "the server programs of PostgreSQL",
        // Debian keeps them off the search path: they are looked for where the tests look.
        find: || Some(postgres_programs::folder()?.join("postgres")),
        package: "postgresql",
    },
];

/// What the product's installer of nvcc works with: it says so itself, but only a task may install it.
const PYTHON: Tool = Tool {
    what: "Python with virtual environments",
    find: || {
        let python = find_program(&["python3"])?;
        // Debian has the programs in one package and the means to make environments in another.
        let works = command(&python).args(["-c", "import ensurepip, venv"]).output().ok()?.status.success();
        works.then_some(python)
    },
    package: "python3-venv",
};

/// Makes sure that packages of Python can be installed.
pub(crate) fn ensure_python() -> Result<()> {
    if (PYTHON.find)().is_none() {
        bring(&[&PYTHON], true)?;
    }
    Ok(())
}

/// Makes sure that every tool is there and tells which it is: installs what is missing when that is allowed and
/// possible, else says how.
pub(crate) fn ensure(may_install: bool) -> Result<()> {
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| (tool.find)().is_none()).collect();
    if !missing.is_empty() {
        bring(&missing, may_install)?;
    }
    for tool in &TOOLS {
        if let Some(program) = (tool.find)() {
            println!("xtask: {}: {}, {}", tool.what, program.display(), version(&program)?);
        }
    }
    Ok(())
}

fn bring(missing: &[&Tool], may_install: bool) -> Result<()> {
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let install = format!("apt-get update && apt-get install -y --no-install-recommends {}", packages.join(" "));
    let names: Vec<&str> = missing.iter().map(|tool| tool.what).collect();
    let apt_get = find_program(&["apt-get"]);
    if !may_install || apt_get.is_none() {
        bail!("missing: {}. Install with `{install}` (or run `cargo xtask test --install`)", names.join(", "));
    }
    println!("xtask: installing {}", packages.join(", "));
    let done = succeeds(command("sh").arg("-c").arg(&install).env("DEBIAN_FRONTEND", "noninteractive"))?;
    if !done || missing.iter().any(|tool| (tool.find)().is_none()) {
        bail!("`{install}` did not bring {}: run it as root and look at its output", names.join(", "));
    }
    Ok(())
}

/// What the program says about itself, in its first line. One that cannot even do that is broken, and the tests would
/// tell so less clearly.
fn version(program: &Path) -> Result<String> {
    let output =
        command(program).arg("--version").output().with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.lines().find(|line| !line.trim().is_empty()) {
        Some(line) if output.status.success() => Ok(line.trim().to_owned()),
        _ => bail!(
            "`{} --version` failed ({}): repair or reinstall it. {}",
            program.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    }
}

/// A cargo subcommand that checks the workspace, pinned so that every machine judges alike.
pub(crate) struct Subcommand {
    /// Its program, which is also the name of its package.
    pub(crate) program: &'static str,
    version: &'static str,
    /// How it is called.
    pub(crate) args: &'static [&'static str],
}

/// Finds dependencies that no code uses.
pub(crate) const MACHETE: Subcommand = Subcommand { program: "cargo-machete", version: "0.9.2", args: &["machete"] };

impl Subcommand {
    /// The command that installs it.
    pub(crate) fn install(&self) -> String {
        format!("cargo install --debug --locked {}@{}", self.program, self.version)
    }

    /// Returns whether it is there, after installing it when that is allowed.
    pub(crate) fn is_there(&self, may_install: bool) -> Result<bool> {
        if find_program(&[self.program]).is_some() {
            return Ok(true);
        }
        if !may_install {
            return Ok(false);
        }
        println!("xtask: installing {} {}", self.program, self.version);
        let package = format!("{}@{}", self.program, self.version);
        // Without optimization it is there in half the time, and its one look at the workspace takes a second more.
        let done = succeeds(cargo().args(["install", "--quiet", "--debug", "--locked", &package]))?;
        if !done {
            bail!("`{}` failed: look at its output", self.install());
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_tell_its_version_is_reported_with_its_path() {
        assert!(version(Path::new("/bin/false")).is_err_and(|error| error.to_string().contains("/bin/false")));
        assert!(version(Path::new("/no/such/program")).is_err());
        assert!(version(Path::new("/bin/cat")).is_ok_and(|version| version.contains("cat")));
    }
}
