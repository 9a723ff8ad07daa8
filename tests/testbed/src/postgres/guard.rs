//! What ends a cluster when its process is gone, however that went.

use std::io::PipeWriter;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use super::account::Account;
use super::{PostgresError, command};

/// Waits for the end of its input, then stops the server. It keeps its output open meanwhile. A server that has just
/// been started may not have written its process id yet, and is asked again.
const STOP: &str = r#"
while read -r _; do :; done
tries=0
while [ -e "$2/postmaster.pid" ] && [ "$tries" -lt 30 ]; do
    "$1" stop -D "$2" -m immediate -w -t 30 >/dev/null 2>&1 || sleep 0.1
    tries=$((tries + 1))
done
"#;
/// Waits for the end of its input, then removes the folder. While a program still writes there, it is not empty.
const REMOVE: &str = r#"
while read -r _; do :; done
tries=0
until rm -rf -- "$1" || [ "$tries" -ge 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
"#;

/// Two shells, each waiting for the end of a pipe. The first stops the server once no process holds `alive`. The
/// second removes the folder once the first is done. The kernel closes the pipe of a process that panicked or was
/// killed, so no cluster outlives its process. They are two because PostgreSQL stops nothing for root, and another
/// account may not remove what lies in a folder of root's.
#[derive(Debug)]
pub(super) struct Guard {
    alive: Option<PipeWriter>,
    stop: Child,
    remove: Child,
}

impl Guard {
    /// Guards a folder, which need not exist yet, and the server with this data folder.
    pub(super) fn start(pg_ctl: &Path, data: &Path, folder: &Path, account: Account) -> Result<Self, PostgresError> {
        let cannot_run = |source| PostgresError::CannotRun { program: "sh".into(), source };
        let (alive_end, alive) = std::io::pipe().map_err(cannot_run)?;
        let (stopped_end, stopped) = std::io::pipe().map_err(cannot_run)?;

        let mut stop = command("sh");
        stop.args(["-c", STOP, "stop"]).arg(pg_ctl).arg(data).stdin(alive_end).stdout(stopped);
        account.give(&mut stop);
        let mut remove = command("sh");
        remove.args(["-c", REMOVE, "remove"]).arg(folder).stdin(stopped_end).stdout(Stdio::null());
        for shell in [&mut stop, &mut remove] {
            // In groups of their own: an interrupt from the terminal ends the tests, and then there is work to do.
            shell.current_dir("/").stderr(Stdio::null()).process_group(0);
        }
        let remove = remove.spawn().map_err(cannot_run)?;
        let stop = stop.spawn().map_err(cannot_run)?;
        Ok(Self { alive: Some(alive), stop, remove })
    }

    /// Something to hold by a program that works on the cluster: it is stopped and removed after this program ended,
    /// not under its hands.
    pub(super) fn hold(&self) -> std::io::Result<Stdio> {
        self.alive.as_ref().map_or_else(|| Ok(Stdio::null()), |alive| Ok(Stdio::from(alive.try_clone()?)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.alive = None;
        // Both end by themselves; that they cannot be waited for would mean that they are gone.
        let _ = self.stop.wait();
        let _ = self.remove.wait();
    }
}
