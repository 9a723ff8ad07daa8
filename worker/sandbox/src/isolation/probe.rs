//! Whether the jail holds here, found out by trying to break out of it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::{SandboxMeans, SandboxReport};

use super::plan::{JailPlan, ProbeOutcome, ProbePlan, Work};
use super::supervise::{in_force, not_in_force};
use crate::process::{Jail, JailHost, Limits, ProcessError, WATCH_INTERVAL};

/// What a probe may use.
const LIMITS: Limits = Limits {
    wall_ms: 10_000,
    cpu_s: 5,
    memory_bytes: 4 << 30,
    file_bytes: 1 << 20,
    processes: 4,
    output_bytes: 16 * 1024,
};

/// How long the probe waits for a connection.
const CONNECT_LIMIT: Duration = Duration::from_millis(300);

/// Text of the file that a probe may not read.
const SECRET: &str = "out of reach";

/// Starts a jailed child that tries to write and read outside of its folder and to connect to this process. What the
/// kernel promised and the attempts disproved is reported as not isolated. Blocks: call it from a dedicated thread.
pub fn probe(host: &JailHost) -> Result<SandboxReport, ProcessError> {
    let failed = |what: &'static str| move |source: std::io::Error| ProcessError::Os { what: what.to_owned(), source };
    let folder = tempfile::tempdir().map_err(failed("making a folder for the probe"))?;
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).map_err(failed("making a folder for the probe"))?;
    let (secret, outside) = (folder.path().join("secret"), folder.path().join("outside"));
    std::fs::write(&secret, SECRET).map_err(failed("writing the probe's secret"))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("listening for the probe"))?;
    let port = listener.local_addr().map_err(failed("listening for the probe"))?.port();
    let plan = JailPlan {
        work: Work::Probe(ProbePlan { outside: outside.clone(), secret, port }),
        scratch: Some(scratch),
        read_only: Vec::new(),
        limits: LIMITS,
        means: host.means,
        device: None,
        as_tool: false,
    };
    let (mut report, outcome) = run(host, &plan)?;
    let wrote = outcome.wrote_outside || outside.exists();
    report.means.push(attempt("probe_write_outside", wrote));
    report.means.push(attempt("probe_read_outside", outcome.read_secret));
    report.means.push(attempt("probe_connect", outcome.connected));
    report.isolates_files &= !wrote && !outcome.read_secret;
    report.isolates_network &= !outcome.connected;
    Ok(report)
}

fn attempt(name: &str, succeeded: bool) -> SandboxMeans {
    if succeeded { not_in_force(name, "the probe got through") } else { in_force(name, "refused") }
}

fn run(host: &JailHost, plan: &JailPlan) -> Result<(SandboxReport, ProbeOutcome), ProcessError> {
    let deadline = Instant::now() + Duration::from_millis(LIMITS.wall_ms);
    let mut jail = Jail::start(host, plan, &[])?;
    while !jail.is_over() && Instant::now() < deadline {
        jail.pump(WATCH_INTERVAL, None)?;
    }
    jail.finish();
    if let Some(message) = jail.setup_error.take() {
        return Err(ProcessError::Setup(message));
    }
    let report = jail.report.take();
    let outcome = serde_json::from_slice(&jail.stdout.take()).ok();
    report.zip(outcome).ok_or_else(|| ProcessError::Setup("the probe did not finish".to_owned()))
}

/// The probe's side: tries, and prints what it could do.
pub(super) fn try_to_break_out(plan: &ProbePlan) -> Result<(), String> {
    let outcome = ProbeOutcome {
        wrote_outside: std::fs::write(&plan.outside, "here").is_ok(),
        read_secret: reads(&plan.secret),
        connected: TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, plan.port)), CONNECT_LIMIT)
            .is_ok(),
    };
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, &outcome).map_err(|error| error.to_string())?;
    stdout.flush().map_err(|error| error.to_string())
}

fn reads(path: &PathBuf) -> bool {
    let mut text = String::new();
    std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)).is_ok()
}
