//! The first process of a jail.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, set_parent_process_death_signal, setpgid};

use super::context::Init;
use super::program::Program;
use super::refuse;
use crate::end::RawEnd;
use crate::isolation::private_root;
use crate::plan::ControlMessage;
use crate::report::{in_force, not_in_force};
use crate::wire::send;

impl Init {
    /// Forks init, which exits in here. Returns the control socket and init's process id, and closes everything else.
    pub(super) fn fork(self) -> (OwnedFd, Result<Pid, String>) {
        // SAFETY: this process has one thread, so the child may run any code.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            std::process::exit(self.run());
        }
        let failed = || format!("forking init: {}", std::io::Error::last_os_error());
        let init = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(failed);
        (self.control, init)
    }

    fn run(mut self) -> i32 {
        let _ = setpgid(None, None);
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        if self.namespaces.user || self.namespaces.by_root {
            match private_root::enter(&self.launch.plan) {
                Ok(()) => {
                    self.namespaces.mount = true;
                    self.means.push(in_force("mount_namespace", "private root"));
                }
                Err(reason) => self.means.push(not_in_force("mount_namespace", &reason)),
            }
        }
        // SAFETY: this process has one thread, so the child may run any code.
        let program = unsafe { libc::fork() };
        if program == 0 {
            let status = Program::new(self).run();
            // SAFETY: ends this process at once. The regular way would run exit handlers of the program's code.
            unsafe { libc::_exit(status) };
        }
        self.descriptors.clear();
        (self.procfs, self.cgroup_procs) = (None, None);
        if program < 0 {
            return refuse(&self.control, &format!("forking the program: {}", std::io::Error::last_os_error()));
        }
        match wait_for(program) {
            Ok(end) => {
                let _ = send(&self.control, &ControlMessage::Ended(end), &[]);
                0
            }
            Err(error) => refuse(&self.control, &format!("waiting for the program: {error}")),
        }
    }
}

/// Reaps children until the program has ended.
fn wait_for(program: i32) -> std::io::Result<RawEnd> {
    loop {
        let mut status = 0;
        // SAFETY: an all-zero rusage is a valid value, and both pointers are valid for the call.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(-1, &raw mut status, 0, &raw mut usage), usage)
        };
        if pid < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() == std::io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if pid == program {
            return Ok(RawEnd {
                status: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
                signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
                peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
                out_of_memory: false,
                machine_was_full: false,
            });
        }
    }
}

/// Closes a range of descriptors of a process that has just been executed.
pub(super) fn close_range(first: u32, last: u32) {
    if first <= last {
        // SAFETY: the process has one thread and owns no descriptor in this range: only the three standard streams and the
        // control socket are in use, and they are outside of it.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}
