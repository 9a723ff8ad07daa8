//! The worker of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::clock::Clock as _;
use nightshift_protocol::needs::Label;
use nightshift_server::{SpanExporter, SystemClock};
use nightshift_toolchain::nvcc::NvccChoice;
use nightshift_worker::Spans;
use nightshift_worker::gpu::{DeviceChoice, Gpus};
use nightshift_worker::lease::{self, Stop, WorkerConfig};
use secrecy::SecretString;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::describe;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// Where workers keep what they build, when neither configuration nor environment say it: below the data folder.
const CACHE_FOLDER: &str = "cache";
/// Where workers work, below their cache.
const SCRATCH_FOLDER: &str = "scratch";
/// Where a worker's token comes from, and how to get one.
const WORKER_TOKEN_HINT: &str = "give a worker's token as NIGHTSHIFT_SERVER__WORKER_TOKEN; an administrator makes one \
                                 with `nightshift token create NAME --role worker`";
/// What a worker is called in traces.
const SERVICE: &str = "nightshift-worker";
/// The CUDA compiler in the data folder.
const NVCC_FOLDER: &str = "nvcc";
/// How long a worker that was asked to end goes on with what it holds.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

/// What the worker is told at its start.
pub(crate) fn worker_config(
    context: &Context,
    server_url: &str,
    token: Option<SecretString>,
    embedded: bool,
    name: Option<String>,
) -> Result<WorkerConfig> {
    let section = &context.config().worker;
    let cache_dir = section.cache_dir.clone().unwrap_or_else(|| default_cache_dir(context));
    let executable = std::env::current_exe().map_err(|error| {
        Failure::new("worker.executable", format!("the path of this program is not known: {error}"))
    })?;
    Ok(WorkerConfig {
        server_url: server_url.to_owned(),
        token: token.unwrap_or_default(),
        name: name.or_else(|| section.name.clone()).unwrap_or_else(host_name),
        embedded,
        scratch_dir: cache_dir.join(SCRATCH_FOLDER),
        cache_dir,
        executable,
        cpp_compiler: section.cpp_compiler.clone(),
        nvcc: NvccChoice {
            nvcc: section.nvcc.clone(),
            arch: section.cuda_arch.clone(),
            install_folder: Some(nvcc_folder(context)),
        },
        python: section.python.clone(),
        hf_home: section.hf_home.clone(),
        cpu_slots: section.cpu_slots.unwrap_or_else(default_cpu_slots).max(1),
        labels: labels(section.labels.as_deref())?,
        search_path: context.environment.search_path(),
        drain_timeout: section.drain_timeout_s.map_or(DRAIN_TIMEOUT, Duration::from_secs),
        gpus: gpus(context, section.devices.as_deref())?,
        gpu_contexts: section.gpu_contexts,
        profilers: section.profilers.unwrap_or(true),
    })
}

/// Sends the spans of this process's worker until `ended`, and what is left then.
fn send_spans_to(endpoint: &str, worker: &str, ended: CancellationToken) -> Result<JoinHandle<()>> {
    let instance = format!("{worker} {}", std::process::id());
    let (exporter, sending) = SpanExporter::start(endpoint, SERVICE, env!("CARGO_PKG_VERSION"), &instance, ended)
        .map_err(|error| Failure::from(error.to_api_error()))?;
    let spans = Spans { sink: Arc::new(exporter), now: || SystemClock.now(), worker: worker.to_owned() };
    if nightshift_worker::send_spans(spans).is_err() {
        tracing::warn!("another worker of this process sends its spans already");
    }
    Ok(sending)
}

/// What is in force for keys that are not set, where it is one value.
pub(crate) fn defaults(context: &Context) -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("server.name", Value::from(host_name())),
        ("worker.name", Value::from(host_name())),
        ("worker.cpu_slots", Value::from(default_cpu_slots())),
        ("worker.cache_dir", Value::from(default_cache_dir(context).to_string_lossy())),
        ("worker.drain_timeout_s", Value::from(DRAIN_TIMEOUT.as_secs())),
        ("worker.profilers", Value::from(true)),
    ])
}

/// Where `doctor --install-nvcc` installs when no other folder is named, and where a worker looks.
pub(crate) fn nvcc_folder(context: &Context) -> PathBuf {
    context.config().data_dir.join(NVCC_FOLDER)
}

fn default_cache_dir(context: &Context) -> PathBuf {
    context.environment.default_cache_dir().unwrap_or_else(|| context.config().data_dir.join(CACHE_FOLDER))
}

fn labels(text: Option<&str>) -> Result<BTreeSet<Label>> {
    let parts = text.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty());
    let labels: std::result::Result<_, _> = parts.map(str::parse).collect();
    labels.map_err(|error| Failure::new("config.invalid", format!("`worker.labels`: {error}")))
}

/// The GPUs that this process may use.
fn gpus(context: &Context, listed: Option<&str>) -> Result<Gpus> {
    let visible = context.environment.even_empty("CUDA_VISIBLE_DEVICES");
    let choice = DeviceChoice::new(visible, listed)
        .map_err(|error| Failure::new("config.invalid", format!("`worker.devices`: {error}")))?;
    Ok(Gpus::open_with(&choice))
}

/// What to say when `worker.devices` names GPUs that this machine does not offer: the worker goes on without them.
pub(crate) fn missing_devices(context: &Context) -> Result<Option<String>> {
    let Some(listed) = context.config().worker.devices.as_deref() else { return Ok(None) };
    let all = gpus(context, None)?;
    let present: Vec<(u32, String)> = all.facts().into_iter().map(|gpu| (gpu.index, gpu.uuid)).collect();
    let missing = unmatched(listed, &present);
    if missing.is_empty() {
        return Ok(None);
    }
    let there = if let Some(absence) = all.absence() {
        format!("no GPU at all can be used here ({absence})")
    } else {
        let named: Vec<String> = present.iter().map(|(index, uuid)| format!("{index} ({uuid})")).collect();
        format!("this machine has {}", named.join(", "))
    };
    let left = if missing.len() < parts(listed).count() {
        "the worker uses the others"
    } else {
        "the worker builds programs and runs none on a GPU"
    };
    Ok(Some(format!("no such device: {}, as --devices or worker.devices says; {there}; {left}", missing.join(", "))))
}

fn parts(listed: &str) -> impl Iterator<Item = &str> {
    listed.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// The parts of a list of devices that fit none of these: by number, by number of the GPU and of an instance, or by the
/// beginning of the name.
fn unmatched<'a>(listed: &'a str, present: &[(u32, String)]) -> Vec<&'a str> {
    let is_there = |part: &str| match part.split(':').next().map(str::parse::<u32>) {
        Some(Ok(number)) => present.iter().any(|(index, _)| *index == number),
        _ => present.iter().any(|(_, uuid)| uuid.starts_with(part)),
    };
    parts(listed).filter(|part| !is_there(part)).collect()
}

/// All cores but one: builds should not share the core that is measured.
fn default_cpu_slots() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
    cores.saturating_sub(1).max(1)
}

/// Name of this machine.
pub(super) fn host_name() -> String {
    nightshift_toolchain::machine::this_hardware().host
}

/// Works until it is stopped, or until it cannot go on. With `otlp_endpoint`, it sends its part of each run's trace there.
pub(crate) async fn work(config: WorkerConfig, stop: Stop, otlp_endpoint: Option<&str>) -> Result<()> {
    let ended = CancellationToken::new();
    let sending = otlp_endpoint.map(|endpoint| send_spans_to(endpoint, &config.name, ended.clone())).transpose()?;
    let worked = lease::run(config, stop).await;
    ended.cancel();
    if let Some(sending) = sending {
        // It ends by itself within its own limits; how it ended changes nothing about the work.
        let _ = sending.await;
    }
    worked.map_err(|error| {
        let failure = Failure::new(error.code(), describe(&error));
        match failure.error.code.as_str() {
            "auth.required" | "auth.wrong_token" | "access.role_needed" => failure.hint(WORKER_TOKEN_HINT),
            _ => failure,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_are_not_there_are_told_from_those_that_are() {
        let present = [(0, "GPU-8f2c41".to_owned()), (1, "MIG-41ab".to_owned())];
        assert_eq!(unmatched("0, GPU-8f2c, 1:3, MIG-41ab", &present), Vec::<&str>::new());
        assert_eq!(unmatched("5, 0, GPU-77, 2:0,", &present), ["5", "GPU-77", "2:0"]);
        assert_eq!(unmatched("0", &[]), ["0"]);
    }
}
