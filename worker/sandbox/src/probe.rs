//! Finds out what isolates programs on this machine, by trying to break out of a jail.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::{SandboxReport, UNPRIVILEGED_USER};

use crate::access::temporary_folder;
use crate::break_out::ProbeOutcome;
use crate::limits::Limits;
use crate::plan::{JailPlan, ProbePlan, Work};
use crate::process::{CancelFlag, Jail, JailHost, ProcessError, WATCH_INTERVAL};
use crate::report::{in_force, is_in_force, not_in_force};

/// Limits of the probe. It takes a tenth of a second, and longer on a machine that is busy with other work.
const LIMITS: Limits = Limits {
    wall_ms: 60_000,
    cpu_s: 5,
    memory_bytes: 4 << 30,
    file_bytes: 1 << 20,
    processes: 4,
    output_bytes: 16 * 1024,
};

/// Name of the entry that tells how `/proc` is protected.
const PROC_MEANS: &str = "proc";

/// Text of the file that the probe must not read.
const SECRET: &str = "out of reach";

/// What the attempts of one probe did, as the probe and the worker saw it.
#[derive(Debug, Default)]
struct Attempts {
    outcome: ProbeOutcome,
    wrote_outside: bool,
    is_root_outside: bool,
}

/// Reports what isolates programs on this machine, and which attempts to break out succeeded. What the kernel confirmed and
/// an attempt disproved counts as not isolated.
///
/// `scratch` is an existing folder, in which the probe gets a folder of its own. Two jails are probed: one of a compiler, and
/// one of a tool, which contains `/proc`. Blocks: call it from a dedicated thread.
pub fn probe(host: &JailHost, scratch: &Path, cancel: &CancelFlag) -> Result<SandboxReport, ProcessError> {
    let failed = |what: &'static str| move |source: std::io::Error| ProcessError::Os { what: what.to_owned(), source };
    let folder = temporary_folder(scratch, "probe-").map_err(failed("creating a folder for the probe"))?;
    let root = folder.path().canonicalize().map_err(failed("finding the folder of the probe"))?;
    let (secret, outside) = (root.join("secret"), root.join("outside"));
    std::fs::write(&secret, SECRET).map_err(failed("writing the secret of the probe"))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("listening for the probe"))?;
    let port = listener.local_addr().map_err(failed("listening for the probe"))?.port();
    let (mut report, mut attempts) = (None, Attempts::default());
    for as_tool in [false, true] {
        let own = root.join(if as_tool { "tool" } else { "command" });
        std::fs::create_dir(&own).map_err(failed("creating a folder for the probe"))?;
        let own_file = own.join("own");
        let plan = JailPlan {
            work: Work::Probe(ProbePlan {
                outside: outside.clone(),
                secret: secret.clone(),
                port,
                worker: i32::try_from(std::process::id()).unwrap_or(0),
                own_file: own_file.clone(),
                processes: LIMITS.processes,
            }),
            scratch: Some(own),
            read_only: Vec::new(),
            limits: LIMITS,
            means: host.means,
            device: None,
            as_tool,
        };
        let (found, outcome) = run(host, &plan, cancel)?;
        attempts.add(outcome);
        attempts.wrote_outside |= outside.exists();
        attempts.is_root_outside |= own_file.metadata().is_ok_and(|data| data.uid() == 0);
        report = Some(match report {
            None => found,
            Some(report) => merged(report, found),
        });
    }
    let mut report = report.unwrap_or_default();
    attempts.report(&mut report);
    Ok(report)
}

impl Attempts {
    fn add(&mut self, outcome: ProbeOutcome) {
        let known = &mut self.outcome;
        known.read_secret |= outcome.read_secret;
        known.connected |= outcome.connected;
        known.wrote_settings |= outcome.wrote_settings;
        known.signalled_worker |= outcome.signalled_worker;
        known.saw_processes |= outcome.saw_processes;
        known.exceeded_processes |= outcome.exceeded_processes;
    }

    fn report(&self, report: &mut SandboxReport) {
        let outcome = &self.outcome;
        for (name, succeeded) in [
            ("probe_write_outside", self.wrote_outside),
            ("probe_read_outside", outcome.read_secret),
            ("probe_connect", outcome.connected),
            ("probe_write_settings", outcome.wrote_settings),
            ("probe_signal_worker", outcome.signalled_worker),
            ("probe_see_processes", outcome.saw_processes),
            ("probe_exceed_processes", outcome.exceeded_processes),
            ("probe_root_outside", self.is_root_outside),
        ] {
            let entry = if succeeded { not_in_force(name, "the probe succeeded") } else { in_force(name, "refused") };
            report.means.push(entry);
        }
        report.isolates_files &= !self.wrote_outside && !outcome.read_secret && !outcome.wrote_settings;
        report.isolates_network &= !outcome.connected;
        if self.is_root_outside {
            disprove(report, UNPRIVILEGED_USER, "the files of the probe belong to root");
        }
    }
}

/// Reports a means as not in force that was reported as in force.
fn disprove(report: &mut SandboxReport, name: &str, reason: &str) {
    if let Some(entry) = report.means.iter_mut().find(|means| means.name == name && means.in_force) {
        *entry = not_in_force(name, reason);
    }
}

/// Adds what the jail of a tool reported to the report of the jail of a compiler: how `/proc` is protected, and which means
/// a tool lacks.
fn merged(mut report: SandboxReport, of_tool: SandboxReport) -> SandboxReport {
    report.isolates_files &= of_tool.isolates_files;
    report.isolates_network &= of_tool.isolates_network;
    report.means.retain(|means| means.name != PROC_MEANS);
    for means in of_tool.means {
        if means.name == PROC_MEANS {
            report.means.push(means);
        } else if !means.in_force && is_in_force(&report.means, &means.name) {
            report.means.push(not_in_force(&format!("tool_{}", means.name), &means.detail));
        }
    }
    report
}

/// Runs one probe to its end. Freezes it once, to find out whether that works.
fn run(host: &JailHost, plan: &JailPlan, cancel: &CancelFlag) -> Result<(SandboxReport, ProbeOutcome), ProcessError> {
    let deadline = Instant::now() + Duration::from_millis(LIMITS.wall_ms);
    let mut jail = Jail::start(host, plan, &[], cancel)?;
    let mut frozen = None;
    while !jail.has_ended() && Instant::now() < deadline {
        if cancel.is_cancelled() {
            return Err(ProcessError::Cancelled);
        }
        jail.pump(WATCH_INTERVAL, None)?;
        if jail.report.is_some() && frozen.is_none() && !jail.has_ended() {
            frozen = Some(jail.freeze().and_then(|()| jail.thaw()));
        }
    }
    jail.kill();
    if let Some(message) = jail.setup_error.take() {
        return Err(ProcessError::Setup(message));
    }
    let outcome = serde_json::from_slice(&jail.stdout.take()).ok();
    let found = jail.report.take().zip(outcome);
    let (mut report, outcome) = found.ok_or_else(|| {
        ProcessError::Setup(if Instant::now() < deadline {
            "the probe ended without an answer".to_owned()
        } else {
            format!("the probe did not end within {} seconds: the machine is busy, try again", LIMITS.wall_ms / 1000)
        })
    })?;
    if let Some(Err(error)) = frozen {
        disprove(&mut report, "freeze", &error.to_string());
    }
    Ok((report, outcome))
}
