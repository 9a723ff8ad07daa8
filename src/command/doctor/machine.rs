//! Processor, compiler, sandbox, PyTorch.

use nightshift_protocol::machine::SandboxReport;
use nightshift_sandbox::process::{JailHost, SandboxChoice};
use nightshift_toolchain::{machine, python, toolchain};
use nightshift_worker::execute::find_cpp_toolchain;
use nightshift_worker::lease::WorkerConfig;

use super::Check;
use crate::compose;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// The sandbox keeps these from a program.
const MEANS_ADVICE: &str = "code of a live model is refused here; allow unprivileged user namespaces \
                            (sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0), \
                            use a kernel with Landlock (5.13 or later), or a container that permits either";

pub(super) async fn checks(context: &Context) -> Result<Vec<Check>> {
    let config = compose::worker_config(context, "http://127.0.0.1:0", None, true, None)?;
    let mut checks = vec![hardware()];
    // Children die with the thread that starts them, so all of it stays on one thread.
    let more = tokio::task::spawn_blocking(move || [compiler(&config), jail(&config), python(&config)])
        .await
        .map_err(|error| Failure::new("internal.doctor", format!("a check broke down: {error}")))?;
    checks.extend(more);
    checks.push(objdump());
    Ok(checks)
}

fn hardware() -> Check {
    let hardware = machine::this_hardware();
    let memory_gib = hardware.memory_bytes >> 30;
    Check::ok("machine", format!("{}, {} cores, {memory_gib} GiB; {}", hardware.processor, hardware.cores, hardware.os))
}

fn compiler(config: &WorkerConfig) -> Check {
    match find_cpp_toolchain(&config.executable, config.cpp_compiler.as_deref(), &config.scratch_dir) {
        Ok(found) => {
            Check::ok("C++ compiler", format!("{} ({}), {}", found.version, found.path, found.flags.join(" ")))
        }
        Err(error) => Check::problem(
            "C++ compiler",
            format!("{}: {}", error.code(), compose::describe(&error)),
            match config.cpp_compiler {
                Some(_) => "correct or remove worker.cpp_compiler; `nightshift config show` names where it was set",
                None => "install one (Debian and Ubuntu: apt-get install g++), or name one as worker.cpp_compiler",
            },
        ),
    }
}

fn jail(config: &WorkerConfig) -> Check {
    let host = JailHost { executable: config.executable.clone(), means: SandboxChoice::Best };
    match nightshift_sandbox::probe(&host) {
        Ok(report) if report.is_sufficient() => Check::ok("sandbox", describe(&report)),
        Ok(report) => Check::warning("sandbox", describe(&report), MEANS_ADVICE),
        Err(error) => Check::problem(
            "sandbox",
            compose::describe(&error),
            "programs cannot be started in a sandbox at all: is the binary complete, and is /tmp writable?",
        ),
    }
}

fn describe(report: &SandboxReport) -> String {
    let missing: Vec<String> = report
        .means
        .iter()
        .filter(|means| !means.in_force)
        .map(|means| format!("{} ({})", means.name, means.detail))
        .collect();
    let reach = match (report.isolates_files, report.isolates_network) {
        (true, true) => "files and network are out of reach",
        (true, false) => "the network is NOT out of reach",
        (false, true) => "files are NOT out of reach",
        (false, false) => "neither files nor network are out of reach",
    };
    let missing = if missing.is_empty() { String::new() } else { format!("; not in force: {}", missing.join(", ")) };
    format!("{reach}; in force: {}{missing}", report.summary())
}

fn python(config: &WorkerConfig) -> Check {
    let found = python::find(config.python.as_deref(), &config.search_path)
        .and_then(|found| config.hf_home.iter().try_fold(found, |found, folder| found.with_models(folder)));
    match found {
        Ok(found) => {
            let toolchain = found.toolchain();
            let models = found.models.map(|folder| format!("; fetched models in {}", folder.display()));
            Check::ok("PyTorch", format!("{} ({}){}", toolchain.version, toolchain.path, models.unwrap_or_default()))
        }
        Err(error) => Check::warning(
            "PyTorch",
            compose::describe(&error),
            "needed for tasks whose reference is a model of PyTorch only",
        ),
    }
}

fn objdump() -> Check {
    match toolchain::system_folders().iter().map(|folder| folder.join("objdump")).find(|path| path.is_file()) {
        Some(path) => Check::ok("objdump", path.display().to_string()),
        None => Check::warning(
            "objdump",
            "not found",
            "without it the compiler report has no instruction counts (Debian and Ubuntu: apt-get install binutils)",
        ),
    }
}
