//! `doctor --install-nvcc`: the CUDA compiler from Python's package index, in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use super::find::installed_programs;
use super::pins::{COMPILER, CUBLAS, Pin};
use crate::toolchain::is_program;
use nightshift_sandbox::process::{CancelFlag, run_trusted};

/// Written at the end: what is complete, and what was installed.
const COMPLETE: &str = "nightshift-packages.txt";
/// What every virtual environment of Python has.
const ENVIRONMENT: &str = "pyvenv.cfg";
/// A gigabyte of packages from a slow network.
const INSTALL_LIMIT: Duration = Duration::from_hours(1);
/// Most of an installer's complaint that is repeated, in characters.
const MAX_SAID_CHARS: usize = 600;

/// What is installed, and where.
#[derive(Debug, Clone)]
pub struct Installation<'a> {
    /// The folder, which is created.
    pub folder: &'a Path,
    /// Whether cuBLAS and cuBLASLt come too.
    pub with_cublas: bool,
    /// Where Python is looked for.
    pub search_path: &'a [PathBuf],
    /// Ends the installation.
    pub cancel: &'a CancelFlag,
}

/// What an installation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// Everything was there already.
    Before(PathBuf),
    /// The packages were installed.
    Now(PathBuf),
}

impl Installed {
    /// The folder with the compiler.
    #[must_use]
    pub fn program_folder(&self) -> &Path {
        match self {
            Self::Before(folder) | Self::Now(folder) => folder,
        }
    }
}

/// Why the compiler could not be installed. Codes are stable: see [`InstallError::code`].
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// There are no packages for this system.
    #[error(
        "NVIDIA has no packages of nvcc for {system}: on Linux (x86-64, arm64) this works; elsewhere build on another machine"
    )]
    System {
        /// What this is.
        system: String,
    },
    /// The packages are Python's.
    #[error(
        "python3 was not found on the search path: install it (Debian and Ubuntu: apt-get install python3 python3-venv)"
    )]
    NoPython,
    /// The folder holds something else.
    #[error("{} is no folder of this installer, and is left alone: name another with `--folder`", folder.display())]
    ForeignFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// Python could not make an environment.
    #[error(
        "`{python} -m venv` failed: {said}; Debian and Ubuntu keep it in a package of its own: apt-get install python3-venv"
    )]
    Environment {
        /// Which Python.
        python: String,
        /// What it said.
        said: String,
    },
    /// The packages could not be fetched.
    #[error(
        "the packages could not be installed: {said}; is the package index reachable (PIP_INDEX_URL names another, HTTPS_PROXY a proxy), and is the disk large enough?"
    )]
    Packages {
        /// What the installer said.
        said: String,
    },
    /// What was installed has no compiler.
    #[error("the packages were installed to {}, but there is no nvcc: remove the folder and try again", folder.display())]
    Incomplete {
        /// The folder.
        folder: PathBuf,
    },
    /// A file could not be written, or a program not be started.
    #[error("{what}")]
    Os {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

impl InstallError {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::System { .. } => "toolchain.no_packages",
            Self::NoPython | Self::Environment { .. } => "toolchain.no_python",
            Self::ForeignFolder { .. } => "usage.folder_in_use",
            Self::Packages { .. } | Self::Incomplete { .. } => "toolchain.install_failed",
            Self::Os { .. } => "toolchain.install_io",
        }
    }
}

/// Installs the compiler, unless it is there. Blocks, and takes as long as the network does. `tell` hears what is going
/// on.
pub fn install(installation: &Installation<'_>, tell: &dyn Fn(&str)) -> Result<Installed, InstallError> {
    let folder = installation.folder;
    let pins: Vec<Pin> = COMPILER.iter().chain(CUBLAS.iter().filter(|_| installation.with_cublas)).copied().collect();
    if let Some(programs) = complete(folder, &pins) {
        return Ok(Installed::Before(programs));
    }
    if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        return Err(InstallError::System { system: format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH) });
    }
    let python = installation.search_path.iter().map(|folder| folder.join("python3")).find(|path| is_program(path));
    let python = python.ok_or(InstallError::NoPython)?;
    make_environment(folder, &python, (tell, installation.cancel))?;

    tell(&format!("installing {}", pins.iter().map(Pin::requirement).collect::<Vec<_>>().join(", ")));
    let mut args: Vec<String> =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--only-binary=:all:"]
            .map(str::to_owned)
            .to_vec();
    // What they say they depend on is newer than what fits: all of it is named here.
    args.push("--no-deps".to_owned());
    args.extend(pins.iter().map(Pin::requirement));
    let output = run(&folder.join("bin/python3"), &args, installation.cancel)?;
    if !output.status.success() {
        return Err(InstallError::Packages { said: said(&output) });
    }
    let incomplete = || InstallError::Incomplete { folder: folder.to_path_buf() };
    let programs = compiler_in(folder).ok_or_else(incomplete)?;
    link_libraries(&programs)?;
    let marker = folder.join(COMPLETE);
    std::fs::write(&marker, list(&pins)).map_err(|source| os(&marker, source))?;
    Ok(Installed::Now(programs))
}

/// Makes the virtual environment, or takes the one that an earlier try left.
fn make_environment(
    folder: &Path,
    python: &Path,
    (tell, cancel): (&dyn Fn(&str), &CancelFlag),
) -> Result<(), InstallError> {
    let is_empty = std::fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
    if !is_empty && !folder.join(ENVIRONMENT).is_file() {
        return Err(InstallError::ForeignFolder { folder: folder.to_path_buf() });
    }
    tell(&format!("making a virtual environment of {} in {}", python.display(), folder.display()));
    std::fs::create_dir_all(folder).map_err(|source| os(folder, source))?;
    // What an earlier try left may be half of something.
    let args: [&std::ffi::OsStr; 4] = ["-m".as_ref(), "venv".as_ref(), "--clear".as_ref(), folder.as_os_str()];
    let output = run(python, args, cancel)?;
    if output.status.success() {
        return Ok(());
    }
    Err(InstallError::Environment { python: python.display().to_string(), said: said(&output) })
}

/// nvcc looks for libraries in `lib64`, the packages have `lib`.
fn link_libraries(programs: &Path) -> Result<(), InstallError> {
    let Some(root) = programs.parent() else { return Ok(()) };
    let link = root.join("lib64");
    if link.symlink_metadata().is_ok() || !root.join("lib").is_dir() {
        return Ok(());
    }
    std::os::unix::fs::symlink("lib", &link).map_err(|source| os(&link, source))
}

/// Where the programs lie, when all of these packages were installed before.
fn complete(folder: &Path, pins: &[Pin]) -> Option<PathBuf> {
    let installed = std::fs::read_to_string(folder.join(COMPLETE)).ok()?;
    let has = |pin: &Pin| installed.lines().any(|line| line == pin.requirement());
    pins.iter().all(has).then(|| compiler_in(folder)).flatten()
}

fn compiler_in(folder: &Path) -> Option<PathBuf> {
    installed_programs(folder).into_iter().find(|programs| is_program(&programs.join("nvcc")))
}

fn list(pins: &[Pin]) -> String {
    pins.iter().map(|pin| pin.requirement() + "\n").collect()
}

fn run<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(
    program: &Path,
    args: I,
    cancel: &CancelFlag,
) -> Result<Output, InstallError> {
    run_trusted(program, args, INSTALL_LIMIT, cancel)
        .map_err(|source| InstallError::Os { what: format!("{} could not be run", program.display()), source })
}

/// The end of what a program said: there it says why it failed.
fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text);
    let text: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = text.join("; ");
    let skipped = text.chars().count().saturating_sub(MAX_SAID_CHARS);
    text.chars().skip(skipped).collect()
}

fn os(path: &Path, source: std::io::Error) -> InstallError {
    InstallError::Os { what: format!("{} cannot be written", path.display()), source }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
