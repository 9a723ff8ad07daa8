//! A server of our own: made, started, crashed, started again, removed.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::account::Account;
use super::guard::Guard;
use super::port::Port;
use super::settings::Settings;
use super::{PostgresError, clean_command, end_of, random};

/// The account inside the cluster, who may do everything.
pub(super) const USER: &str = "nightshift";
/// Maximum number of ports to try when another process takes one first.
const MAX_STARTS: u32 = 5;
/// How long a start, with recovery, or a stop may take.
const TIMEOUT_SECONDS: &str = "60";

/// A server with a folder, a port and a guard of its own.
#[derive(Debug)]
pub(super) struct PrivateServer {
    programs: PathBuf,
    account: Account,
    folder: PathBuf,
    port: Port,
    guard: Guard,
}

impl PrivateServer {
    /// Makes one and starts it.
    pub(super) fn start(programs: &Path, settings: &Settings) -> Result<Self, PostgresError> {
        let account = Account::find()?;
        let parent = settings.parent.clone().unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("nightshift-postgres-{}-{:016x}", std::process::id(), random()));
        let port = Port::reserve()?;
        // Before there is anything to remove: whatever happens from here on, nothing is left behind.
        let guard = Guard::start(&programs.join("pg_ctl"), &folder.join("data"), &folder, account)?;
        let mut server = Self { programs: programs.to_path_buf(), account, folder, port, guard };
        server.make(settings)?;
        for _ in 1..MAX_STARTS {
            match server.resume() {
                Err(PostgresError::Failed { output, .. }) if output.contains("could not bind") => {
                    server.port = Port::reserve()?;
                }
                outcome => return outcome.map(|()| server),
            }
        }
        server.resume().map(|()| server)
    }

    fn make(&self, settings: &Settings) -> Result<(), PostgresError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| PostgresError::Folder { path, source }
        };
        std::fs::DirBuilder::new().mode(0o700).create(&self.folder).map_err(failed(&self.folder))?;
        self.account.own(&self.folder).map_err(failed(&self.folder))?;
        // Text sorts by bytes and messages are English on every machine. Nothing of value is in the new cluster yet:
        // syncing it would only take time.
        let mut initdb = self.program("initdb");
        initdb.args(["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=trust", "--username", USER, "-D"]);
        self.finish("initdb", initdb.arg(self.data()))?;
        let path = self.data().join("postgresql.conf");
        let mut file = OpenOptions::new().append(true).open(&path).map_err(failed(&path))?;
        file.write_all(settings.lines(&self.folder).as_bytes()).map_err(failed(&path))
    }

    /// Starts the server that was stopped, on its port, and waits until it answers.
    pub(super) fn resume(&self) -> Result<(), PostgresError> {
        let mut pg_ctl = self.program("pg_ctl");
        pg_ctl.args(["start", "-w", "-t", TIMEOUT_SECONDS, "-D"]).arg(self.data()).arg("-l").arg(self.log());
        self.finish("pg_ctl start", pg_ctl.arg("-o").arg(format!("-p {}", self.port.number)))
    }

    /// Ends the server as a crash would: no checkpoint, no goodbye; the next start recovers from the log.
    pub(super) fn stop_immediate(&self) -> Result<(), PostgresError> {
        let mut pg_ctl = self.program("pg_ctl");
        pg_ctl.args(["stop", "-m", "immediate", "-w", "-t", TIMEOUT_SECONDS, "-D"]);
        self.finish("pg_ctl stop", pg_ctl.arg(self.data()))
    }

    #[cfg(test)]
    pub(super) fn port(&self) -> u16 {
        self.port.number
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port.number)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn program(&self, name: &str) -> Command {
        let mut command = clean_command(&self.programs.join(name));
        // Not our folder of the moment, which the account may not be allowed to enter.
        command.current_dir("/");
        self.account.give(&mut command);
        command
    }

    /// Runs a program to its end while it holds the guard off.
    fn finish(&self, name: &str, command: &mut Command) -> Result<(), PostgresError> {
        let log_began = std::fs::metadata(self.log()).map_or(0, |log| log.len());
        let outcome = self.guard.hold().and_then(|hold| command.stdin(hold).output());
        // The command keeps what it was given: without this it would hold the guard off for as long as it lives.
        command.stdin(std::process::Stdio::null());
        let program = PathBuf::from(command.get_program());
        let output = outcome.map_err(|source| PostgresError::CannotRun { program, source })?;
        if output.status.success() {
            return Ok(());
        }
        let log = std::fs::read(self.log()).unwrap_or_default();
        let since = log.get(usize::try_from(log_began).unwrap_or_default()..).unwrap_or_default();
        let said = format!("{}\n{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(since));
        let output_text = end_of(&said).to_owned();
        Err(PostgresError::Failed { program: name.to_owned(), status: output.status, output: output_text })
    }
}
