//! The system C++ compiler: which one, whether it is good enough, and the flags that every program is built with.

mod error;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nightshift_protocol::machine::Toolchain;
use nightshift_protocol::verdict::ProcessEnd;

pub use self::error::ToolchainError;
use crate::compiler_output;
use crate::machine::Hardware;
use crate::proofs::Proof;
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{JailedCommand, Limits, ProcessError, ProcessResult};

/// Compilers in the order in which they are tried when none is configured.
pub const COMPILERS: [&str; 3] = ["g++", "c++", "clang++"];
/// Folders to search for compilers: those of the system, which a jail can show.
pub const SYSTEM_FOLDERS: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin", "/opt/local/bin"];
/// The contract that every program includes.
pub const NIGHTSHIFT_H: &str = include_str!("../include/nightshift.h");

/// Uses what C++20 brought and what the contract needs, and links.
const PROBE: &str = r#"#include "nightshift.h"
#include <cmath>
#include <concepts>
#include <span>
#include <vector>
template <std::floating_point T> static T total(std::span<const T> values) {
    T sum = 0;
    for (T value : values) sum += std::sqrt(value);
    return sum;
}
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *, void *) {
    std::vector<ns_real> copy(static_cast<const ns_real *>(inputs[0].data), static_cast<const ns_real *>(inputs[0].data) + 1);
    *static_cast<ns_real *>(outputs[0].data) = total(std::span<const ns_real>(copy));
    return 0;
}
"#;

const PROBE_LIMITS: Limits = Limits {
    wall_ms: 60_000,
    cpu_s: 60,
    memory_bytes: 2 << 30,
    file_bytes: 64 << 20,
    processes: 64,
    output_bytes: 256 << 10,
};

/// Runs a jailed command; tests put their own in its place.
pub type Run<'a> = dyn Fn(&JailedCommand) -> Result<ProcessResult, ProcessError> + 'a;

/// The two families of compilers whose options and messages we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// GCC.
    Gcc,
    /// Clang.
    Clang,
}

/// Finds the compiler and proves, by building a small program with all flags, that it can do what is needed.
///
/// `configured` is a name or a path; without it the first of [`COMPILERS`] in `folders` that works is taken. When none
/// works, the error is that of the first one found.
pub fn find(
    configured: Option<&str>,
    folders: &[PathBuf],
    hardware: &Hardware,
    (scratch, proofs): (&Path, Option<&Path>),
    run: &Run<'_>,
) -> Result<Toolchain, ToolchainError> {
    let names: Vec<&str> = configured.map_or_else(|| COMPILERS.to_vec(), |name| vec![name]);
    let mut first_error = None;
    for (name, path) in names.iter().filter_map(|name| locate(name, folders).map(|path| (*name, path))) {
        match examine(name, &path, hardware, (scratch, proofs), run) {
            Ok(toolchain) => return Ok(toolchain),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or_else(|| {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let folders = folders.join(", ");
        if let Some(name) = configured {
            let looked_in = (!name.contains('/')).then_some(folders);
            return ToolchainError::ConfiguredNotFound { name: name.to_owned(), looked_in };
        }
        ToolchainError::NotFound {
            looked_for: format!("{} in {folders}", names.join(", ")),
            install: install_command(&hardware.os).to_owned(),
        }
    }))
}

/// The folders of the system in which compilers are looked for.
#[must_use]
pub fn system_folders() -> Vec<PathBuf> {
    SYSTEM_FOLDERS.iter().map(PathBuf::from).collect()
}

/// The family of a compiler, by its version report.
#[must_use]
pub fn family(version: &str) -> Family {
    if version.to_ascii_lowercase().contains("clang") { Family::Clang } else { Family::Gcc }
}

/// The flags of the `cpu` target. Reference and candidate get the same, so that no speedup comes from a flag.
#[must_use]
pub fn flags() -> Vec<String> {
    // On Arm, `-march` alone would leave the tuning generic; on x86, `-march=native` sets both.
    let native = if cfg!(target_arch = "aarch64") { "-mcpu=native" } else { "-march=native" };
    [
        "-std=c++20",
        // Flags that a careful author would set.
        "-O3",
        native,
        // Contraction to fused multiply-adds is the one liberty that is taken with numbers, and both sides get it; GCC
        // and Clang differ in their defaults. No -ffast-math: a candidate may reorder sums in its source, where the
        // check sees it, but may not get numerics that the reference did not have.
        "-ffp-contract=fast",
        // Neither changes a value: they give up `errno` and floating-point traps, which stand in the way of
        // vectorizing a square root or a condition.
        "-fno-math-errno",
        "-fno-trapping-math",
        // `#pragma omp simd` without a thread library.
        "-fopenmp-simd",
        "-fPIC",
        "-shared",
        // Only the contract's entry points are visible, so that everything else can be inlined.
        "-fvisibility=hidden",
        "-fno-semantic-interposition",
        // Lines for messages and profiles; does not change the code.
        "-g1",
        // What is missing is said by the linker, to the Coder, and not by the loader later; and no first call pays for
        // the binding of a symbol.
        "-Wl,-z,defs",
        "-Wl,-z,now",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Folders that a jail has to show beside the system's, so that this program finds its own parts.
#[must_use]
pub fn readable_folders(program: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    let resolved = program.canonicalize().ok();
    for path in [Some(program), resolved.as_deref()].into_iter().flatten() {
        let Some(folder) = path.parent() else { continue };
        let prefix = if folder.ends_with("bin") { folder.parent().unwrap_or(folder) } else { folder };
        let is_system = ["/usr", "/bin", "/lib", "/lib64"].iter().any(|system| prefix.starts_with(system));
        if !is_system && prefix != Path::new("/") && !folders.iter().any(|known| known == prefix) {
            folders.push(prefix.to_path_buf());
        }
    }
    folders
}

/// The command that installs a compiler on a system of this name.
#[must_use]
pub fn install_command(os: &str) -> &'static str {
    const COMMANDS: [(&str, &str); 9] = [
        ("Alpine", "apk add g++ binutils"),
        ("Arch", "pacman -S gcc"),
        ("Fedora", "dnf install gcc-c++"),
        ("Red Hat", "dnf install gcc-c++"),
        ("Rocky", "dnf install gcc-c++"),
        ("AlmaLinux", "dnf install gcc-c++"),
        ("CentOS", "dnf install gcc-c++"),
        ("Amazon", "dnf install gcc-c++"),
        ("SUSE", "zypper install gcc-c++"),
    ];
    COMMANDS.iter().find(|(name, _)| os.contains(name)).map_or("apt-get install g++", |(_, command)| command)
}

fn locate(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    if name.contains('/') {
        return std::path::absolute(name).ok().filter(|path| is_program(path));
    }
    folders.iter().map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// Returns whether a path is a file that this process may execute.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

fn examine(
    name: &str,
    path: &Path,
    hardware: &Hardware,
    (scratch, proofs): (&Path, Option<&Path>),
    run: &Run<'_>,
) -> Result<Toolchain, ToolchainError> {
    let unusable = |source| ToolchainError::Scratch { folder: scratch.to_path_buf(), source };
    // Never two probes in one folder: `doctor` may look while a worker starts.
    let folder = temporary_folder(scratch, "probe-").map_err(unusable)?;
    let command = |args: Vec<OsString>| JailedCommand {
        program: path.to_path_buf(),
        args,
        read_only: readable_folders(path),
        scratch: folder.path().to_path_buf(),
        env: vec![("LC_ALL".to_owned(), "C".to_owned())],
        limits: PROBE_LIMITS,
    };
    let program = || path.display().to_string();
    let not_started = |source| ToolchainError::NotStarted { program: program(), source };

    let reported = run(&command(vec!["--version".into()])).map_err(not_started)?;
    let report = String::from_utf8_lossy(&reported.stdout).into_owned();
    let version = report.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned();
    if reported.end != ProcessEnd::Finished || version.is_empty() {
        let reason = format!("`--version` gave no version: {}", reported.end.describe());
        return Err(ToolchainError::Broken { program: program(), reason });
    }

    let flags = flags();
    let fingerprint = fingerprint(name, &version, &flags, hardware);
    let proof = Proof::of(proofs, &[path], &[&fingerprint, NIGHTSHIFT_H, PROBE]);
    if proof.as_ref().is_some_and(Proof::is_kept) {
        return Ok(Toolchain { program: name.to_owned(), path: program(), version, flags, fingerprint });
    }
    std::fs::write(folder.path().join("nightshift.h"), NIGHTSHIFT_H).map_err(unusable)?;
    std::fs::write(folder.path().join("probe.cpp"), PROBE).map_err(unusable)?;
    let args = flags.iter().map(OsString::from).chain(["probe.cpp", "-o", "probe.so"].map(OsString::from)).collect();
    let built = run(&command(args)).map_err(not_started)?;
    if built.end != ProcessEnd::Finished {
        let output = String::from_utf8_lossy(&built.stderr).into_owned();
        return Err(if knows_no_cpp20(&output) {
            let install = install_command(&hardware.os).to_owned();
            ToolchainError::TooOld { program: program(), version, install }
        } else {
            let folder = folder.path().display().to_string();
            let message = compiler_output::messages(&output, &folder).into_iter().next().map(|message| message.message);
            ToolchainError::Broken { program: program(), reason: message.unwrap_or_else(|| built.end.describe()) }
        });
    }

    if let Some(proof) = proof {
        proof.keep();
    }
    Ok(Toolchain { program: name.to_owned(), path: program(), version, flags, fingerprint })
}

fn knows_no_cpp20(output: &str) -> bool {
    let complains_of_flag = output.lines().any(|line| {
        line.contains("c++20") && ["unrecognized", "invalid value", "unknown"].iter().any(|word| line.contains(word))
    });
    let lacks_header = ["concepts", "span"].iter().any(|header| {
        output.contains(&format!("{header}: No such file")) || output.contains(&format!("'{header}' file not found"))
    });
    complains_of_flag || lacks_header
}

/// `-march=native` gives other code on another processor: its model and extensions belong to the address of a build.
fn fingerprint(program: &str, version: &str, flags: &[String], hardware: &Hardware) -> String {
    let mut hasher = blake3::Hasher::new();
    let parts = [program, version].into_iter().chain(flags.iter().map(String::as_str));
    let processor = std::iter::once(hardware.processor.as_str()).chain(hardware.features.iter().map(String::as_str));
    for part in parts.chain(processor) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
