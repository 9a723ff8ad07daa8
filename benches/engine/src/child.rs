//! Processes of ours that are killed: a server, or a worker. Each tells on its standard output how far it is, one word
//! and one number a line.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use nightshift_optimizer::agent::{AgentPorts, AgentStep};
use nightshift_protocol::api::LeasedStep;
use nightshift_protocol::id::RunId;
use nightshift_protocol::machine::Needs;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_sandbox::process::CancelFlag;
use nightshift_server::AgentExecutor;
use nightshift_store::fault::FaultyStore;
use nightshift_worker::lease::{self, Work};
use tokio_util::sync::CancellationToken;

use crate::place::Place;
use crate::setup::{Settings, introduction, start, worker_client};
use crate::trivial::{self, STEPS_PER_WORKFLOW, Trivial};
use crate::workload::campaign;

/// Runs of one campaign.
const RUNS_PER_CAMPAIGN: u64 = 1_000;
/// How often the store is asked whether everything is open.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Says how far this process is.
fn tell(word: &str, number: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word} {number}")?;
    Ok(out.flush()?)
}

/// A process of ours; killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this very program with these arguments.
    #[expect(clippy::disallowed_methods, reason = "the measurement kills processes, and they are its own")]
    pub(crate) fn start(arguments: &[String]) -> anyhow::Result<Self> {
        let mut child = std::process::Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().context("the process has no output")?;
        Ok(Self { child, lines: BufReader::new(out) })
    }

    /// Waits for this word, and gives what follows it. Blocks.
    pub(crate) fn until(&mut self, word: &str) -> anyhow::Result<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line)? == 0 {
                bail!("a process of the measurement ended before it said `{word}`");
            }
            if let Some((found, rest)) = line.trim_end().split_once(' ')
                && found == word
            {
                return Ok(rest.to_owned());
            }
        }
    }

    /// Memory that is resident now, in bytes.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1_024)
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be dead already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServerOptions {
    #[command(flatten)]
    place: Place,
    /// Creates so many runs, carries out nothing and says when all are open
    #[arg(long)]
    create: Option<u64>,
    /// Carries steps out, and says when the first one and one of each of so many runs has begun
    #[arg(long)]
    expect: Option<u64>,
    /// Steps of agents at once
    #[arg(long, default_value_t = 64)]
    slots: usize,
}

/// A server that is killed, or one that comes after it.
pub(crate) async fn serve(options: ServerOptions) -> anyhow::Result<()> {
    let ServerOptions { place, create, expect, slots } = options;
    let store = place.open().await?;
    let counted = Arc::new(FaultyStore::counting(store.ports()));
    let port = counted.ports();
    let agents: Arc<dyn AgentExecutor> = match expect {
        Some(runs) => Arc::new(Resumes { runs: usize::try_from(runs)?, seen: Mutex::default() }),
        None => Arc::new(Hangs),
    };
    let workflow = Trivial { steps: STEPS_PER_WORKFLOW, needs: Needs::agent(), decided: None };
    let running = start(&Settings::new(slots, place.is_embedded()), port.clone(), workflow, agents).await?;
    tell("listens", running.addr())?;
    if let Some(runs) = create {
        let mut first = 0;
        while first < runs {
            let next = (first + RUNS_PER_CAMPAIGN).min(runs);
            port.campaigns.create_campaign(campaign(first..next, None)?).await?;
            first = next;
        }
        loop {
            let gauges = port.database.gauges().await?;
            let open = gauges.leases + gauges.ready.iter().map(|(_, count)| count).sum::<u64>();
            if open >= runs {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tell("open", runs)?;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            tell("calls", counted.calls())?;
        }
    }
    running.join().await?;
    Ok(())
}

/// Agents that never end.
struct Hangs;

#[async_trait]
impl AgentExecutor for Hangs {
    async fn carry_out(&self, _: &dyn AgentPorts, _: AgentStep<'_>) -> Result<StepOutput, StepFailure> {
        std::future::pending().await
    }
}

/// Agents that add one, and tell of each run that goes on.
struct Resumes {
    runs: usize,
    seen: Mutex<HashSet<RunId>>,
}

#[async_trait]
impl AgentExecutor for Resumes {
    async fn carry_out(&self, _: &dyn AgentPorts, step: AgentStep<'_>) -> Result<StepOutput, StepFailure> {
        let (is_new, count) = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.insert(step.run.clone()), seen.len())
        };
        let told = match count {
            1 if is_new => tell("first", count),
            count if is_new && count == self.runs => tell("all", count),
            _ => Ok(()),
        };
        told.map_err(|error| StepFailure::retriable("bench.output", error.to_string()))?;
        trivial::carry_out(step.input)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkerOptions {
    /// The server
    #[arg(long)]
    server: SocketAddr,
}

/// A worker that takes one step and is killed with it.
pub(crate) async fn work(options: WorkerOptions) -> anyhow::Result<()> {
    let client = Arc::new(worker_client(options.server)?);
    let work = Arc::new(HangsAtWork);
    Ok(lease::serve(client, work, introduction("lost", 1), CancellationToken::new()).await?)
}

struct HangsAtWork;

impl Work for HangsAtWork {
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        tell("holds", &step.step).map_err(|error| StepFailure::retriable("bench.output", error.to_string()))?;
        while !cancel.is_cancelled() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(StepFailure::retriable("bench.cancelled", "the measurement is over"))
    }
}
