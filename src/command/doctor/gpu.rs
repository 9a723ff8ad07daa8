//! The GPU and its tools: needed for the `cuda` target only.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nightshift_worker::gpu::{ChildProber, Prober};
use nightshift_worker::process::{CancelFlag, JailHost, JailedCommand, Limits, SandboxChoice, run_jailed};

use super::{Check, gpu_devices, nvcc};
use crate::compose;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Where the tools are installed when `PATH` does not name them.
const USUAL_FOLDERS: [&str; 3] =
    ["/usr/local/cuda/bin", "/opt/nvidia/nsight-systems/bin", "/opt/nvidia/nsight-compute"];
/// Number of the capability that opens the counters whatever the driver's setting is.
const CAP_SYS_ADMIN: u32 = 21;
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
    let config = compose::worker_config(context, "http://127.0.0.1:0", None, true, None)?;
    let gpus = config.gpus.clone();
    let (tools, devices) = tokio::task::spawn_blocking(move || {
        let prober: Arc<dyn Prober> = Arc::new(ChildProber::new(executable.clone()));
        let tools =
            [("nsys", "records timelines: Nsight Systems"), ("ncu", "reads the GPU's counters: Nsight Compute")]
                .map(|(tool, purpose)| tool_check(&executable, &path, tool, purpose));
        let mut devices = gpu_devices::checks(Path::new("/"), &gpus, &prober);
        let nvcc = nvcc::check(&config);
        devices.extend(gpu_devices::toolkit_against_driver(&nvcc.found, &gpus));
        devices.push(nvcc);
        (tools, devices)
    })
    .await
    .map_err(|error| Failure::new("internal.doctor", format!("a check broke down: {error}")))?;
    let mut checks = devices;
    checks.extend(tools);
    checks.push(permission(Path::new("/")));
    Ok(checks)
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
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    if is_administrator(&status) {
        return Check::ok(name, "this process may read the GPU's counters: it is an administrator's");
    }
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

/// Whether the effective capabilities, as the kernel lists them, have what the driver asks for.
fn is_administrator(status: &str) -> bool {
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    capabilities.is_some_and(|capabilities| capabilities >> CAP_SYS_ADMIN & 1 == 1)
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
    fn restricted_counters_are_a_warning_with_the_option_to_set() {
        let closed = root(&[("proc/driver/nvidia/params", "ResmanDebugLevel: 1\nRmProfilingAdminOnly: 1\n")]);
        let check = permission(closed.path());
        assert_eq!(check.state, State::Warning);
        assert!(check.advice.unwrap().contains("NVreg_RestrictProfilingToAdminUsers"));
        let administrator = root(&[
            ("proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n"),
            ("proc/self/status", "Name:\tnightshift\nCapEff:\t000001ffffffffff\n"),
        ]);
        assert_eq!(permission(administrator.path()).state, State::Ok);
        let open = root(&[("proc/driver/nvidia/params", "RmProfilingAdminOnly: 0\n")]);
        assert_eq!(permission(open.path()).state, State::Ok);
    }
}
