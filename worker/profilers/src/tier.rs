//! Which tools a profile is made of, and why others are not.

use nightshift_protocol::profile::{TierPurpose, TierReport};
use nightshift_protocol::verdict::ProcessEnd;

use super::tool::MissingTool;
use nightshift_sandbox::process::ProcessResult;

/// Maximum length of a quoted line of a tool, in characters.
const MAX_QUOTED_CHARS: usize = 600;
/// Lines of a tool that are repeated when none of them names an error.
const MAX_QUOTED_LINES: usize = 4;

/// The failure of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolFailure {
    /// Stable code.
    pub(super) code: &'static str,
    /// Reason, for people.
    pub(super) reason: String,
    /// Remedy for an operator.
    pub(super) remedy: Option<String>,
}

impl ToolFailure {
    pub(super) fn plain(reason: impl Into<String>) -> Self {
        Self { code: "profile.tool_failed", reason: reason.into(), remedy: None }
    }
}

pub(super) fn used(purpose: TierPurpose, tool: &str, version: &str) -> TierReport {
    let version = (!version.is_empty()).then(|| version.to_owned());
    TierReport { version, used: true, ..unused(purpose, tool) }
}

pub(super) fn missing(purpose: TierPurpose, tool: &str, missing: &MissingTool) -> TierReport {
    TierReport {
        code: Some("profile.tool_missing".to_owned()),
        reason: Some(missing.reason.clone()),
        remedy: Some(missing.remedy.clone()),
        ..unused(purpose, tool)
    }
}

pub(super) fn unused(purpose: TierPurpose, tool: &str) -> TierReport {
    TierReport {
        purpose,
        tool: tool.to_owned(),
        version: None,
        used: false,
        code: None,
        reason: None,
        remedy: None,
        wall_ms: None,
    }
}

pub(super) fn failed(report: TierReport, trouble: ToolFailure) -> TierReport {
    TierReport {
        used: false,
        code: Some(trouble.code.to_owned()),
        reason: Some(trouble.reason),
        remedy: trouble.remedy,
        ..report
    }
}

/// Explains the failure of a tool by its exit status and output.
pub(super) fn trouble(result: &ProcessResult, printed: &str) -> ToolFailure {
    if let Some(known) = known_trouble(printed) {
        return known;
    }
    match &result.end {
        ProcessEnd::TimedOut { limit_ms } => ToolFailure {
            code: "profile.tool_too_slow",
            reason: format!("it was still running after {limit_ms} ms, which is its limit, and was ended"),
            remedy: None,
        },
        ProcessEnd::Finished => ToolFailure::plain(match said(printed) {
            Some(line) => format!("it gave no result: {line}"),
            None => "it gave no result and said nothing".to_owned(),
        }),
        end => ToolFailure::plain(match said(printed) {
            Some(line) => format!("{}: {line}", end.describe()),
            None => end.describe(),
        }),
    }
}

/// Troubles that tools name and an operator can end.
pub(super) fn known_trouble(printed: &str) -> Option<ToolFailure> {
    let trouble = |code, reason: &str, remedy: &str| ToolFailure {
        code,
        reason: reason.to_owned(),
        remedy: Some(remedy.to_owned()),
    };
    if printed.contains("ERR_NVGPUCTRPERM") {
        return Some(trouble(
            "profile.counters_not_permitted",
            "the driver lets only administrators read the device's counters (ERR_NVGPUCTRPERM)",
            "load the driver with `options nvidia NVreg_RestrictProfilingToAdminUsers=0`, in a file in /etc/modprobe.d, and load \
             it anew or boot; `grep RmProfilingAdminOnly /proc/driver/nvidia/params` shows what is in force. A capability of \
             the worker does not help: the sandbox that the program runs in drops them all",
        ));
    }
    if printed.contains("LibraryNotLoaded") || printed.contains("Device not supported") {
        return Some(trouble(
            "profile.device_not_supported",
            "the tool cannot get at the device's counters and instrumentation here, which is so under gVisor and under some \
             virtual GPUs",
            "run the worker on the host itself, in an ordinary container or in a virtual machine that owns the device",
        ));
    }
    if printed.contains("ERR_NVCMPGPU") || printed.contains("is not supported on device") {
        return Some(trouble(
            "profile.device_not_supported",
            "the tool does not support this device",
            "install a version of the tool that knows the device",
        ));
    }
    None
}

/// What a tool said that says most: a line that names an error, else its last lines, and warnings only when there is nothing
/// else.
fn said(printed: &str) -> Option<String> {
    let lines = || printed.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().find(|line| line.contains("==ERROR==") || line.contains("Error:"));
    let line = line.or_else(|| lines().find(|line| line.to_ascii_lowercase().contains("error")));
    let said = line.map_or_else(
        || {
            let warnings = lines().all(|line| line.starts_with("Warning"));
            let kept: Vec<&str> = lines().filter(|line| warnings || !line.starts_with("Warning")).collect();
            kept.get(kept.len().saturating_sub(MAX_QUOTED_LINES)..).unwrap_or_default().join(" ")
        },
        str::to_owned,
    );
    (!said.is_empty()).then(|| said.chars().take(MAX_QUOTED_CHARS).collect())
}

#[cfg(test)]
mod tests;
