//! The worker's handle of one jail: starts it, watches it, and leaves nothing of it behind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::{SandboxMeans, SandboxReport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::capture::Capture;
use super::freeze::Freezer;
use super::running::RunningJails;
use super::{CancelFlag, JailHost, ProcessError, os, survivors};
use crate::access::give_to;
use crate::cgroup::{self, CgroupLimits, FullMemory, JailCgroup};
use crate::cores::{move_process, waited_ns_of};
use crate::device::DeviceAccess;
use crate::end::RawEnd;
use crate::limits::{DRIVER_THREADS, SANDBOX_PROCESSES};
use crate::plan::{ControlMessage, JailPlan, Launch, SandboxChoice, Work};
use crate::procfs::schedule;
use crate::report::{in_force, not_in_force};
use crate::user::ProgramUser;
use crate::wire::{self, WireError};

/// How long the supervisor may take to kill and reap everything before the worker kills it.
const CLEANUP_LIMIT: Duration = Duration::from_secs(3);

/// How long a jail whose program is ending may take to report the end.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Share of busy processors for hosted processes, which may be timed.
const HOSTED_CPU_WEIGHT: u32 = 100;

/// Share of busy processors for commands such as compilers.
const COMMAND_CPU_WEIGHT: u32 = 50;

/// Memory that a cgroup may use beyond the limit of a hosted process, in bytes. The worker watches that limit; the cgroup is
/// the backstop.
const MEMORY_SLACK: u64 = 1 << 30;

/// One jail. Dropping it kills everything in it.
#[derive(Debug)]
pub struct Jail {
    supervisor: Child,
    supervisor_gone: bool,
    control: Option<OwnedFd>,
    /// Process id of init, which is also its process group.
    init: Option<i32>,
    cgroup: Option<Arc<JailCgroup>>,
    /// Freezes its processes, once the program is ready.
    freezer: Option<Arc<Freezer>>,
    running: RunningJails,
    started: Instant,
    is_timed: bool,
    /// Whether it is being killed: its process ids may soon be others'.
    is_ending: bool,
    /// The last exact measurement of memory, and the charge of the cgroup at that time.
    measured: Option<(u64, Resident)>,
    peak_bytes: Option<u64>,
    /// Standard output.
    pub stdout: Capture<ChildStdout>,
    /// Standard error.
    pub stderr: Capture<ChildStderr>,
    /// Isolation in force, once the program is ready.
    pub report: Option<SandboxReport>,
    /// Process id of the program, once it is ready.
    pub program: Option<i32>,
    /// Why the jail could not be set up.
    pub setup_error: Option<String>,
    /// How the program ended.
    pub ended: Option<RawEnd>,
}

impl Jail {
    /// Starts a jail, as soon as nothing is timed for which other jails are paused. The descriptors go to the hosted process of the plan.
    pub fn start(
        host: &JailHost,
        plan: &JailPlan,
        descriptors: &[BorrowedFd<'_>],
        cancel: &CancelFlag,
    ) -> Result<Self, ProcessError> {
        host.running.wait_while_paused(cancel)?;
        let user = ProgramUser::of_this_process(host.user);
        if let (Some(user), Some(scratch)) = (user.mapped(), &plan.scratch)
            && plan.means != SandboxChoice::None
        {
            give_to(user, scratch).map_err(|source| os("handing the scratch folder over", source))?;
        }
        let (cgroup, cgroup_means) = match create_cgroup(plan) {
            Ok(cgroup) => (Some(Arc::new(cgroup)), None),
            Err(reason) => (None, Some(not_in_force("cgroup", &reason))),
        };
        let cgroup_means: SandboxMeans = cgroup_means
            .or_else(|| Some(cgroup.as_ref()?.means().clone()))
            .unwrap_or_else(|| not_in_force("cgroup", ""));
        let (control, theirs) = wire::pair().map_err(|source| os("opening the control socket", source))?;
        rustix::net::sockopt::set_socket_passcred(&control, true)
            .map_err(|errno| os("asking for credentials", errno.into()))?;
        #[expect(clippy::disallowed_methods, reason = "this crate starts the worker's processes")]
        let mut command = std::process::Command::new(&host.executable);
        let mut supervisor = command
            .arg(plan.work.child_argument())
            .env_clear()
            .envs(plan.device.iter().flat_map(DeviceAccess::environment))
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| os(&format!("starting {}", host.executable.display()), source))?;
        // The command holds this process's copy of the supervisor's end, which would hide the end of the supervisor.
        drop(command);
        let (Some(stdout), Some(stderr)) = (supervisor.stdout.take(), supervisor.stderr.take()) else {
            return Err(ProcessError::Setup("the child has no output streams".to_owned()));
        };
        let captured = |source| os("reading the child's output", source);
        let mut jail = Self {
            supervisor,
            supervisor_gone: false,
            init: None,
            cgroup,
            freezer: None,
            running: host.running.clone(),
            started: Instant::now(),
            // Profilers look at the clock while they record: a pause would be in what they tell.
            is_timed: plan.device.is_some() && matches!(plan.work, Work::Command { .. }),
            is_ending: false,
            measured: None,
            peak_bytes: None,
            stdout: Capture::new(stdout, plan.limits.output_bytes).map_err(captured)?,
            stderr: Capture::new(stderr, plan.limits.output_bytes).map_err(captured)?,
            report: None,
            program: None,
            setup_error: None,
            ended: None,
            control: None,
        };
        let folder = jail.cgroup.as_ref().map(|cgroup| cgroup.folder().to_path_buf());
        let launch = Launch { plan, user, cgroup: folder, cgroup_means };
        let control = jail.control.insert(control);
        wire::send(control, &launch, descriptors).map_err(|error| match error {
            WireError::Os(source) => os("sending the plan", source),
            WireError::Malformed(message) => ProcessError::Setup(message),
        })?;
        Ok(jail)
    }

    /// Waits until an event happens or the time is over, and handles the events. Returns whether `extra` can be read.
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
            self.handle_message();
        }
        Ok(extra_ready)
    }

    /// Returns whether the program has ended or never started.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.is_some() || self.setup_error.is_some() || self.control.is_none()
    }

    /// Returns whether the program printed more than allowed.
    #[must_use]
    pub fn output_exceeded(&self) -> bool {
        self.stdout.exceeded() || self.stderr.exceeded()
    }

    /// Waits, for a limited time, until a program that is ending has ended. Returns how it ended.
    pub fn wait_for_end(&mut self) -> Result<Option<RawEnd>, ProcessError> {
        self.wait_for_end_within(END_LIMIT)
    }

    /// Waits like [`Self::wait_for_end`] with another limit.
    pub fn wait_for_end_within(&mut self, limit: Duration) -> Result<Option<RawEnd>, ProcessError> {
        let deadline = self.ran_for() + limit;
        while !self.has_ended() && self.ran_for() < deadline {
            self.pump(Duration::from_millis(10), None)?;
        }
        Ok(self.ended)
    }

    /// Discards the captured output so far.
    pub fn discard_output(&mut self) {
        self.stdout.pump();
        self.stderr.pump();
        self.stdout.take();
        self.stderr.take();
    }

    /// Returns whether the kernel counts the memory of all processes of the jail together.
    #[must_use]
    pub fn counts_memory(&self) -> bool {
        self.cgroup.as_deref().is_some_and(JailCgroup::counts_memory)
    }

    /// Limits the memory of a hosted process: to so many bytes beyond what all processes of the jail use now, and what they
    /// share with the worker. `u64::MAX` removes the limit. Without a cgroup it has no effect.
    pub fn limit_memory(&self, bytes: u64, shared_bytes: u64) -> Result<(), ProcessError> {
        let Some(cgroup) = &self.cgroup else { return Ok(()) };
        let used = cgroup.memory_use().map_or(0, |memory| memory.total);
        let limit = [used, shared_bytes, MEMORY_SLACK].into_iter().try_fold(bytes, u64::checked_add);
        cgroup.limit_memory(limit).map_err(|source| os("limiting the memory of a jail", source))
    }

    /// Returns the memory in use: of all processes in a cgroup, else of the program.
    #[must_use]
    pub fn measure_memory(&mut self) -> Option<Resident> {
        match self.cgroup.as_ref().and_then(|cgroup| cgroup.charged_bytes().zip(cgroup.memory_use())) {
            Some((charged, memory)) => {
                let resident = Resident { total: memory.total, private: memory.private };
                self.measured = Some((charged, resident));
                Some(resident)
            }
            None => self.program_memory(),
        }
    }

    /// Returns the memory in use like [`Self::measure_memory`]. In a cgroup that was not charged for more since the last
    /// measurement, that measurement is returned, which costs one short read.
    #[must_use]
    pub fn memory(&mut self) -> Option<Resident> {
        let charged = self.cgroup.as_deref().and_then(JailCgroup::charged_bytes);
        match (charged, self.measured) {
            (Some(charged), Some((before, resident))) if charged <= before => Some(resident),
            _ => self.measure_memory(),
        }
    }

    fn program_memory(&self) -> Option<Resident> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.program?)).ok()?;
        let mut pages = text.split(' ').skip(1).map_while(|field| field.parse::<u64>().ok());
        let page_bytes = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let total = pages.next()? * page_bytes;
        let shared = pages.next()? * page_bytes;
        Some(Resident { total, private: total.saturating_sub(shared) })
    }

    /// Returns the largest memory of all processes together in bytes, with cached files; none without a cgroup.
    #[must_use]
    pub fn cgroup_peak_bytes(&self) -> Option<u64> {
        self.peak_bytes.or_else(|| self.cgroup.as_ref()?.peak_bytes())
    }

    /// Returns the processor time of the program's living threads in nanoseconds, where the kernel reports it. A library
    /// may start no threads; those that it starts without the filter count too.
    pub fn processor_ns(&self) -> Option<u64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.program?)).ok()?;
        let used_ns = |thread: std::fs::DirEntry| Some(schedule(&thread.path())?.ran_ns);
        threads.filter_map(Result::ok).filter_map(used_ns).reduce(u64::saturating_add)
    }

    /// Moves the program to these cores, and its first thread to the first one of them where `pinned`.
    pub fn move_to(&self, cores: &[usize], pinned: bool) {
        // The id of a process that has ended may be another one's now.
        if let Some(program) = self.program.filter(|_| !self.has_ended() && !self.supervisor_gone) {
            move_process(program, cores, pinned);
        }
    }

    /// Returns for how many nanoseconds the program's first thread was ready to run and waited for a core, where the kernel counts it.
    #[must_use]
    pub fn waited_ns(&self) -> Option<u64> {
        waited_ns_of(self.program.filter(|_| !self.has_ended() && !self.supervisor_gone)?)
    }

    /// Stops every process of the jail, and returns when all of them are shown to be stopped. The supervisor and init, which
    /// only wait, go on.
    ///
    /// After 200 ms the processes go on and the result is an error. A frozen jail can be killed as any other.
    pub fn freeze(&mut self) -> Result<(), ProcessError> {
        match &self.freezer {
            Some(freezer) if !self.has_ended() => freezer.freeze().map_err(ProcessError::NotFrozen),
            _ => Err(ProcessError::NotFrozen("its program is not running".to_owned())),
        }
    }

    /// Lets every process of a frozen jail go on, unless something else is timed.
    pub fn thaw(&mut self) -> Result<(), ProcessError> {
        self.freezer.as_ref().map_or(Ok(()), |freezer| freezer.thaw()).map_err(ProcessError::NotFrozen)
    }

    /// Returns whether the owner of the jail has frozen it.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.freezer.as_ref().is_some_and(|freezer| freezer.is_frozen())
    }

    /// Says whether the jail is timed: then it runs on while the others of its host are stopped.
    pub fn set_timed(&mut self, is_timed: bool) {
        self.is_timed = is_timed;
        if let Some(freezer) = &self.freezer {
            self.running.set_timed(freezer, is_timed);
        }
    }

    /// Returns how long the jail has run, without the time for which it was stopped because something else was timed.
    #[must_use]
    pub fn ran_for(&self) -> Duration {
        let paused = self.freezer.as_ref().map_or(Duration::ZERO, |freezer| freezer.paused());
        self.started.elapsed().saturating_sub(paused)
    }

    /// Has the supervisor kill everything, without waiting for it.
    pub fn request_end(&self) {
        if let Some(control) = &self.control {
            // The supervisor may still report how the program ended.
            let _ = rustix::net::shutdown(control, rustix::net::Shutdown::Write);
        }
    }

    /// Kills and reaps everything and reads the rest of the output. May be called again.
    pub fn kill(&mut self) {
        if self.supervisor_gone {
            return;
        }
        self.is_ending = true;
        if let Some(freezer) = &self.freezer {
            freezer.close();
        }
        let deadline = Instant::now() + CLEANUP_LIMIT;
        self.request_end();
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
            self.kill_directly();
        }
        while self.control.is_some() && self.ended.is_none() && self.handle_message() {}
        self.stdout.pump();
        self.stderr.pump();
        self.control = None;
        self.freezer = None;
        self.cgroup = None;
        survivors::note(self.program);
    }

    /// Kills everything without the supervisor.
    fn kill_directly(&mut self) {
        let leader = i32::try_from(self.supervisor.id()).ok();
        for group in [self.init, leader].into_iter().flatten() {
            if let Some(group) = Pid::from_raw(group) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        self.supervisor_gone = true;
    }

    /// Handles one message of the control socket. Returns false at its end.
    fn handle_message(&mut self) -> bool {
        let Some(control) = &self.control else { return false };
        let Ok(Some(received)) = wire::receive::<ControlMessage>(control) else {
            self.read_peak();
            self.control = None;
            return false;
        };
        match received.message {
            ControlMessage::Started { init } => self.init = Some(init),
            ControlMessage::Ready { mut report, in_cgroup } => {
                self.cgroup = self.cgroup.take().filter(|_| in_cgroup);
                let by = if in_cgroup { "cgroup.freeze" } else { "SIGSTOP, confirmed for each thread" };
                report.means.push(in_force("freeze", by));
                self.report = Some(report);
                self.program = received.sender;
                if self.is_ending {
                    return true;
                }
                let own = (i32::try_from(self.supervisor.id()).unwrap_or(0), self.init);
                let freezer = Arc::new(Freezer::new(self.cgroup.clone(), own, self.is_timed));
                self.running.add(&freezer);
                self.freezer = Some(freezer);
            }
            ControlMessage::SetupFailed { message } => self.setup_error = Some(message),
            ControlMessage::Ended(end) => {
                self.read_peak();
                let full = self.cgroup.as_deref().and_then(JailCgroup::full_memory);
                let (out_of_memory, machine_was_full) =
                    (full == Some(FullMemory::Own), full == Some(FullMemory::Machine));
                self.ended = Some(RawEnd { out_of_memory, machine_was_full, ..end });
            }
        }
        true
    }

    /// Reads the peak of the cgroup, which the supervisor removes after this side has closed the control socket.
    fn read_peak(&mut self) {
        self.peak_bytes = self.peak_bytes.or_else(|| self.cgroup.as_ref()?.peak_bytes());
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Memory of a jail in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// All of it.
    pub total: u64,
    /// Without mapped files and shared memory.
    pub private: u64,
}

fn create_cgroup(plan: &JailPlan) -> Result<JailCgroup, String> {
    let hierarchy = cgroup::hierarchy().map_err(str::to_owned)?;
    let is_hosted = matches!(plan.work, Work::Hosted(_));
    let driver_threads = if plan.shows_kernel_files() { DRIVER_THREADS } else { 0 };
    let limits = CgroupLimits {
        // The worker limits a hosted process once it knows what the process uses by itself.
        memory_bytes: (!is_hosted).then_some(plan.limits.memory_bytes),
        processes: plan.limits.processes.saturating_add(SANDBOX_PROCESSES).saturating_add(driver_threads),
        cpu_weight: if is_hosted { HOSTED_CPU_WEIGHT } else { COMMAND_CPU_WEIGHT },
    };
    JailCgroup::create(hierarchy, &limits)
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
