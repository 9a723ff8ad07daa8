//! `nightshift doctor --install-nvcc`: the CUDA compiler for a machine that has no toolkit.

use nightshift_protocol::error::ExitCode;
use nightshift_toolchain::nvcc::install::{Installation, Installed, install};
use nightshift_toolchain::nvcc::pins::LEAST_DRIVER;
use serde_json::json;

use super::nvcc;
use crate::args::Doctor;
use crate::compose;
use crate::context::Context;
use crate::failure::{Failure, Result};

pub(super) async fn run(context: &Context, args: Doctor) -> Result<ExitCode> {
    let output = context.output;
    let mut config = compose::worker_config(context, "http://127.0.0.1:0", None, true, None)?;
    let folder = args.folder.unwrap_or_else(|| compose::nvcc_folder(context));
    let folder = std::path::absolute(&folder).map_err(|error| {
        Failure::new("toolchain.install_io", format!("{} is no usable path: {error}", folder.display()))
    })?;
    let cancel = context.cancel_on_interrupt();
    let installed = {
        let (folder, search_path) = (folder.clone(), config.search_path.clone());
        tokio::task::spawn_blocking(move || {
            let (folder, search_path, cancel) = (&folder, &search_path, &cancel);
            let installation = Installation { folder, with_cublas: args.with_cublas, search_path, cancel };
            install(&installation, &|what| output.note(what))
        })
        .await
        .map_err(|error| Failure::new("internal.doctor", format!("the installation broke down: {error}")))?
        .map_err(|error| Failure::new(error.code(), compose::describe(&error)))?
    };

    // It counts as installed when it compiles.
    let program = installed.program_folder().join("nvcc");
    config.nvcc.nvcc = Some(program.display().to_string());
    let found = tokio::task::spawn_blocking(move || nvcc::find(&config))
        .await
        .map_err(|error| Failure::new("internal.doctor", format!("the installation broke down: {error}")))?
        .map_err(|error| Failure::new(error.code(), compose::describe(&error)))?;
    let was_there = matches!(installed, Installed::Before(_));
    if output.is_json() {
        output.json(&json!({
            "nvcc": found.toolchain().path,
            "version": found.toolchain().version,
            "arch": found.arch().to_string(),
            "installed_before": was_there,
        }))?;
        return Ok(ExitCode::Ok);
    }
    let when = if was_there { "was installed before" } else { "is installed" };
    output.text(&format!("{} {when}: {}", found.toolchain().version, found.toolchain().path))?;
    output.text(&format!(
        "it builds for {} here; what it builds runs with drivers from {LEAST_DRIVER} on",
        found.arch()
    ))?;
    if folder != compose::nvcc_folder(context) {
        output.text(&format!("tell workers of it: worker.nvcc = \"{}\"", program.display()))?;
    }
    Ok(ExitCode::Ok)
}
