//! The GPU and its tools: needed for the `cuda` target only.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nightshift_worker::process::{CancelFlag, JailHost, JailedCommand, Limits, SandboxChoice, run_jailed};

use super::Check;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Where the tools are installed when `PATH` does not name them.
const USUAL_FOLDERS: [&str; 3] =
    ["/usr/local/cuda/bin", "/opt/nvidia/nsight-systems/bin", "/opt/nvidia/nsight-compute"];
/// What a question for a version may use.
const LIMITS: Limits = Limits {
    wall_ms: 20_000,
    cpu_s: 20,
    memory_bytes: 8 << 30,
    file_bytes: 64 << 20,
    processes: 64,
    output_bytes: 64 * 1024,
};

pub(super) async fn checks(context: &Context) -> Result<Vec<Check>> {
    let path = context.environment.get("PATH").unwrap_or_default().to_owned();
    let executable = std::env::current_exe().map_err(|error| {
        Failure::new("worker.executable", format!("the path of this program is not known: {error}"))
    })?;
    let tools = tokio::task::spawn_blocking(move || {
        [
            ("nvcc", "compiles for the GPU: part of the CUDA toolkit"),
            ("nsys", "records timelines: Nsight Systems"),
            ("ncu", "reads the GPU's counters: Nsight Compute"),
        ]
        .map(|(tool, purpose)| tool_check(&executable, &path, tool, purpose))
    })
    .await
    .map_err(|error| Failure::new("internal.doctor", format!("a check broke down: {error}")))?;
    let mut checks = vec![driver(Path::new("/"))];
    checks.extend(tools);
    checks.push(permission(Path::new("/")));
    Ok(checks)
}

fn driver(root: &Path) -> Check {
    let version = std::fs::read_to_string(root.join("proc/driver/nvidia/version")).unwrap_or_default();
    let gpus = std::fs::read_dir(root.join("proc/driver/nvidia/gpus"))
        .map(|entries| {
            entries
                .filter_map(std::result::Result::ok)
                .filter_map(|entry| std::fs::read_to_string(entry.path().join("information")).ok())
                .filter_map(|text| {
                    text.lines().find_map(|line| line.strip_prefix("Model:").map(|model| model.trim().to_owned()))
                })
                .collect::<Vec<_>>()
        })
        .unwrap_or_default();
    match version.lines().next() {
        Some(line) if !gpus.is_empty() => Check::ok("GPU", format!("{}; {}", gpus.join(", "), line.trim())),
        Some(line) => Check::warning("GPU", format!("a driver, but no GPU: {}", line.trim()), "is one visible here?"),
        None => Check::warning(
            "GPU",
            "no NVIDIA driver",
            "needed for the `cuda` target only; the `cpu` target and the demo need none",
        ),
    }
}

fn tool_check(executable: &Path, path: &str, tool: &str, purpose: &str) -> Check {
    let folders = std::env::split_paths(path).chain(USUAL_FOLDERS.iter().map(PathBuf::from));
    let Some(program) = folders.map(|folder| folder.join(tool)).find(|candidate| candidate.is_file()) else {
        return Check::warning(tool, "not found", format!("needed for the `cuda` target only; {purpose}"));
    };
    match version(executable, &program) {
        Ok(version) => Check::ok(tool, format!("{version} ({})", program.display())),
        Err(reason) => Check::warning(
            tool,
            format!("{} does not say its version: {reason}", program.display()),
            "is the installation complete?",
        ),
    }
}

/// The line of its answer that names the version, asked in a jail as every program is.
fn version(executable: &Path, program: &Path) -> std::result::Result<String, String> {
    let program = program.canonicalize().map_err(|error| error.to_string())?;
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let host = JailHost { executable: executable.to_path_buf(), means: SandboxChoice::Best };
    // Launch scripts look for their program a few folders up.
    let installation = program.ancestors().nth(3).filter(|folder| folder.components().count() > 1);
    let command = JailedCommand {
        read_only: installation.into_iter().map(Path::to_path_buf).collect(),
        program: program.clone(),
        args: vec![OsString::from("--version")],
        scratch: scratch.path().to_path_buf(),
        env: Vec::new(),
        limits: LIMITS,
    };
    let result = run_jailed(&host, &command, &CancelFlag::default()).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&result.stdout).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines
        .iter()
        .find(|line| line.contains("release") || line.to_ascii_lowercase().contains("version"))
        .or(lines.first())
        .map(|line| (*line).to_owned())
        .ok_or_else(|| result.end.describe())
}

fn permission(root: &Path) -> Check {
    let name = "profiling permission";
    let Ok(parameters) = std::fs::read_to_string(root.join("proc/driver/nvidia/params")) else {
        return Check::warning(name, "no NVIDIA driver", "needed for the `cuda` target only");
    };
    let restricted = parameters.lines().any(|line| {
        line.split_once(':').is_some_and(|(key, value)| key.trim() == "RmProfilingAdminOnly" && value.trim() == "1")
    });
    if restricted {
        Check::warning(
            name,
            "the GPU's counters are for administrators only",
            "profiles fall back to timelines; set the module option NVreg_RestrictProfilingToAdminUsers=0 of `nvidia` \
             and reboot, or give the container CAP_SYS_ADMIN",
        )
    } else {
        Check::ok(name, "the GPU's counters are open to everyone")
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::State;
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_machine_without_a_driver_is_told_that_it_needs_none_for_the_demo() {
        let root = root(&[]);
        let check = driver(root.path());
        assert_eq!(check.state, State::Warning);
        assert!(!check.blocks_demo);
    }

    #[test]
    fn a_gpu_is_named_with_its_driver() {
        let root = root(&[
            ("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX  570.1\nGCC version: 12\n"),
            ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\n"),
        ]);
        let check = driver(root.path());
        assert_eq!(check.state, State::Ok);
        assert!(check.found.contains("NVIDIA H200") && check.found.contains("570.1"), "{}", check.found);
    }

    #[test]
    fn restricted_counters_are_a_warning_with_the_option_to_set() {
        let closed = root(&[("proc/driver/nvidia/params", "ResmanDebugLevel: 1\nRmProfilingAdminOnly: 1\n")]);
        let check = permission(closed.path());
        assert_eq!(check.state, State::Warning);
        assert!(check.advice.unwrap().contains("NVreg_RestrictProfilingToAdminUsers"));
        let open = root(&[("proc/driver/nvidia/params", "RmProfilingAdminOnly: 0\n")]);
        assert_eq!(permission(open.path()).state, State::Ok);
    }
}
