//! Tests whether a GPU can be used, with a fresh process.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use nightshift_evaluator::lock::lock_driver_within;
use nightshift_protocol::machine::CudaFacts;
use nightshift_sandbox::DeviceAccess;
use nightshift_sandbox::process::{HelperEnd, run_helper_process};

use super::discovery::Gpu;
use super::probe::{Line, Stage};

/// Time limit of a probe. A new context waits on a busy GPU, and waits forever on a wedged one.
pub const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Driver errors that say nothing about the health of a device: memory in use by others, a missing library, or a driver
/// that is too old for this program.
const NOT_THE_DEVICE: [u32; 4] = [2, 3, 35, 36];
/// Driver errors of a lost device: unavailable, none, invalid, and a system that is not ready.
const GONE: [u32; 5] = [46, 79, 100, 101, 802];

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The device works.
    Healthy(CudaFacts),
    /// The device does not work.
    Faulty(DeviceFault),
    /// The probe failed for reasons that may not lie with the device.
    Unclear(String),
}

/// A fault of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFault {
    /// `gpu.lost` or `gpu.wedged`.
    pub code: &'static str,
    /// Observation for people.
    pub reason: String,
}

/// The device is missing.
pub const LOST: &str = "gpu.lost";
/// The device is present but does not finish any work.
pub const WEDGED: &str = "gpu.wedged";
/// The device was not probed yet.
pub const UNPROBED: &str = "gpu.unprobed";

/// A test of devices. Blocks.
pub trait Prober: Send + Sync + fmt::Debug + 'static {
    /// Tests a device.
    fn probe(&self, gpu: &Gpu) -> Health;
}

/// A prober that starts this binary again as a child process.
#[derive(Debug, Clone)]
pub struct ChildProber {
    executable: PathBuf,
    /// Folder of the locks of all devices.
    locks: PathBuf,
    limit: Duration,
}

impl ChildProber {
    /// Creates a prober. `executable` is this binary: its `main` calls [`nightshift_sandbox::process::child_main`] first. `locks` is
    /// the folder of [`WorkerConfig::device_locks`](crate::lease::WorkerConfig::device_locks).
    #[must_use]
    pub fn new(executable: PathBuf, locks: PathBuf) -> Self {
        Self { executable, locks, limit: PROBE_LIMIT }
    }

    /// Sets another time limit, of a probe and of the time before it.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl Prober for ChildProber {
    fn probe(&self, gpu: &Gpu) -> Health {
        // The probe uses the same isolation as steps, and reports what is missing.
        let access = DeviceAccess::find(&gpu.facts.uuid, gpu.minor).map(|access| access.environment());
        let environment = access.unwrap_or_else(|_| gpu.environment());
        // A context that begins delays what is timed. A step that hangs in a confirmation must not keep its device from a probe.
        let _driver = lock_driver_within(&self.locks.join(&gpu.facts.uuid), self.limit).or_else(|| {
            tracing::warn!(gpu.uuid = %gpu.facts.uuid, "a GPU is probed although its lock was not free in time");
            None
        });
        match run_helper_process(&self.executable, super::PROBE_ARGUMENT, &environment, self.limit) {
            Ok(end) => judge(&end, self.limit),
            Err(error) => Health::Unclear(format!("the probe could not be started: {error}")),
        }
    }
}

/// Judges a device by the output and the end of its probe.
fn judge(end: &HelperEnd, limit: Duration) -> Health {
    let text = String::from_utf8_lossy(&end.stdout);
    let lines: Vec<Line> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let at = lines.iter().rev().find_map(|line| match line {
        Line::At { stage } | Line::Failed { stage, .. } => Some(*stage),
        Line::Well(_) => None,
    });
    match lines.last() {
        Some(Line::Well(facts)) if !end.timed_out => Health::Healthy(*facts),
        Some(Line::Failed { stage, code, name }) if !end.timed_out => failed(*stage, *code, name),
        _ if end.survived_kill => Health::Faulty(DeviceFault {
            code: WEDGED,
            reason: format!("a test process hangs while {} and cannot be killed", doing(at)),
        }),
        _ if end.timed_out => Health::Faulty(DeviceFault {
            code: WEDGED,
            reason: format!("a test process was still {} after {} s", doing(at), limit.as_secs()),
        }),
        // Broken devices and broken installations can make the driver crash its process.
        Some(_) => {
            Health::Faulty(DeviceFault { code: WEDGED, reason: format!("a test process died while {}", doing(at)) })
        }
        None => Health::Unclear("the probe ended without a word".to_owned()),
    }
}

fn doing(stage: Option<Stage>) -> &'static str {
    stage.map_or("starting", Stage::describe)
}

fn failed(stage: Stage, code: u32, name: &str) -> Health {
    let seen = format!("{name} while {}", stage.describe());
    if stage == Stage::Load || NOT_THE_DEVICE.contains(&code) {
        return Health::Unclear(seen);
    }
    let code = if GONE.contains(&code) { LOST } else { WEDGED };
    Health::Faulty(DeviceFault { code, reason: format!("a fresh process gets {seen}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(lines: &[&str]) -> HelperEnd {
        let stdout = lines.join("\n").into_bytes();
        HelperEnd { stdout, status: Some(1), timed_out: false, survived_kill: false }
    }

    fn code(health: &Health) -> &str {
        match health {
            Health::Healthy(_) => "well",
            Health::Faulty(fault) => fault.code,
            Health::Unclear(_) => "unclear",
        }
    }

    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn a_probe_that_came_through_gives_facts() {
        let well = r#"{"line":"well","multiprocessors":132,"l2_bytes":62914560,"memory_clock_khz":null,"memory_bus_bits":6144}"#;
        let Health::Healthy(facts) = judge(&end(&[r#"{"line":"at","stage":"release"}"#, well]), LIMIT) else {
            panic!("it is well");
        };
        assert_eq!((facts.multiprocessors, facts.l2_bytes), (Some(132), Some(62_914_560)));
    }

    #[test]
    fn an_error_of_the_driver_in_a_fresh_context_is_an_illness() {
        for (number, expected) in [(46, LOST), (79, LOST), (100, LOST), (700, WEDGED), (719, WEDGED), (999, WEDGED)] {
            let line = format!(r#"{{"line":"failed","stage":"context","code":{number},"name":"CUDA_ERROR"}}"#);
            assert_eq!(code(&judge(&end(&[&line]), LIMIT)), expected, "{number}");
        }
    }

    #[test]
    fn memory_that_others_hold_and_a_missing_library_are_no_illness() {
        let full = r#"{"line":"failed","stage":"allocate","code":2,"name":"CUDA_ERROR_OUT_OF_MEMORY"}"#;
        let missing = r#"{"line":"failed","stage":"load","code":0,"name":"libcuda.so.1 cannot be loaded"}"#;
        for line in [full, missing, ""] {
            assert_eq!(code(&judge(&end(&[line]), LIMIT)), "unclear", "{line}");
        }
    }

    #[test]
    fn one_that_hangs_is_wedged_and_it_is_said_where() {
        let mut hanging = end(&[r#"{"line":"at","stage":"context"}"#]);
        hanging.timed_out = true;
        let Health::Faulty(fault) = judge(&hanging, LIMIT) else { panic!("it is ill") };
        assert_eq!((fault.code, fault.reason.contains("creating a context")), (WEDGED, true), "{}", fault.reason);
        hanging.survived_kill = true;
        let Health::Faulty(fault) = judge(&hanging, LIMIT) else { panic!("it is ill") };
        assert!(fault.reason.contains("cannot be killed"), "{}", fault.reason);
    }
}
