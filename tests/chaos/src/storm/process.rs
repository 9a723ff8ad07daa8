//! One process of the fleet.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::clock::ShiftedClock;

/// How often an ending process is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A running process. It ends with this value, and with the orchestrator: its standard input is ours.
pub(crate) struct Process {
    child: Child,
    pub(crate) started_at: Instant,
}

impl Process {
    /// Starts this very program in another role, with a wall clock of its own or the machine's. What it says goes to the
    /// end of that file.
    pub(crate) fn start(arguments: &[String], said: &Path, clock: Option<&ShiftedClock>) -> anyhow::Result<Self> {
        let said = File::options().create(true).append(true).open(said)?;
        #[expect(clippy::disallowed_methods, reason = "a storm is about processes; nothing that ships is here")]
        let child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .envs(clock.into_iter().flat_map(ShiftedClock::variables))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()?;
        Ok(Self { child, started_at: Instant::now() })
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal; one that has ended gets none.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
        }
    }

    /// `kill -9`, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Its pipes: input and output.
    pub(crate) fn pipes(&mut self) -> Option<(std::process::ChildStdin, std::process::ChildStdout)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?))
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn wait(&mut self, within: Duration) -> Option<std::process::ExitStatus> {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Files of this process cannot grow beyond this any more, or without a number, as before.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit { current: bytes, maximum: None };
        // One that has ended writes nothing.
        let _ = prlimit(self.pid(), Resource::Fsize, limit);
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()).ok()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
