//! Processor, compiler, PyTorch.

use nightshift_sandbox::process::CancelFlag;
use nightshift_toolchain::{machine, python, toolchain};
use nightshift_worker::execute::find_cpp_toolchain;
use nightshift_worker::lease::WorkerConfig;

use super::{Check, sandbox};
use crate::compose;
use crate::context::Context;
use crate::failure::{Failure, Result};

pub(super) async fn checks(context: &Context) -> Result<Vec<Check>> {
    let config = compose::worker_config(context, "http://127.0.0.1:0", None, true, None)?;
    let mut checks = vec![hardware()];
    // Children die with the thread that starts them, so all of it stays on one thread.
    let more = tokio::task::spawn_blocking(move || {
        let mut checks = vec![compiler(&config)];
        checks.extend(sandbox::checks(&config.executable, &config.scratch_dir));
        checks.push(python(&config));
        checks
    })
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

fn python(config: &WorkerConfig) -> Check {
    let found = python::find(config.python.as_deref(), &config.search_path, &CancelFlag::default())
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
