//! The parent's handle of one jailed child: starts it, listens to it, and leaves nothing of it behind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use nightshift_protocol::machine::SandboxReport;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::capture::Capture;
use super::ending::RawEnd;
use super::survivors;
use super::wire::{self, WireError};
use super::{JailHost, ProcessError};
use crate::isolation::{ControlMessage, DeviceAccess, JailPlan};

/// How long the supervisor may take to kill and collect everything, before we do it the rough way.
const CLEANUP_LIMIT: Duration = Duration::from_secs(3);

/// How long a child that was seen to be ending may take to say how.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(3);

/// One jailed child. Dropping it kills everything in it.
#[derive(Debug)]
pub struct Jail {
    supervisor: Child,
    supervisor_gone: bool,
    control: Option<OwnedFd>,
    group: Option<i32>,
    /// Standard output.
    pub stdout: Capture<ChildStdout>,
    /// Standard error.
    pub stderr: Capture<ChildStderr>,
    /// Isolation in force, once the child is ready.
    pub report: Option<SandboxReport>,
    /// The program's process, once the child is ready.
    pub program: Option<i32>,
    /// Why the jail could not be set up.
    pub setup_error: Option<String>,
    /// How the program ended.
    pub ended: Option<RawEnd>,
}

impl Jail {
    /// Starts the child and tells it what to do. `descriptors` travel with the plan.
    pub fn start(host: &JailHost, plan: &JailPlan, descriptors: &[BorrowedFd<'_>]) -> Result<Self, ProcessError> {
        let (control, theirs) = wire::pair().map_err(|source| os("opening the control socket", source))?;
        rustix::net::sockopt::set_socket_passcred(&control, true)
            .map_err(|errno| os("asking for credentials", errno.into()))?;
        #[expect(clippy::disallowed_methods, reason = "this is the one place that starts processes")]
        let mut command = std::process::Command::new(&host.executable);
        let mut supervisor = command
            .arg(plan.work.child_name())
            .env_clear()
            .envs(plan.device.iter().flat_map(DeviceAccess::environment))
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| os(&format!("starting {}", host.executable.display()), source))?;
        // The command holds our copy of the child's end: without it, the child's death would never be seen.
        drop(command);
        let (Some(stdout), Some(stderr)) = (supervisor.stdout.take(), supervisor.stderr.take()) else {
            return Err(ProcessError::Setup("the child has no output streams".to_owned()));
        };
        let captured = |source| os("reading the child's output", source);
        let mut jail = Self {
            supervisor,
            supervisor_gone: false,
            group: None,
            stdout: Capture::new(stdout, plan.limits.output_bytes).map_err(captured)?,
            stderr: Capture::new(stderr, plan.limits.output_bytes).map_err(captured)?,
            report: None,
            program: None,
            setup_error: None,
            ended: None,
            control: None,
        };
        let control = jail.control.insert(control);
        wire::send(control, plan, descriptors).map_err(|error| match error {
            WireError::Os(source) => os("sending the plan", source),
            WireError::Malformed(message) => ProcessError::Setup(message),
        })?;
        Ok(jail)
    }

    /// Waits until something happens or the time is over, and takes it in. Tells whether `extra` can be read.
    pub fn pump(&mut self, timeout: Duration, extra: Option<BorrowedFd<'_>>) -> Result<bool, ProcessError> {
        let (mut control_ready, mut extra_ready) = (false, false);
        {
            let control = self.control.as_ref().map(AsFd::as_fd);
            let watched = [control, extra, self.stdout.descriptor(), self.stderr.descriptor()];
            let mut fds: Vec<PollFd<'_>> =
                watched.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
            match poll(&mut fds, Some(&timespec(timeout))) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(os("waiting for the child", errno.into())),
            }
            let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
            if control.is_some() {
                control_ready = ready.next().unwrap_or(false);
            }
            if extra.is_some() {
                extra_ready = ready.next().unwrap_or(false);
            }
        }
        self.stdout.pump();
        self.stderr.pump();
        if control_ready {
            self.listen();
        }
        Ok(extra_ready)
    }

    /// Whether the program is over, or never came to be.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.is_some() || self.setup_error.is_some() || self.control.is_none()
    }

    /// Whether the program printed more than allowed.
    #[must_use]
    pub fn output_exceeded(&self) -> bool {
        self.stdout.exceeded() || self.stderr.exceeded()
    }

    /// Waits, bounded, for the word on how a program ended that was seen to be ending.
    pub fn last_words(&mut self) -> Result<Option<RawEnd>, ProcessError> {
        self.last_words_within(LAST_WORDS_LIMIT)
    }

    /// [`Self::last_words`], with another bound.
    pub fn last_words_within(&mut self, limit: Duration) -> Result<Option<RawEnd>, ProcessError> {
        let deadline = Instant::now() + limit;
        while !self.is_over() && Instant::now() < deadline {
            self.pump(Duration::from_millis(10), None)?;
        }
        Ok(self.ended)
    }

    /// Lets go of what was printed so far.
    pub fn forget_output(&mut self) {
        self.stdout.pump();
        self.stderr.pump();
        self.stdout.take();
        self.stderr.take();
    }

    /// Resident bytes of the program: all of it, and the part that it shares with nobody.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<Resident> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.program?)).ok()?;
        let mut pages = text.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
        let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let total = pages.next()? * page_bytes;
        let shared = pages.next()? * page_bytes;
        Some(Resident { total, private: total.saturating_sub(shared) })
    }

    /// Processor time that the program's living threads took so far, in nanoseconds, where the kernel tells. A library
    /// may start no threads; where the filter that forbids it is not in force, those that it starts count too.
    pub fn processor_ns(&self) -> Option<u64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.program?)).ok()?;
        let taken_ns = |thread: std::fs::DirEntry| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        threads.filter_map(Result::ok).filter_map(taken_ns).reduce(u64::saturating_add)
    }

    /// Lets everything be killed, without waiting for it.
    pub fn ask_to_end(&self) {
        if let Some(control) = &self.control {
            // Nothing more from us: that is what tells the supervisor to kill. It may still tell us how it ended.
            let _ = rustix::net::shutdown(control, rustix::net::Shutdown::Write);
        }
    }

    /// Kills everything, collects it and takes the rest of the output. Can be called again.
    pub fn finish(&mut self) {
        if self.supervisor_gone {
            return;
        }
        let deadline = Instant::now() + CLEANUP_LIMIT;
        self.ask_to_end();
        while Instant::now() < deadline {
            self.stdout.pump();
            self.stderr.pump();
            if matches!(self.supervisor.try_wait(), Ok(Some(_)) | Err(_)) {
                self.supervisor_gone = true;
                break;
            }
            if self.control.is_some() {
                if self.pump(Duration::from_millis(2), None).is_err() {
                    break;
                }
            } else {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
        if !self.supervisor_gone {
            self.kill_roughly();
        }
        while self.control.is_some() && self.ended.is_none() && self.listen() {}
        self.stdout.pump();
        self.stderr.pump();
        self.control = None;
        survivors::note(self.program);
    }

    fn kill_roughly(&mut self) {
        let leader = i32::try_from(self.supervisor.id()).ok();
        for group in [self.group, leader].into_iter().flatten() {
            if let Some(group) = Pid::from_raw(group) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        self.supervisor_gone = true;
    }

    /// Takes one message from the control socket; false at its end.
    fn listen(&mut self) -> bool {
        let Some(control) = &self.control else { return false };
        let Ok(Some(received)) = wire::receive::<ControlMessage>(control) else {
            self.control = None;
            return false;
        };
        match received.message {
            ControlMessage::Started { group } => self.group = Some(group),
            ControlMessage::Ready { report } => {
                self.report = Some(report);
                self.program = received.sender;
            }
            ControlMessage::SetupFailed { message } => self.setup_error = Some(message),
            ControlMessage::Ended(raw) => self.ended = Some(raw),
        }
        true
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Resident memory of a process in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// All of it.
    pub total: u64,
    /// Neither mapped from files nor shared.
    pub private: u64,
}

pub(super) fn os(what: &str, source: std::io::Error) -> ProcessError {
    ProcessError::Os { what: what.to_owned(), source }
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
