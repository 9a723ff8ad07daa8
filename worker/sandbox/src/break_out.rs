//! The probe's side of the sandbox's test: tries to break out and prints what worked.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, getpid, getppid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::limits::{DRIVER_THREADS, SANDBOX_PROCESSES};
use crate::plan::ProbePlan;
use crate::procfs;

/// How long the probe waits for a connection.
const CONNECT_LIMIT: Duration = Duration::from_millis(300);

/// Settings of the kernel that root may write. Opening them for writing changes nothing.
const SETTINGS: [&str; 4] =
    ["/proc/sys/kernel/hostname", "/proc/sys/vm/swappiness", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"];

/// Threads that the probe tries to start beyond its limit.
const EXTRA_THREADS: u64 = 8;

/// Stack of such a thread in bytes.
const STACK_BYTES: usize = 64 * 1024;

/// What the probe could do. Each `true` is a hole.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "attempts succeed independently of each other")]
pub(crate) struct ProbeOutcome {
    /// It read the secret.
    pub(crate) read_secret: bool,
    /// It connected to the worker's port.
    pub(crate) connected: bool,
    /// It opened a setting of the kernel for writing.
    pub(crate) wrote_settings: bool,
    /// It could signal the worker.
    pub(crate) signalled_worker: bool,
    /// It read about a process outside.
    pub(crate) saw_processes: bool,
    /// It started more processes than its limit.
    pub(crate) exceeded_processes: bool,
}

/// Tries everything and prints the outcome.
pub(crate) fn try_to_break_out(plan: &ProbePlan) -> Result<(), String> {
    std::fs::write(&plan.own_file, "").map_err(|error| format!("writing to the scratch folder: {error}"))?;
    // The worker finds out whether that worked: the path may be one of a private root.
    let _ = std::fs::write(&plan.outside, "here");
    let outcome = ProbeOutcome {
        read_secret: reads(&plan.secret),
        connected: TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, plan.port)), CONNECT_LIMIT)
            .is_ok(),
        wrote_settings: SETTINGS.iter().any(|path| OpenOptions::new().write(true).open(path).is_ok()),
        signalled_worker: can_signal(plan.worker),
        saw_processes: sees_others(),
        exceeded_processes: exceeds(plan.processes),
    };
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, &outcome).map_err(|error| error.to_string())?;
    stdout.flush().map_err(|error| error.to_string())
}

fn reads(path: &Path) -> bool {
    let mut text = String::new();
    std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)).is_ok()
}

/// Returns whether the worker can be signalled. In a process namespace its number may be the probe's own or that of init.
fn can_signal(worker: i32) -> bool {
    let own = [Some(getpid()), getppid()].into_iter().flatten();
    let names_own = own.into_iter().any(|pid| pid.as_raw_nonzero().get() == worker);
    !names_own && Pid::from_raw(worker).is_some_and(|worker| test_kill_process(worker).is_ok())
}

/// Returns whether `/proc` shows a process that is neither the probe nor init.
fn sees_others() -> bool {
    let own: Vec<i32> =
        [Some(getpid()), getppid()].into_iter().flatten().map(|pid| pid.as_raw_nonzero().get()).collect();
    let table = Path::new(procfs::PROC);
    procfs::processes(table).any(|pid| !own.contains(&pid) && procfs::stat(table, pid).is_some())
}

/// Returns whether more threads can be started than a limit on processes allows.
fn exceeds(limit: u64) -> bool {
    let wanted = limit + SANDBOX_PROCESSES + DRIVER_THREADS + EXTRA_THREADS;
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let start = || {
        let wait = std::sync::Arc::clone(&wait);
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // The first thread waits for the end of the channel, the others for the lock.
            let _ = wait.lock().map(|wait| wait.recv());
        })
    };
    let mut threads = Vec::new();
    let exceeded = (0..wanted).all(|_| start().map(|thread| threads.push(thread)).is_ok());
    drop(release);
    for thread in threads {
        let _ = thread.join();
    }
    exceeded
}
