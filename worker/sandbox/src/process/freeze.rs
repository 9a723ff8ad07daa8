//! Stopping the processes of a jail for a while.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::ProcessError;
use super::jail::{Jail, os};

/// How long a process may take to be seen as stopped.
const FREEZE_LIMIT: Duration = Duration::from_millis(200);

impl Jail {
    /// Stops the program's process, and returns once all of its threads are seen to be stopped.
    pub fn freeze(&mut self) -> Result<(), ProcessError> {
        let Some(program) = self.program else { return Ok(()) };
        signal(program, Signal::STOP)?;
        let deadline = Instant::now() + FREEZE_LIMIT;
        while !is_stopped(program) {
            if self.is_over() || Instant::now() > deadline {
                return Err(ProcessError::Setup("the program's process could not be stopped".to_owned()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Lets the program's process go on.
    pub fn thaw(&mut self) -> Result<(), ProcessError> {
        self.program.map_or(Ok(()), |program| signal(program, Signal::CONT))
    }
}

fn signal(process: i32, signal: Signal) -> Result<(), ProcessError> {
    let Some(process) = Pid::from_raw(process) else { return Ok(()) };
    match kill_process(process, signal) {
        // It is over, which is found out when it is asked something.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(os("stopping the program's process", errno.into())),
    }
}

/// Whether every thread of a process is stopped, or the process is gone.
fn is_stopped(process: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().all(|thread| {
        let Ok(stat) = std::fs::read_to_string(thread.path().join("stat")) else { return true };
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        state.is_none_or(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
    })
}
