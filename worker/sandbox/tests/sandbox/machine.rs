//! What this machine has, and other processes of this binary that lack it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::SandboxReport;
use nightshift_sandbox::probe;
use nightshift_sandbox::process::{CancelFlag, JailHost, SandboxChoice};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::{all, cleanup};

/// First argument of a process that runs one test without the capability to change its user.
pub(crate) const WITHOUT_SETUID: &str = "without-setuid";

/// First argument of a process that runs one test without cgroups.
pub(crate) const WITHOUT_CGROUPS: &str = "without-cgroups";

/// First argument of a worker that starts, runs one jail and ends.
pub(crate) const WORKER_START: &str = "worker-start";

/// First argument of a worker that a test kills.
pub(crate) const WORKER: &str = "worker";

/// The choices of means that isolate files on this machine.
pub(crate) fn choices() -> Vec<SandboxChoice> {
    let landlock = in_force(&REPORT, "landlock").then_some(SandboxChoice::Landlock);
    let namespaces = in_force(&REPORT, "mount_namespace").then_some(SandboxChoice::Namespaces);
    [Some(SandboxChoice::Best), landlock, namespaces].into_iter().flatten().collect()
}

/// What the probe reports about this machine.
pub(crate) static REPORT: LazyLock<SandboxReport> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    probe(&host(SandboxChoice::Best), folder.path(), &CancelFlag::default()).unwrap()
});

/// This binary as the sandboxed process.
pub(crate) fn host(means: SandboxChoice) -> JailHost {
    JailHost::new(std::env::current_exe().unwrap(), means)
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether a means was in force.
pub(crate) fn in_force(report: &SandboxReport, name: &str) -> bool {
    report.means.iter().any(|means| means.name == name && means.in_force)
}

/// Returns the detail of a means.
pub(crate) fn detail(report: &SandboxReport, name: &str) -> String {
    report.means.iter().find(|means| means.name == name).map(|means| means.detail.clone()).unwrap_or_default()
}

/// Needs nothing.
pub(crate) fn nothing() -> Option<String> {
    None
}

pub(crate) fn root() -> Option<String> {
    (!is_root()).then(|| "needs root".to_owned())
}

pub(crate) fn namespaces() -> Option<String> {
    missing("mount_namespace")
}

/// Needs Landlock.
pub(crate) fn landlock() -> Option<String> {
    missing("landlock")
}

/// Needs Landlock or a private root.
pub(crate) fn isolated_files() -> Option<String> {
    landlock().filter(|_| namespaces().is_some())
}

/// Needs root with the capability to mount.
pub(crate) fn administrator() -> Option<String> {
    let held = capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::SYS_ADMIN));
    root().or_else(|| (!held).then(|| "needs root with CAP_SYS_ADMIN".to_owned()))
}

/// Needs root with the capability to mount, and Landlock.
pub(crate) fn administrator_with_landlock() -> Option<String> {
    administrator().or_else(landlock)
}

/// Needs cgroups that can be frozen.
pub(crate) fn cgroups() -> Option<String> {
    let by = detail(&REPORT, "freeze");
    (!by.starts_with("cgroup"))
        .then(|| format!("needs cgroups that this process may create: {}", detail(&REPORT, "cgroup")))
}

/// Needs cgroups with the controllers of memory and processes.
pub(crate) fn controllers() -> Option<String> {
    missing("cgroup")
}

/// Needs a process without cgroups: this one, or one from which root can hide them.
pub(crate) fn no_cgroups() -> Option<String> {
    if cgroups().is_some() { None } else { administrator() }
}

/// Runs a test in a process without cgroups: this one where it has none, else another one.
pub(crate) fn run_without_cgroups(name: &str, test: impl FnOnce()) {
    if is_mode(WITHOUT_CGROUPS) || cgroups().is_some() {
        test();
    } else {
        run_mode(WITHOUT_CGROUPS, name);
    }
}

fn missing(name: &str) -> Option<String> {
    (!in_force(&REPORT, name)).then(|| format!("needs {name}: {}", detail(&REPORT, name)))
}

/// Runs the process that the arguments name; none when they name a test.
pub(crate) fn helper_main(args: &[OsString]) -> Option<ExitCode> {
    let mode = args.get(1)?.to_str()?;
    match mode {
        WORKER_START => {
            let _ = &*REPORT;
            return Some(ExitCode::SUCCESS);
        }
        WORKER => return Some(cleanup::worker_main(args.get(2..)?)),
        WITHOUT_SETUID => {
            let mut held = capabilities(None).unwrap();
            held.effective.remove(CapabilitySet::SETUID);
            set_capabilities(None, held).unwrap();
        }
        WITHOUT_CGROUPS => hide_cgroups(),
        _ => return None,
    }
    let name = args.get(2)?.to_str()?;
    let test = all().into_iter().find(|test| test.name == name)?;
    (test.run)();
    Some(ExitCode::SUCCESS)
}

/// Gives this process a mount namespace in which no cgroups are mounted.
fn hide_cgroups() {
    use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
    // SAFETY: this process has one thread, and the flag does not concern its descriptors.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    for line in mounts.lines().filter(|line| line.contains(" - cgroup2 ")) {
        unmount(line.split(' ').nth(4).unwrap(), UnmountFlags::DETACH).unwrap();
    }
}

/// Runs this binary in another mode, to its end. Returns what it printed.
pub(crate) fn run_mode(mode: &str, test: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "the process lacks what this one has")]
    let output =
        Command::new(std::env::current_exe().unwrap()).args([mode, test]).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{mode} {test}: {printed}");
    printed
}

/// Returns whether this process runs in a mode.
pub(crate) fn is_mode(mode: &str) -> bool {
    std::env::args().nth(1).as_deref() == Some(mode)
}

/// Waits, for a limited time, until a condition holds.
pub(crate) fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    condition()
}

/// Lists the processes whose command line contains a marker.
pub(crate) fn processes_with(marker: &str) -> Vec<i32> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_marker = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(marker)
    };
    numbers.filter(has_marker).collect()
}

/// A duration for `sleep` that no other process has.
pub(crate) fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("93.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a field of `/proc/PID/status`.
pub(crate) fn status_field(pid: i32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns the cgroup of a process in the hierarchy of version 2.
pub(crate) fn cgroup_of(pid: i32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

/// Returns the folder of a cgroup of version 2.
pub(crate) fn cgroup_folder(path: &str) -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).unwrap();
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next().unwrap(), fields.next().unwrap());
    Path::new(point).join(Path::new(path).strip_prefix(root).unwrap())
}
