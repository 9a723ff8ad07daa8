//! Finding nvcc, and proving by a small program that it can do what is needed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nightshift_protocol::machine::Toolchain;
use nightshift_protocol::needs::ComputeCapability;
use nightshift_protocol::verdict::ProcessEnd;

use super::arch::{Arch, DEFAULT_ARCH};
use super::disassembler::Disassembler;
use super::error::NvccError;
use super::messages::{Context, messages};
use super::toolkit::{self, Toolkit};
use super::{Nvcc, command, flags};
use crate::proofs::Proof;
use crate::toolchain::{self, NIGHTSHIFT_H, Run, is_program, readable_folders};
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{JailedCommand, Limits};

/// C++ compilers in the order in which they are tried as nvcc's helper.
const HOST_COMPILERS: [&str; 2] = ["g++", "clang++"];
/// Where NVIDIA's installer and packages of distributions put a toolkit.
const TOOLKITS: [&str; 2] = ["usr/local/cuda", "opt/cuda"];
/// Where toolkits of several versions lie beside each other.
const VERSIONED_TOOLKITS: (&str, &str) = ("usr/local", "cuda-");
/// Maximum number of compilers that are tried.
const MAX_TRIED: usize = 8;

/// Includes what nearly every program does, and links.
const PROBE: &str = r#"#include "nightshift.h"
#include <cuda_fp16.h>
#include <cuda_runtime.h>
__global__ void __launch_bounds__(128) probe(const ns_real *x, ns_real *y, __half *z) {
    y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];
    z[threadIdx.x] = __float2half(1.0f);
}
NS_EXPORT int ns_run(void *, const ns_tensor *inputs, int32_t, ns_tensor *outputs, int32_t, void *workspace, void *stream) {
    probe<<<1, 128, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<const ns_real *>(inputs[0].data),
                                                            static_cast<ns_real *>(outputs[0].data),
                                                            static_cast<__half *>(workspace));
    return static_cast<int>(cudaGetLastError());
}
"#;

const VERSION_LIMITS: Limits = Limits {
    wall_ms: 30_000,
    cpu_s: 30,
    memory_bytes: 4 << 30,
    file_bytes: 1 << 20,
    processes: 16,
    output_bytes: 64 << 10,
};
/// The first run reads hundreds of megabytes of compiler from the disk.
const PROBE_TIMEOUT_MS: u64 = 180_000;

/// What the configuration says about the CUDA compiler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvccChoice {
    /// Name or path of the compiler, or the folder of a toolkit (`worker.nvcc`); searched for without it.
    pub nvcc: Option<String>,
    /// Architecture to build for (`worker.cuda_arch`); the device's without it.
    pub arch: Option<String>,
    /// Where `doctor --install-nvcc` installs.
    pub install_folder: Option<PathBuf>,
}

impl NvccChoice {
    /// What to build for: what is configured, else what the device is, else [`DEFAULT_ARCH`].
    pub fn arch(&self, device: Option<ComputeCapability>) -> Result<Arch, NvccError> {
        let configured = self.arch.as_deref().map(str::parse).transpose()?;
        Ok(configured.or_else(|| device.map(Arch::from)).unwrap_or(DEFAULT_ARCH))
    }
}

/// What is looked for, and where.
#[derive(Debug, Clone)]
pub struct Search<'a> {
    /// Name or path of the compiler, or the folder of a toolkit, as configured.
    pub configured: Option<&'a str>,
    /// The user's search path.
    pub search_path: &'a [PathBuf],
    /// The root of the system's files.
    pub system_root: &'a Path,
    /// Where `doctor --install-nvcc` installs.
    pub install_folder: Option<&'a Path>,
    /// What to build for.
    pub arch: Arch,
    /// The C++ compiler that nvcc is to use; the system's without it.
    pub host_compiler: Option<&'a Path>,
    /// Name of the operating system, for advice.
    pub os: &'a str,
    /// Where it is kept which compilers were proven; without it each is proven anew.
    pub proofs: Option<&'a Path>,
}

impl Nvcc {
    /// Finds the compiler and proves, by building a small program with all flags, that it can do what is needed.
    /// Without a configured one, the first that works of the search path's, the system's and the installed one is
    /// taken; when none works, the error is that of the first one found.
    pub fn find(search: &Search<'_>, scratch: &Path, run: &Run<'_>) -> Result<Self, NvccError> {
        let programs = search.programs()?;
        let host = search.host_compiler()?;
        let mut first_error = None;
        for program in &programs {
            match examine(search, program, &host, scratch, run) {
                Ok(nvcc) => return Ok(nvcc),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| NvccError::NotFound { looked_in: search.looked_in() }))
    }
}

impl Search<'_> {
    /// The compilers that there are, each once, without links.
    fn programs(&self) -> Result<Vec<PathBuf>, NvccError> {
        let mut programs: Vec<PathBuf> = Vec::new();
        let candidates = match self.configured {
            Some(name) => self.configured_programs(name),
            None => self.folders().into_iter().map(|folder| folder.join("nvcc")).collect(),
        };
        for program in candidates.iter().filter(|path| is_program(path)) {
            // What a link names is taken: a toolkit finds its parts from where it really lies.
            let program = program.canonicalize().unwrap_or_else(|_| program.clone());
            if !programs.contains(&program) && programs.len() < MAX_TRIED {
                programs.push(program);
            }
        }
        match self.configured.filter(|_| programs.is_empty()) {
            Some(name) => {
                let looked_in = (!name.contains('/')).then(|| self.looked_in());
                Err(NvccError::ConfiguredNotFound { name: name.to_owned(), looked_in })
            }
            None => Ok(programs),
        }
    }

    fn configured_programs(&self, name: &str) -> Vec<PathBuf> {
        if !name.contains('/') {
            return self.folders().into_iter().map(|folder| folder.join(name)).collect();
        }
        let Ok(path) = std::path::absolute(name) else { return Vec::new() };
        vec![path.join("bin/nvcc"), path.join("nvcc"), path]
    }

    /// Where compilers are looked for, in this order.
    fn folders(&self) -> Vec<PathBuf> {
        let mut folders = self.search_path.to_vec();
        folders.extend(TOOLKITS.iter().map(|toolkit| self.system_root.join(toolkit).join("bin")));
        folders.extend(versioned_toolkits(&self.system_root.join(VERSIONED_TOOLKITS.0)));
        folders.extend(self.install_folder.map(installed_programs).unwrap_or_default());
        folders
    }

    fn looked_in(&self) -> String {
        let mut places: Vec<String> = Vec::new();
        if !self.search_path.is_empty() {
            places.push("the search path".to_owned());
        }
        places.extend(TOOLKITS.map(|toolkit| format!("/{toolkit}")));
        places.push(format!("/{}/{}*", VERSIONED_TOOLKITS.0, VERSIONED_TOOLKITS.1));
        places.extend(self.install_folder.map(|folder| folder.display().to_string()));
        places.join(", ")
    }

    fn host_compiler(&self) -> Result<PathBuf, NvccError> {
        if let Some(path) = self.host_compiler {
            return Ok(path.to_path_buf());
        }
        let folders = toolchain::system_folders();
        let paths = HOST_COMPILERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        paths.into_iter().find(|path| is_program(path)).ok_or_else(|| NvccError::NoHostCompiler {
            looked_for: format!("{} in {}", HOST_COMPILERS.join(", "), toolchain::SYSTEM_FOLDERS.join(", ")),
            install: toolchain::install_command(self.os).to_owned(),
        })
    }
}

/// `/usr/local/cuda-13.0/bin`, newest first.
fn versioned_toolkits(root: &Path) -> Vec<PathBuf> {
    let version_of = |entry: &std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (major, minor) = name.strip_prefix(VERSIONED_TOOLKITS.1)?.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let mut found: Vec<((u32, u32), PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| version_of(&entry).map(|version| (version, entry.path().join("bin"))))
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, folder)| folder).collect()
}

/// Where the programs lie in a folder that `doctor --install-nvcc` made: a virtual environment of Python.
#[must_use]
pub fn installed_programs(folder: &Path) -> Vec<PathBuf> {
    let below = |folder: &Path, prefix: &str| -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut found: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    };
    below(&folder.join("lib"), "python3")
        .iter()
        .flat_map(|python| below(&python.join("site-packages/nvidia"), "cu"))
        .map(|toolkit| toolkit.join("bin"))
        .filter(|bin| bin.is_dir())
        .collect()
}

fn examine(search: &Search<'_>, program: &Path, host: &Path, scratch: &Path, run: &Run<'_>) -> Result<Nvcc, NvccError> {
    let unusable = |source| NvccError::Scratch { folder: scratch.to_path_buf(), source };
    let folder = temporary_folder(scratch, "probe-").map_err(unusable)?;
    let path = program.display().to_string();
    let broken = |reason: String| NvccError::Broken { program: path.clone(), reason };

    let report = version_report(program, folder.path(), run)?;
    let (version, release) =
        toolkit::release_in(&report).ok_or_else(|| broken("`--version` gave no version".to_owned()))?;
    let host_report = version_report(host, folder.path(), run)?;
    let host_version = host_report.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned();
    if host_version.is_empty() {
        return Err(broken(format!("its C++ compiler {} tells no version", host.display())));
    }

    let toolkit = Toolkit::of(program, release);
    let disassembler = {
        let folders: Vec<PathBuf> =
            std::iter::once(toolkit.program_folder.clone()).chain(search.search_path.iter().cloned()).collect();
        Disassembler::find(&folders)
    };
    let flags = flags(search.arch);
    let version = format!("nvcc release {version}, with {host_version}");
    let nvcc = Nvcc {
        toolchain: Toolchain {
            program: "nvcc".to_owned(),
            path: path.clone(),
            fingerprint: fingerprint(&version, &flags, disassembler.is_some()),
            version: version.clone(),
            flags,
        },
        toolkit,
        arch: search.arch,
        host_compiler: host.to_path_buf(),
        disassembler,
    };

    let compilers = [Path::new(&nvcc.toolchain.path), &nvcc.host_compiler];
    let proof = Proof::of(search.proofs, &compilers, &[&nvcc.toolchain.fingerprint, NIGHTSHIFT_H, PROBE]);
    if proof.as_ref().is_some_and(Proof::is_kept) {
        return Ok(nvcc);
    }
    for (name, text) in [("nightshift.h", NIGHTSHIFT_H), ("probe.cu", PROBE)] {
        std::fs::write(folder.path().join(name), text).map_err(unusable)?;
    }
    std::fs::create_dir(folder.path().join(command::KEPT)).map_err(unusable)?;
    let not_started = |source| NvccError::NotStarted { program: path.clone(), source };
    let built =
        run(&command::command(&nvcc, "probe.cu", folder.path(), PROBE_TIMEOUT_MS, Vec::new())).map_err(not_started)?;
    if built.end == ProcessEnd::Finished {
        if let Some(proof) = proof {
            proof.keep();
        }
        return Ok(nvcc);
    }
    let output = [built.stdout.as_slice(), built.stderr.as_slice()].concat();
    let output = String::from_utf8_lossy(&output).into_owned();
    let folder = folder.path().display().to_string();
    let said = messages(&output, &Context { file: "probe.cu", source: PROBE, ptx: None, folder: &folder });
    let reason = said.into_iter().next().map_or_else(|| built.end.describe(), |message| message.message);
    Err(if output.contains("unsupported GNU version") || output.contains("unsupported clang version") {
        NvccError::HostCompilerRefused { program: path, version, host: host_version, reason }
    } else if output.contains("Unsupported gpu architecture") {
        NvccError::ArchUnsupported { program: path, version, arch: search.arch.to_string(), reason }
    } else if ["No such file or directory", "cannot find -l", "Unsupported .version"]
        .iter()
        .any(|sign| output.contains(sign))
    {
        NvccError::Incomplete { program: path, reason }
    } else {
        broken(reason)
    })
}

fn version_report(program: &Path, scratch: &Path, run: &Run<'_>) -> Result<String, NvccError> {
    let path = || program.display().to_string();
    let command = JailedCommand {
        program: program.to_path_buf(),
        args: vec![OsString::from("--version")],
        read_only: readable_folders(program),
        scratch: scratch.to_path_buf(),
        env: vec![("LC_ALL".to_owned(), "C".to_owned())],
        limits: VERSION_LIMITS,
    };
    let ask = || run(&command).map_err(|source| NvccError::NotStarted { program: path(), source });
    let mut result = ask()?;
    if matches!(result.end, ProcessEnd::TimedOut { .. }) {
        // The first start may read the program from a slow disk. A worker searches for its compiler only once, so this asks again.
        result = ask()?;
    }
    if result.end != ProcessEnd::Finished {
        let reason = format!("`--version` gave no version: {}", result.end.describe());
        return Err(NvccError::Broken { program: path(), reason });
    }
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

/// Equal on every machine that has the same compilers and builds for the same architecture, wherever they are
/// installed: libraries of one then run on the other.
fn fingerprint(version: &str, flags: &[String], disassembles: bool) -> String {
    let mut hasher = blake3::Hasher::new();
    let disassembles = if disassembles { "disassembles" } else { "" };
    for part in [version, disassembles].into_iter().chain(flags.iter().map(String::as_str)) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
