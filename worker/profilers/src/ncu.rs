//! Nsight Compute in front of a program: the hardware counters of the kernels that matter.

mod csv;
mod kernels;
mod metrics;

use std::ffi::OsString;
use std::path::Path;

use nightshift_protocol::needs::ComputeCapability;
use nightshift_protocol::profile::{KernelProfile, TierPurpose, TierReport};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::verdict::ProcessEnd;

use self::csv::Launch;
use super::replay::{Replay, read_plain_file};
use super::tier::{self, ToolFailure};
use super::tools::Profilers;
use super::traced::Traced;
use nightshift_sandbox::process::{Limits, ProcessResult};

/// Calls of the program before the one whose kernels are profiled.
const WARMUPS: u32 = 1;

/// Calls that are profiled. One is enough: the tool repeats every kernel by itself, once for each group of counters.
const CALLS: u32 = 1;

/// Kernels that are profiled, by name: those with the largest share of time.
const MAX_KERNELS: usize = 4;

/// Share of the time after which the remaining kernels do not matter.
const ENOUGH_SHARE: f64 = 0.95;

/// Maximum number of launches that are profiled. Each one is repeated some ten times.
const MAX_LAUNCHES: usize = 12;

/// Maximum length of a kernel name in the tool's filter.
const MAX_NAME_BYTES: usize = 256;

/// Limits of one profile, beside that of its time.
const LIMITS: Limits = Limits {
    wall_ms: 0,
    cpu_s: 90,
    memory_bytes: 64 << 30,
    file_bytes: 256 << 20,
    processes: 512,
    output_bytes: 1 << 20,
};

/// Maximum number of bytes of a log that are read.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// File in which the tool writes its table.
const LOG: &str = "kernels.csv";

/// The tool's message for an unknown metric.
const UNKNOWN_METRIC: &str = "Failed to find metric";

/// Profiles the kernels that matter. The tier says how it went.
pub(super) fn count(
    profilers: &Profilers,
    replay: &Replay<'_>,
    traced: Option<&Traced>,
    capability: Option<ComputeCapability>,
) -> Result<(TierReport, Vec<KernelProfile>), StepFailure> {
    let tool = match &profilers.ncu {
        Ok(tool) => tool,
        Err(missing) => return Ok((tier::missing(TierPurpose::Kernels, "ncu", missing), Vec::new())),
    };
    let mut report = tier::used(TierPurpose::Kernels, "ncu", &tool.version);
    if replay.in_python {
        let reason = "files of Python are not profiled by it: PyTorch takes minutes to load under its eyes";
        return Ok((tier::failed(report, ToolFailure::plain(reason)), Vec::new()));
    }
    let selection = match traced {
        Some(traced) if traced.timeline.kernels.is_empty() => {
            let reason = "the program started no kernels on the device";
            return Ok((tier::failed(report, ToolFailure::plain(reason)), Vec::new()));
        }
        Some(traced) => select(traced),
        None => Selection { names: Vec::new(), launches: MAX_LAUNCHES },
    };
    let (mut wall_ms, limit_ms) = (0, profilers.limits.ncu_ms);
    let mut lists = metrics::lists(capability).into_iter().peekable();
    while let Some(list) = lists.next() {
        let folder = replay.folder("ncu")?;
        let limits = Limits { wall_ms: limit_ms.saturating_sub(wall_ms), ..LIMITS };
        let args = arguments(folder.path(), replay, &selection, &list);
        let result = match replay.run_tool(tool, args, folder.path(), limits)? {
            Ok(result) => result,
            Err(reason) => return Ok((tier::failed(report, ToolFailure::plain(reason)), Vec::new())),
        };
        wall_ms = result.wall_ms.saturating_add(wall_ms);
        report.wall_ms = Some(wall_ms);
        let log = read_plain_file(&folder.path().join(LOG), MAX_LOG_BYTES);
        let printed = format!("{log}\n{}\n{}", lossy(&result.stdout), lossy(&result.stderr));
        if printed.contains(UNKNOWN_METRIC) && lists.peek().is_some() && wall_ms < limit_ms {
            continue;
        }
        let launches = csv::parse(&log);
        if launches.iter().all(|launch| launch.values.is_empty()) {
            return Ok((tier::failed(report, trouble(&result, &printed)), Vec::new()));
        }
        report.reason = caution(&result, &selection, &launches);
        return Ok((report, kernels::profiles(&launches, traced.map(|traced| &traced.timeline))));
    }
    Ok((tier::failed(report, ToolFailure::plain("it knows none of the metrics that were asked for")), Vec::new()))
}

/// The profiled kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Selection {
    /// Kernels by name, without parameters; all of them when there are none.
    names: Vec<String>,
    /// So many launches.
    launches: usize,
}

/// The few kernels with most of the time, and so many launches that each of them is among them.
fn select(traced: &Traced) -> Selection {
    let mut covered = 0.0;
    let mut names: Vec<String> = Vec::new();
    for kernel in &traced.timeline.kernels {
        if names.len() == MAX_KERNELS || covered >= ENOUGH_SHARE {
            break;
        }
        covered += kernel.share;
        let short = traced.launched.iter().find(|(name, _)| *name == kernel.name).map(|(_, short)| short);
        if let Some(short) = short.filter(|short| short.len() <= MAX_NAME_BYTES && !names.contains(short)) {
            names.push(short.clone());
        }
    }
    let matching = || traced.launched.iter().map(|(_, short)| short).filter(|short| names.contains(short));
    let mut waited_for: Vec<&String> = names.iter().collect();
    let mut launches = 0;
    for short in matching() {
        launches += 1;
        waited_for.retain(|name| *name != short);
        if waited_for.is_empty() {
            break;
        }
    }
    Selection { names, launches: launches.clamp(1, MAX_LAUNCHES) }
}

fn arguments(folder: &Path, replay: &Replay<'_>, selection: &Selection, metrics: &[&str]) -> Vec<OsString> {
    let mut args: Vec<OsString> = [
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        // The clocks stay as they are: measurements of others run on the same settings.
        "--clock-control",
        "none",
        "--cache-control",
        "all",
        "--replay-mode",
        "kernel",
        "--target-processes",
        "all",
        // Only what lies between the marks of the replay.
        "--profile-from-start",
        "off",
    ]
    .map(OsString::from)
    .to_vec();
    if !selection.names.is_empty() {
        let names: Vec<String> = selection.names.iter().map(|name| escaped(name)).collect();
        args.push("--kernel-name".into());
        args.push(format!("regex:^({})$", names.join("|")).into());
    }
    args.extend(["--launch-count".into(), selection.launches.to_string().into()]);
    args.extend(["--metrics".into(), metrics.join(",").into()]);
    args.extend(["--log-file".into(), folder.join(LOG).into()]);
    args.extend(replay.command(WARMUPS, CALLS));
    args
}

/// A name as a pattern that matches it alone.
fn escaped(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for character in name.chars() {
        if !character.is_alphanumeric() && character != '_' {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn trouble(result: &ProcessResult, printed: &str) -> ToolFailure {
    if printed.contains("No kernels were profiled") && tier::known_trouble(printed).is_none() {
        return ToolFailure::plain(format!(
            "no kernel ran in the call that was to be profiled ({})",
            result.end.describe()
        ));
    }
    tier::trouble(result, printed)
}

/// Returns the caveats of a usable result.
fn caution(result: &ProcessResult, selection: &Selection, launches: &[Launch]) -> Option<String> {
    let mut said = Vec::new();
    if result.end != ProcessEnd::Finished {
        said.push(format!("it did not end well ({})", result.end.describe()));
    }
    let unseen: Vec<&str> = selection
        .names
        .iter()
        .filter(|name| !launches.iter().any(|launch| kernels::bare_name(&launch.kernel) == name.as_str()))
        .map(String::as_str)
        .collect();
    if !unseen.is_empty() {
        said.push(format!("not among the {} profiled launches: {}", launches.len(), unseen.join(", ")));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
