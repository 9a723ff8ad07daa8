//! Database, servers, workers and the proxies between them.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nightshift_client::Client;
use rustix::process::Signal;

use super::Kind;
use super::clock::{ClockLibrary, ShiftedClock};
use super::database::Database;
use super::objects::ObjectStorage;
use super::process::Process;
use super::proxy::Proxy;
use super::violation::Violation;
use crate::node::{Control, TOKEN};

/// Numbers of processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Servers on one Postgres. `SQLite` has one.
    pub(crate) replicas: usize,
    pub(crate) workers: usize,
}

/// The fleet of a storm.
pub(super) const OF_STORM: Size = Size { replicas: 5, workers: 3 };
/// How long the first start may take.
const MAX_START: Duration = Duration::from_mins(2);
/// How long a process may take to end after it was told to.
const MAX_END: Duration = Duration::from_mins(1);
/// A server that ends this soon after its start could not start: its database was broken.
const START: Duration = Duration::from_secs(10);
/// Ports of servers, and how many are tried.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const MAX_PORTS: u32 = 200;
/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Everything that runs.
pub(crate) struct Fleet {
    pub(crate) database: Database,
    /// Held while the database is broken.
    pub(super) database_busy: Arc<tokio::sync::Mutex<()>>,
    pub(super) objects: ObjectStorage,
    /// Held while the object store is down.
    pub(super) objects_busy: Arc<tokio::sync::Mutex<()>>,
    pub(crate) servers: Vec<Arc<Seat>>,
    pub(super) workers: Vec<Arc<Seat>>,
    pub(super) proxies: Vec<Proxy>,
    pub(super) logs: PathBuf,
    restarts: AtomicU32,
    violations: Mutex<Vec<Violation>>,
}

/// The place of one process: killed and started again, it stays the same seat.
pub(crate) struct Seat {
    pub(super) name: String,
    arguments: Vec<String>,
    said: PathBuf,
    pub(super) control_file: Option<PathBuf>,
    /// The wall clock of its process; none for the machine's.
    pub(super) clock: Option<ShiftedClock>,
    pub(crate) direct: Option<SocketAddr>,
    /// Held while a fault is injected or repaired.
    pub(super) busy: Arc<tokio::sync::Mutex<()>>,
    process: Mutex<Option<Process>>,
}

impl Seat {
    /// Starts its process; the one before is gone.
    pub(super) fn start(&self, further: &[String]) -> anyhow::Result<()> {
        let arguments: Vec<String> = self.arguments.iter().chain(further).cloned().collect();
        *self.process() = Some(Process::start(&arguments, &self.said, self.clock.as_ref())?);
        Ok(())
    }

    /// Does something with its process, when there is one.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Process) -> T) -> Option<T> {
        self.process().as_mut().map(act)
    }

    /// Tells it something.
    pub(super) fn tell(&self, control: Control) -> std::io::Result<()> {
        self.control_file.as_ref().map_or(Ok(()), |path| control.write(path))
    }

    /// Sets its wall clock so far ahead of the machine's, in milliseconds. Returns how far it was ahead before.
    pub(super) fn set_clock(&self, offset_ms: i64) -> std::io::Result<i64> {
        let Some(clock) = &self.clock else { return Ok(0) };
        let before_ms = clock.offset_ms()?;
        clock.set(offset_ms)?;
        Ok(before_ms)
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of what its processes said.
    fn last_words(&self) -> String {
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        let lines: Vec<&str> = said.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Fleet {
    /// Starts everything; servers get these further arguments.
    pub(crate) async fn start(kind: Kind, folder: &Path, size: Size, further: &[String]) -> anyhow::Result<Self> {
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs)?;
        let clocks = ClockLibrary::build(folder)?;
        let database = Database::start(kind, folder).await?;
        let objects = ObjectStorage::start(folder.join("objects")).await?;
        let (mut servers, mut proxies) = (Vec::new(), Vec::new());
        let number = if kind == Kind::Sqlite { 1 } else { size.replicas };
        for n in 1..=number {
            let addr = free_address()?;
            proxies.push(Proxy::start(addr).await?);
            let name = format!("server-{n}");
            let control_file = folder.join(format!("{name}.json"));
            Control::default().write(&control_file)?;
            let [bind, database, objects, control] =
                [addr.to_string(), database.address(), objects.endpoint(), control_file.display().to_string()];
            let mut arguments = vec!["node", "server", "--bind", &bind, "--database", &database, "--objects", &objects];
            arguments.extend(["--control-file", &control, "--name", &name]);
            let server = Seat {
                control_file: Some(control_file),
                clock: Some(clocks.clock(folder.join(format!("{name}.clock")))?),
                direct: Some(addr),
                ..seat(name.clone(), &arguments, &logs)
            };
            servers.push(Arc::new(server));
        }
        let urls: Vec<String> = proxies.iter().map(|proxy| format!("http://{}", proxy.addr)).collect();
        let workers = (1..=size.workers)
            .map(|n| {
                // Each begins with another server.
                let mut urls = urls.clone();
                let first = n % urls.len();
                urls.rotate_left(first);
                let arguments = ["node", "worker", "--servers", &urls.join(","), "--name", &format!("worker-{n}")];
                Arc::new(seat(format!("worker-{n}"), &arguments, &logs))
            })
            .collect();
        let fleet = Self {
            database,
            database_busy: Arc::default(),
            objects,
            objects_busy: Arc::default(),
            servers,
            workers,
            proxies,
            logs,
            restarts: AtomicU32::new(0),
            violations: Mutex::default(),
        };
        // One after the other: the first one makes the tables.
        for server in &fleet.servers {
            server.start(further)?;
            fleet.until_ready(server).await?;
        }
        for worker in &fleet.workers {
            worker.start(&[])?;
        }
        Ok(fleet)
    }

    async fn until_ready(&self, seat: &Seat) -> anyhow::Result<()> {
        let addr = seat.direct.context("no server")?;
        let client = Client::new(&format!("http://{addr}"), None)?;
        let began = Instant::now();
        while client.health().await.is_err() {
            let ended = seat.with(Process::ended).flatten();
            anyhow::ensure!(ended.is_none(), "{} ended: {}", seat.name, seat.last_words());
            anyhow::ensure!(began.elapsed() < MAX_START, "{} does not answer: {}", seat.name, seat.last_words());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// A client through the proxies.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let urls: Vec<String> = self.proxies.iter().map(|proxy| format!("http://{}", proxy.addr)).collect();
        Ok(Client::new(&urls.join(","), Some(TOKEN.to_owned().into()))?)
    }

    /// Starts again what ended by itself, as an operator's supervisor does.
    pub(super) async fn supervise(self: Arc<Self>) {
        loop {
            for seat in self.servers.iter().chain(&self.workers) {
                let Ok(_busy) = seat.busy.clone().try_lock_owned() else { continue };
                let ended = seat.with(|process| Some((process.ended()?, process.started_at.elapsed()))).flatten();
                let Some((status, age)) = ended else { continue };
                let is_server = seat.direct.is_some();
                let is_excused = is_server && (age < START || self.database_busy.try_lock().is_err());
                if !is_excused {
                    let told = format!("{} ended by itself ({status}): {}", seat.name, seat.last_words());
                    self.violations
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(Violation::new("no process crashes", told));
                }
                self.restarts.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = seat.start(&[]) {
                    eprintln!("{} cannot be started: {error}", seat.name);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Processes that ended by themselves and were started again.
    pub(super) fn restarts(&self) -> u32 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Tells every process to end. A process that does not end is a violation.
    pub(crate) async fn stop(&self) -> Vec<Violation> {
        let mut violations = std::mem::take(&mut *self.violations.lock().unwrap_or_else(PoisonError::into_inner));
        for seats in [&self.workers, &self.servers] {
            for seat in seats {
                seat.with(|process| process.signal(Signal::TERM));
            }
            for seat in seats {
                let Some(mut process) = seat.process().take() else { continue };
                match process.wait(MAX_END).await {
                    Some(status) if status.success() => {}
                    Some(status) => violations.push(Violation::new(
                        "every process ends when told",
                        format!("{} ended with {status}: {}", seat.name, seat.last_words()),
                    )),
                    None => violations.push(Violation::new(
                        "every process ends when told",
                        format!("{} did not end within {} s", seat.name, MAX_END.as_secs()),
                    )),
                }
            }
        }
        violations
    }
}

/// Returns the place of a process with the machine's clock.
fn seat(name: String, arguments: &[&str], logs: &Path) -> Seat {
    let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    arguments.extend(["--log".to_owned(), logs.join(format!("{name}.jsonl")).display().to_string()]);
    Seat {
        said: logs.join(format!("{name}.txt")),
        name,
        arguments,
        control_file: None,
        clock: None,
        direct: None,
        busy: Arc::default(),
        process: Mutex::new(None),
    }
}

/// Returns a free port below the range of outgoing connections, so that no connection takes the port while its server
/// is down.
fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..MAX_PORTS {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", rand::random_range(PORTS))) {
            return Ok(listener.local_addr()?);
        }
    }
    anyhow::bail!("no free port between {} and {}", PORTS.start, PORTS.end)
}
