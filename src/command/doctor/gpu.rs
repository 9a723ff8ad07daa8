//! The GPU and its tools: needed for the `cuda` target only.

use std::path::Path;
use std::sync::Arc;

use nightshift_profilers::{MissingTool, Tool};
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{CancelFlag, JailHost, SandboxChoice};
use nightshift_toolchain::nvcc::Nvcc;
use nightshift_worker::execute::find_profilers;
use nightshift_worker::gpu::{ChildProber, Prober};
use nightshift_worker::lease::WorkerConfig;

use super::{Check, gpu_devices, nvcc};
use crate::compose;
use crate::context::Context;
use crate::failure::{Failure, Result};

pub(super) async fn checks(context: &Context) -> Result<Vec<Check>> {
    let executable = std::env::current_exe().map_err(|error| {
        Failure::new("worker.executable", format!("the path of this program is not known: {error}"))
    })?;
    let config = compose::worker_config(context, "http://127.0.0.1:0", None, true, None)?;
    let mut checks = tokio::task::spawn_blocking(move || {
        let prober: Arc<dyn Prober> = Arc::new(ChildProber::new(executable, config.device_locks()));
        let mut checks = gpu_devices::checks(Path::new("/"), &config.gpus, &prober);
        let compiler = nvcc::find(&config);
        let described = nvcc::check(&compiler, &config);
        checks.extend(gpu_devices::toolkit_against_driver(&described.found, &config.gpus));
        checks.push(described);
        checks.extend(tool_checks(&config, compiler.as_ref().ok()));
        checks
    })
    .await
    .map_err(|error| Failure::new("internal.doctor", format!("a check broke down: {error}")))?;
    checks.push(permission(Path::new("/")));
    Ok(checks)
}

/// The tools that look into programs, found and asked as a worker finds and asks them.
fn tool_checks(config: &WorkerConfig, compiler: Option<&Nvcc>) -> Vec<Check> {
    let scratch = temporary_folder(&std::env::temp_dir(), "nightshift-doctor-")
        .and_then(|folder| folder.path().canonicalize().map(|path| (folder, path)));
    let scratch = match scratch {
        Ok(scratch) => scratch,
        Err(error) => {
            let found = format!("a folder to try them in cannot be made: {error}");
            return vec![Check::warning("profilers", found, "set TMPDIR to a folder that can be written")];
        }
    };
    let jail = JailHost::new(config.executable.clone(), SandboxChoice::Best);
    let found = find_profilers(&jail, compiler, &config.search_path, &scratch.1, &CancelFlag::default());
    vec![
        tool_check("nsys", "records timelines", &found.nsys),
        tool_check("CUPTI", "records timelines where there is no nsys", &found.cupti),
        tool_check("ncu", "reads the GPU's counters", &found.ncu),
        tool_check("compute-sanitizer", "looks for errors of memory and for races", &found.compute_sanitizer),
    ]
}

fn tool_check(name: &str, purpose: &str, found: &std::result::Result<Tool, MissingTool>) -> Check {
    match found {
        Ok(tool) => Check::ok(name, format!("{} ({})", tool.version, tool.path.display())),
        Err(missing) => Check::warning(
            name,
            missing.reason.clone(),
            format!("needed for the `cuda` target only; {purpose}: {}", missing.remedy),
        ),
    }
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
             and reboot; a capability of the worker does not help: the sandbox drops them all",
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
    fn restricted_counters_are_a_warning_with_the_option_to_set() {
        let closed = root(&[("proc/driver/nvidia/params", "ResmanDebugLevel: 1\nRmProfilingAdminOnly: 1\n")]);
        let check = permission(closed.path());
        assert_eq!(check.state, State::Warning);
        let advice = check.advice.unwrap();
        assert!(advice.contains("NVreg_RestrictProfilingToAdminUsers") && advice.contains("does not help"), "{advice}");
        assert!(check.found.contains("administrators only"));
        let open = root(&[("proc/driver/nvidia/params", "RmProfilingAdminOnly: 0\n")]);
        assert_eq!(permission(open.path()).state, State::Ok);
    }

    #[test]
    fn a_tool_that_does_not_answer_is_a_warning_with_what_it_said() {
        let missing =
            MissingTool { reason: "it printed: no".to_owned(), remedy: "install it".to_owned(), did_not_answer: false };
        let check = tool_check("nsys", "records timelines", &Err(missing));
        assert_eq!((check.state, check.found.as_str()), (State::Warning, "it printed: no"));
        assert!(check.advice.unwrap().ends_with("records timelines: install it"));
    }
}
