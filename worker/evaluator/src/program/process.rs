//! One process that runs programs: started without a program, so that it can wait for one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nightshift_protocol::machine::SandboxReport;
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::{CancelFlag, Jail, Limits, ProcessError, SandboxChoice, WATCH_INTERVAL, pair};
use nightshift_sandbox::{DeviceAccess, HostedKind, HostedProcess, JailPlan, Work};
use nightshift_toolchain::Host;
use tempfile::TempDir;

use super::ProgramError;
use crate::device::Exported;
use crate::layout::Layout;
use crate::runner::control::{Command, ControlPage, Spin, WindowKind};
use crate::runner::message::{Message, PythonPlan, Request, StartPlan};
use crate::seeds::SecretSeeds;

/// How long a process may take to restrict itself.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How long opening a device may take, in milliseconds: a machine with many devices takes its time.
const OPEN_LIMIT_MS: u64 = 30_000;

/// How long a Python process may take to load `PyTorch`, in milliseconds: from a cold disk it takes its time.
const PYTHON_LIMIT_MS: u64 = 180_000;

/// Processes and threads of a Python process with `PyTorch`.
const PYTHON_THREADS: u64 = 64;

/// Captured output of a process in bytes; more ends it.
pub(super) const OUTPUT_BYTES: usize = 256 * 1024;

/// Processor time of a process in seconds: a backstop behind the time limit of each call.
pub(super) const CPU_LIMIT_S: u64 = 3_600;

/// How often a process is looked after while a window is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// What kind of process a program needs. Processes of the same kind are exchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessKind {
    /// Whether a Python process runs the program.
    pub(crate) python: bool,
    /// How it gets to its device; none on the host.
    pub(crate) device: Option<DeviceAccess>,
}

/// Limits of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessLimits {
    /// Memory in addition to the tensors, in bytes.
    pub(crate) memory_bytes: u64,
    /// Memory of the host that is shared with the evaluator, in bytes.
    pub(crate) shared_bytes: u64,
    /// Processor core to stay on.
    pub(crate) core: Option<usize>,
}

/// Times of one window by the evaluator's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Window {
    /// From the command to the answer.
    pub(crate) elapsed: Duration,
    /// Between the device's events around the calls, as the process tells; evidence only.
    pub(crate) events_ns: u64,
}

/// One process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) jail: Jail,
    pub(super) channel: OwnedFd,
    page: ControlPage,
    /// The message that the end of the windows answers, while there are windows.
    windows: Option<u64>,
    pub(super) nonces: SecretSeeds,
    pub(super) cancel: CancelFlag,
    pub(super) limits: ProcessLimits,
    pub(super) shared_bytes: u64,
    pub(super) base_private_bytes: u64,
    pub(super) base_total_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(crate) kind: ProcessKind,
    report: SandboxReport,
    state: State,
    /// Where the program lies, which the process can read.
    pub(super) program: PathBuf,
    folder: TempDir,
    /// What the process may write to.
    _scratch: Option<TempDir>,
}

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Starting,
    Restricted,
    Ready,
}

fn os(what: &'static str) -> impl Fn(std::io::Error) -> ProcessError {
    move |source| ProcessError::Os { what: what.to_owned(), source }
}

impl Process {
    /// Starts a process that gets ready by itself.
    pub(crate) fn launch(
        host: &Host,
        kind: ProcessKind,
        limits: ProcessLimits,
        cancel: &CancelFlag,
    ) -> Result<Self, ProgramError> {
        let nonces = SecretSeeds::from_os().map_err(os("drawing random numbers"))?;
        let (channel, theirs) = pair().map_err(os("opening the runner's socket"))?;
        let (page, theirs_page) = ControlPage::new().map_err(os("making the control page"))?;
        let folder = temporary_folder(&host.scratch, "program-");
        let folder = folder.map_err(os("making a folder for the program"))?;
        let (python, scratch, mut read_only) =
            if kind.python { python_plan(host, &kind, cancel)? } else { (None, None, Vec::new()) };
        // The sandbox wants paths that are free of links.
        read_only.push(folder.path().canonicalize().map_err(os("finding the folder of the program"))?);
        let start = StartPlan {
            on_device: kind.device.is_some(),
            filtered: (kind.python || kind.device.is_some()) && host.jail.means != SandboxChoice::None,
            python: python.clone(),
        };
        let payload = serde_json::to_string(&start).map_err(|error| ProcessError::Setup(error.to_string()))?;
        let hosted = if kind.python { HostedKind::Python } else { HostedKind::Native };
        let shared_bytes = limits.shared_bytes;
        let jail_plan = JailPlan {
            work: Work::Hosted(HostedProcess { kind: hosted, core: limits.core, shared_bytes, payload }),
            scratch: python.and_then(|python| python.scratch),
            read_only,
            limits: Limits {
                wall_ms: 0,
                cpu_s: CPU_LIMIT_S,
                memory_bytes: limits.memory_bytes,
                file_bytes: 0,
                processes: if kind.python { PYTHON_THREADS } else { 1 },
                output_bytes: OUTPUT_BYTES,
            },
            means: host.jail.means,
            device: kind.device.clone(),
            // Python looks at the processor and at itself, and its address space says nothing about its memory.
            as_tool: kind.python,
        };
        let jail = Jail::start(&host.jail, &jail_plan, &[theirs.as_fd(), theirs_page.as_fd()], cancel)?;
        Ok(Self {
            jail,
            channel,
            page,
            windows: None,
            nonces,
            cancel: cancel.clone(),
            limits,
            shared_bytes: 0,
            base_private_bytes: 0,
            base_total_bytes: 0,
            peak_bytes: 0,
            program: folder.path().to_path_buf(),
            kind,
            report: SandboxReport::default(),
            state: State::Starting,
            folder,
            _scratch: scratch,
        })
    }

    /// Waits until the process is restricted and a Python process has loaded `PyTorch`. It has not opened its device then, unless it
    /// runs libraries.
    pub(crate) fn load_runtime(&mut self) -> Result<(), ProgramError> {
        if self.state >= State::Restricted {
            return Ok(());
        }
        let deadline = self.jail.ran_for() + START_LIMIT;
        while self.jail.report.is_none() && !self.jail.has_ended() {
            if self.cancel.is_cancelled() {
                return Err(ProcessError::Cancelled.into());
            }
            if self.jail.ran_for() > deadline {
                return Err(ProcessError::Setup("the program's process did not get ready".to_owned()).into());
            }
            self.jail.pump(WATCH_INTERVAL, None)?;
        }
        let Some(report) = self.jail.report.clone() else {
            let ended = || "the program's process ended before it was ready".to_owned();
            return Err(ProcessError::Setup(self.jail.setup_error.take().unwrap_or_else(ended)).into());
        };
        self.report = report;
        self.state = State::Restricted;
        if self.kind.python {
            self.ask_runtime(Request::Hello {})?;
        }
        Ok(())
    }

    /// Waits until the process has opened its device.
    pub(crate) fn make_ready(&mut self) -> Result<(), ProgramError> {
        self.load_runtime()?;
        if self.state >= State::Ready {
            return Ok(());
        }
        if self.kind.device.is_some() {
            self.ask_runtime(Request::Open {})?;
        }
        self.state = State::Ready;
        self.weigh();
        Ok(())
    }

    /// Asks a process that has loaded nothing foreign: how it ends is no fact about a program.
    fn ask_runtime(&mut self, request: Request) -> Result<(), ProgramError> {
        let limit_ms = if self.kind.python { PYTHON_LIMIT_MS } else { OPEN_LIMIT_MS };
        match self.ask(request, None, limit_ms) {
            Ok(_) => Ok(()),
            Err(ProgramError::Ended(ProcessEnd::DeviceFault { error, during })) => {
                Err(ProgramError::Device { error, during })
            }
            Err(ProgramError::Ended(end)) if self.kind.python => {
                let printed = self.printed();
                let said = printed.lines().last().map_or_else(String::new, |line| format!(": {line}"));
                Err(ProgramError::Python { reason: format!("{}{said}", end.describe()) })
            }
            Err(ProgramError::Ended(end)) => {
                Err(ProgramError::Device { error: end.describe(), during: "opening it".to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    /// Remembers what the process weighs before anything foreign is in it.
    fn weigh(&mut self) {
        let base = self.jail.measure_memory();
        self.base_private_bytes = base.map_or(0, |resident| resident.private);
        self.base_total_bytes = base.map_or(0, |resident| resident.total);
        self.peak_bytes = 0;
    }

    /// Gives a process that waited the limits of the program that it gets.
    pub(crate) fn adopt(&mut self, limits: ProcessLimits, cancel: &CancelFlag) {
        self.limits = limits;
        self.cancel = cancel.clone();
    }

    /// Copies a program to where the process can read it.
    pub(crate) fn receive_program(&mut self, program: &Path) -> Result<PathBuf, ProgramError> {
        let name = program.file_name().unwrap_or_else(|| "program".as_ref());
        let folder = self.folder.path().canonicalize().map_err(os("finding the folder of the program"))?;
        let place = folder.join(name);
        std::fs::copy(program, &place).map_err(os("copying the program"))?;
        self.program.clone_from(&place);
        Ok(place)
    }

    /// Remembers how much memory is shared with the process, and limits what else it may use.
    pub(crate) fn share_memory(&mut self, bytes: u64) -> Result<(), ProgramError> {
        // The memory of a device is no memory of the process.
        self.shared_bytes = if self.kind.device.is_some() { 0 } else { bytes };
        self.jail.limit_memory(self.limits.memory_bytes, self.shared_bytes)?;
        Ok(())
    }

    /// Lets the process map memory.
    pub(crate) fn map(
        &mut self,
        size: usize,
        exported: Exported,
        layouts: Vec<Layout>,
        limit_ms: u64,
    ) -> Result<(), ProgramError> {
        let (descriptor, handle) = match exported {
            Exported::Descriptor(descriptor) => (Some(descriptor), None),
            Exported::Handle(handle) => (None, Some(handle)),
        };
        self.ask(Request::Map { size, handle, layouts }, descriptor.as_ref(), limit_ms)?;
        Ok(())
    }

    /// Isolation in force.
    pub(crate) fn sandbox(&self) -> &SandboxReport {
        &self.report
    }

    /// Returns whether the process is over.
    pub(crate) fn is_over(&self) -> bool {
        self.jail.has_ended()
    }

    /// Lets the process follow the control page.
    pub(crate) fn enter_windows(&mut self) -> Result<(), ProgramError> {
        if self.windows.is_none() {
            let nonce = self.nonces.draw();
            self.send(&Message { nonce, request: Request::Windows {} }, None)?;
            self.windows = Some(nonce);
        }
        Ok(())
    }

    /// Lets the process wait for messages again.
    pub(crate) fn leave_windows(&mut self, limit_ms: u64) -> Result<(), ProgramError> {
        if self.windows.is_some() {
            self.page.start(Command { kind: WindowKind::Leave, count: 0 });
            self.wait_for_answer(limit_ms)?;
            self.read_end_of_windows(limit_ms)?;
        }
        Ok(())
    }

    /// Starts a window and waits for its end, on the evaluator's clock.
    pub(crate) fn window(&mut self, kind: WindowKind, count: usize, limit_ms: u64) -> Result<Window, ProgramError> {
        let started = Instant::now();
        self.page.start(Command { kind, count });
        let window = self.wait_for_answer_since(started, limit_ms)?;
        Ok(window)
    }

    fn wait_for_answer(&mut self, limit_ms: u64) -> Result<Window, ProgramError> {
        self.wait_for_answer_since(Instant::now(), limit_ms)
    }

    fn wait_for_answer_since(&mut self, started: Instant, limit_ms: u64) -> Result<Window, ProgramError> {
        let (mut looked, mut spin) = (started, Spin::default());
        let deadline = self.jail.ran_for() + Duration::from_millis(limit_ms);
        loop {
            if let Some(answer) = self.page.answer() {
                let elapsed = started.elapsed();
                if answer.status != 0 {
                    return Err(self.failed_window(limit_ms));
                }
                return Ok(Window { elapsed, events_ns: answer.events_ns });
            }
            spin.once();
            let now = Instant::now();
            if now.duration_since(looked) >= LOOK_INTERVAL {
                looked = now;
                if self.jail.ran_for() > deadline {
                    return Err(self.give_up(ProcessEnd::TimedOut { limit_ms }));
                }
                self.jail.pump(Duration::ZERO, None)?;
                if self.jail.has_ended() {
                    return Err(self.find_end());
                }
                self.watch()?;
            }
        }
    }

    /// A process that fails in a window stops following the page, and says why on its socket.
    fn failed_window(&mut self, limit_ms: u64) -> ProgramError {
        match self.read_end_of_windows(limit_ms) {
            Ok(()) => self.give_up_over_protocol("a call failed without a reason"),
            Err(error) => error,
        }
    }

    fn read_end_of_windows(&mut self, limit_ms: u64) -> Result<(), ProgramError> {
        let Some(nonce) = self.windows.take() else { return Ok(()) };
        let reply = self.receive(nonce, limit_ms)?;
        if let Some(fault) = reply.fault {
            return Err(self.give_up(ProcessEnd::DeviceFault { error: fault.error, during: fault.during }));
        }
        self.succeeded("ns_run", reply.status)
    }

    /// Ends the program if an entry point returned an error.
    pub(crate) fn succeeded(&mut self, entry_point: &'static str, status: i32) -> Result<(), ProgramError> {
        if status == 0 {
            return Ok(());
        }
        let entry_point = match (self.kind.python, entry_point) {
            (false, native) => native,
            (true, "ns_init") => "load_state_dict",
            (true, _) => "forward",
        };
        Err(self.give_up(ProcessEnd::CallFailed { entry_point: entry_point.to_owned(), status }))
    }

    /// Stops every thread of the process, and returns once they are seen to be stopped.
    pub(crate) fn freeze(&mut self) -> Result<(), ProgramError> {
        self.jail.freeze()?;
        Ok(())
    }

    /// Lets the process go on.
    pub(crate) fn thaw(&mut self) -> Result<(), ProgramError> {
        self.jail.thaw()?;
        Ok(())
    }

    /// Ends the process.
    pub(crate) fn end(&mut self) {
        self.jail.kill();
    }

    /// Says whether the process is timed: then it runs on while others are stopped.
    pub(crate) fn set_timed(&mut self, is_timed: bool) {
        self.jail.set_timed(is_timed);
    }

    /// Moves the process to these cores, and its first thread to the first one of them where `pinned`.
    pub(crate) fn move_to(&self, cores: &[usize], pinned: bool) {
        self.jail.move_to(cores, pinned);
    }

    /// Returns how long the process has run, without the time for which it was stopped because something else was timed.
    pub(crate) fn ran_for(&self) -> Duration {
        self.jail.ran_for()
    }

    /// Returns for how long the process's first thread was ready to run and waited for a core, where the kernel counts it.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.jail.waited_ns().map(Duration::from_nanos)
    }

    /// Processor time that the process took so far, where the kernel tells.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        self.jail.processor_ns().map(Duration::from_nanos)
    }

    /// Ends several processes at the same time: what they hold on a device takes its time to be given back.
    pub(crate) fn end_all(processes: impl IntoIterator<Item = Self>) {
        let processes: Vec<Self> = processes.into_iter().collect();
        for process in &processes {
            process.jail.request_end();
        }
    }
}

/// What a Python process needs to start: its plan, its folder, and the folders that it reads.
type PythonStart = (Option<PythonPlan>, Option<TempDir>, Vec<PathBuf>);

fn python_plan(host: &Host, kind: &ProcessKind, cancel: &CancelFlag) -> Result<PythonStart, ProgramError> {
    let missing = |reason| ProgramError::Python { reason };
    let python = host.python(cancel).map_err(missing)?;
    let (folder, scratch) = if kind.device.is_some() {
        let search = host.python.as_ref().ok_or_else(|| missing("no Python is searched for here".to_owned()))?;
        let (folder, path) = search.own_folder().map_err(os("making a folder for Python"))?;
        (Some(folder), Some(path))
    } else {
        (None, None)
    };
    let plan = PythonPlan {
        program: python.program.clone(),
        bytecode: python.bytecode.clone(),
        models: python.models.clone(),
        scratch,
    };
    Ok((Some(plan), folder, python.folders.clone()))
}
