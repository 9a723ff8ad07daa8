//! Starts attackers in jails and collects what they report.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::SandboxReport;
use nightshift_sandbox::process::{CancelFlag, Jail, JailHost, Limits, RawEnd, SandboxChoice};
use nightshift_sandbox::{DeviceAccess, HostedKind, HostedProcess, JailPlan, Work};
use tempfile::TempDir;

use crate::machine::host;

/// How long an attacker may take.
const LIMIT: Duration = Duration::from_mins(1);

/// What kind of process an attacker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Native,
    NativeOnDevice,
    Python,
    PythonOnDevice,
    Command,
    Tool,
}

/// All kinds in which this binary's own code attacks.
pub(crate) const HOSTED: [Kind; 4] = [Kind::Native, Kind::NativeOnDevice, Kind::Python, Kind::PythonOnDevice];

/// An attacker that has ended.
pub(crate) struct Ended {
    /// The lines that it printed.
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
    pub(crate) report: SandboxReport,
    pub(crate) end: Option<RawEnd>,
}

pub(crate) fn limits() -> Limits {
    Limits {
        wall_ms: 20_000,
        cpu_s: 20,
        memory_bytes: 1 << 30,
        file_bytes: 1 << 20,
        processes: 16,
        output_bytes: 256 * 1024,
    }
}

/// A GPU without nodes: its process gets what a process on a GPU gets, except the GPU.
pub(crate) fn device() -> DeviceAccess {
    DeviceAccess { visible: "GPU-none".to_owned(), nodes: Vec::new(), shared_nodes: None, library_folders: Vec::new() }
}

/// The plan of an attacker. `payload` is the name of its program with arguments, or a script for commands.
pub(crate) fn plan(kind: Kind, means: SandboxChoice, payload: &str, scratch: Option<&Path>) -> JailPlan {
    let hosted = |kind| Work::Hosted(HostedProcess { kind, core: None, shared_bytes: 0, payload: payload.to_owned() });
    let work = match kind {
        Kind::Native | Kind::NativeOnDevice => hosted(HostedKind::Native),
        Kind::Python | Kind::PythonOnDevice => hosted(HostedKind::Python),
        Kind::Command | Kind::Tool => Work::Command {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), payload.into()],
            env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        },
    };
    JailPlan {
        work,
        scratch: scratch.map(Path::to_path_buf),
        read_only: Vec::new(),
        limits: limits(),
        means,
        device: matches!(kind, Kind::NativeOnDevice | Kind::PythonOnDevice).then(device),
        as_tool: matches!(kind, Kind::Python | Kind::Tool),
    }
}

/// Starts an attacker and waits until it is restricted.
pub(crate) fn start(plan: &JailPlan, descriptors: &[BorrowedFd<'_>]) -> Jail {
    start_on(&host(plan.means), plan, descriptors)
}

/// Starts an attacker of this host and waits until it is restricted.
pub(crate) fn start_on(host: &JailHost, plan: &JailPlan, descriptors: &[BorrowedFd<'_>]) -> Jail {
    let mut jail = Jail::start(host, plan, descriptors, &CancelFlag::default()).unwrap();
    let deadline = Instant::now() + LIMIT;
    while jail.report.is_none() {
        assert!(Instant::now() < deadline && !jail.has_ended(), "it did not start: {:?}", jail.setup_error);
        jail.pump(Duration::from_millis(5), None).unwrap();
    }
    jail
}

/// Runs an attacker to its end.
pub(crate) fn run(plan: &JailPlan) -> Ended {
    let mut jail = start(plan, &[]);
    let deadline = Instant::now() + LIMIT;
    while !jail.has_ended() && Instant::now() < deadline {
        jail.pump(Duration::from_millis(5), None).unwrap();
    }
    jail.kill();
    assert_eq!(jail.setup_error, None);
    Ended {
        lines: lines(&jail.stdout.take()),
        stderr: String::from_utf8_lossy(&jail.stderr.take()).into_owned(),
        report: jail.report.clone().unwrap(),
        end: jail.ended,
    }
}

/// Runs an attacker of this kind to its end, with a scratch folder.
pub(crate) fn attack(kind: Kind, means: SandboxChoice, payload: &str) -> (Ended, TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().canonicalize().unwrap();
    // Loaded libraries without a GPU have no scratch folder.
    let folder = (kind != Kind::Native).then_some(folder);
    (run(&plan(kind, means, payload, folder.as_deref())), scratch)
}

pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}
