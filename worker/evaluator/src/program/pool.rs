//! Processes that wait for a program, and trusted programs that stay loaded.
//!
//! Opening a device takes a process 0.2 s, and loading `PyTorch` 5 to 8 s. So processes that have run nothing yet wait for
//! programs, and those of a task's reference and truth stay loaded from one step to the next. A process that ran a candidate is
//! never kept.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::task::TorchSpec;
use nightshift_sandbox::DeviceAccess;
use nightshift_sandbox::process::{CancelFlag, ProcessError};
use nightshift_toolchain::Host;

use super::process::{Process, ProcessKind, ProcessLimits};
use crate::lock::{DeviceLock, DeviceMode, holds_guard};

/// How long a process waits for a program, and a trusted program for its next use.
const KEPT_FOR: Duration = Duration::from_mins(2);

/// Processes of a kind that wait at most: as many as a check takes, one each for candidate, reference and truth.
const SPARE: usize = 3;

/// How often the pool looks for idle processes to end.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// How long the end of the pool waits for processes that are starting. They are cancelled, and end within a few seconds.
const DROP_LIMIT: Duration = Duration::from_secs(30);

/// Parts of the capacity that a process takes: a Python process with `PyTorch` takes twice the memory of others.
fn weight(kind: &ProcessKind) -> usize {
    if kind.python { 2 } else { 1 }
}

/// A trusted program, by everything that its process depends on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrustedProgram {
    program: ArtifactHash,
    torch: Option<TorchSpec>,
    double: bool,
    strict: bool,
}

impl TrustedProgram {
    /// Names a program by its bytes; none where they cannot be read.
    pub(crate) fn of(program: &Path, torch: Option<&TorchSpec>, (double, strict): (bool, bool)) -> Option<Self> {
        let program = ArtifactHash::of(&std::fs::read(program).ok()?);
        Some(Self { program, torch: torch.cloned(), double, strict })
    }
}

/// Number of processes that known programs need. The pool starts no others ahead of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessDemand {
    /// Processes that run libraries.
    pub native: usize,
    /// Python processes.
    pub python: usize,
}

impl ProcessDemand {
    fn of(&mut self, kind: &ProcessKind) -> &mut usize {
        if kind.python { &mut self.python } else { &mut self.native }
    }
}

/// Processes of one device.
#[derive(Debug)]
pub struct ProcessPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    host: Host,
    lock: Arc<DeviceLock>,
    capacity: usize,
    /// Cancels spare processes that are starting. A step gives the process that it checks out its own flag.
    cancel: CancelFlag,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Processes that have run nothing, the oldest first.
    spare: Vec<(Process, Instant)>,
    /// Kinds of the spare processes that are starting.
    starting: Vec<ProcessKind>,
    /// Trusted programs that stay loaded, the one that was used last at the end.
    resident: Vec<Resident>,
    /// The capacity that processes of steps and tools take.
    in_use: usize,
    /// When a process of each kind was asked for last.
    asked: Vec<(ProcessKind, Instant)>,
    demand: Option<ProcessDemand>,
    /// Number of guards during which no process is kept.
    pauses: usize,
    closed: bool,
}

#[derive(Debug)]
struct Resident {
    process: Process,
    program: TrustedProgram,
    used: Instant,
}

/// A part of the capacity, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    shared: Weak<Shared>,
    weight: usize,
}

/// Guard during which the pool keeps no processes and starts none ahead of time.
#[derive(Debug)]
pub struct PoolPause(Weak<Shared>);

impl Drop for PoolPause {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.state().pauses -= 1;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.state().in_use -= self.weight;
        }
    }
}

impl State {
    fn kept(&self) -> usize {
        let spare = self.spare.iter().map(|(process, _)| weight(&process.kind));
        let starting = self.starting.iter().map(weight);
        spare.chain(starting).chain(self.resident.iter().map(|resident| weight(&resident.process.kind))).sum()
    }

    /// Returns how many processes of a kind the pool starts ahead of time.
    fn spare_wanted(&mut self, kind: &ProcessKind) -> usize {
        self.demand.as_mut().map_or(SPARE, |demand| SPARE.min(*demand.of(kind)))
    }

    /// Returns whether the pool keeps processes.
    fn keeps_any(&self) -> bool {
        !self.closed && self.pauses == 0
    }

    /// Counts one process of a kind less among those that are starting.
    fn no_longer_starts(&mut self, kind: &ProcessKind) {
        if let Some(position) = self.starting.iter().position(|starting| starting == kind) {
            self.starting.swap_remove(position);
        }
    }

    fn take_from_demand(&mut self, kind: &ProcessKind) {
        if let Some(demand) = &mut self.demand {
            let left = demand.of(kind);
            *left = left.saturating_sub(1);
        }
    }

    /// Takes processes out that are only kept, the longest unused first, until so much capacity is free.
    fn evict(&mut self, capacity: usize, wanted: usize) -> Vec<Process> {
        let mut evicted = Vec::new();
        while self.in_use + self.kept() + wanted > capacity {
            if !self.spare.is_empty() {
                evicted.push(self.spare.remove(0).0);
            } else if !self.resident.is_empty() {
                evicted.push(self.resident.remove(0).process);
            } else {
                break;
            }
        }
        evicted
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends processes; on a device that keeps the driver busy. Cancelled work does not wait for its turn.
    fn end(&self, processes: Vec<Process>, cancel: &CancelFlag) {
        if !processes.is_empty() {
            let _guard = self.lock.lock(DeviceMode::Driver, cancel);
            Process::end_all(processes);
        }
    }

    /// Starts spare processes of a kind that was asked for, as many as there is room for.
    fn replenish(self: &Arc<Self>, kind: &ProcessKind) {
        loop {
            {
                let mut state = self.state();
                let wanted = state.spare_wanted(kind);
                let spare = state.spare.iter().filter(|(process, _)| process.kind == *kind).count();
                let starting = state.starting.iter().filter(|starting| *starting == kind).count();
                let has_room = state.in_use + state.kept() + weight(kind) <= self.capacity;
                if !state.keeps_any() || spare + starting >= wanted || !has_room {
                    return;
                }
                state.starting.push(kind.clone());
            }
            let (shared, kind_of_new) = (Arc::clone(self), kind.clone());
            let start = move || {
                let kind = kind_of_new;
                let started = shared.start(&kind, &shared.cancel);
                let mut state = shared.state();
                match started {
                    Ok(process) if state.keeps_any() => state.spare.push((process, Instant::now())),
                    Ok(process) => {
                        drop(state);
                        // It counts as starting until it is gone: the step that waits for that wants its memory.
                        shared.end(vec![process], &shared.cancel);
                        state = shared.state();
                    }
                    // The step that needs one starts its own, and says what is wrong.
                    Err(error) => tracing::debug!(error = %error, "no process could be started ahead of time"),
                }
                state.no_longer_starts(&kind);
                drop(state);
                shared.changed.notify_all();
            };
            if let Err(error) = std::thread::Builder::new().name("spare process".to_owned()).spawn(start) {
                tracing::warn!(error = %error, "no thread could be started for a spare process");
                self.state().no_longer_starts(kind);
                self.changed.notify_all();
                return;
            }
        }
    }

    fn start(&self, kind: &ProcessKind, cancel: &CancelFlag) -> Result<Process, super::ProgramError> {
        let limits = ProcessLimits { memory_bytes: u64::MAX, shared_bytes: 0, core: None };
        let open = |mut process: Process| process.make_ready().map(|()| process);
        if kind.python {
            // A Python process loads for seconds before it opens the device.
            let mut process = Process::launch(&self.host, kind.clone(), limits, cancel)?;
            process.load_runtime()?;
            let _guard = self.lock.lock(DeviceMode::Driver, cancel)?;
            open(process)
        } else {
            let _guard = self.lock.lock(DeviceMode::Driver, cancel)?;
            open(Process::launch(&self.host, kind.clone(), limits, cancel)?)
        }
    }
}

impl ProcessPool {
    /// Keeps processes of one device, with so much capacity: a process of libraries takes one part, a Python process two. Without a demand,
    /// more programs may always come.
    #[must_use]
    pub fn new(host: Host, lock: Arc<DeviceLock>, capacity: usize, demand: Option<ProcessDemand>) -> Self {
        let (state, changed) = (Mutex::new(State { demand, ..State::default() }), Condvar::new());
        let shared = Arc::new(Shared { host, lock, capacity, cancel: CancelFlag::default(), state, changed });
        let weak = Arc::downgrade(&shared);
        let look = move || {
            loop {
                std::thread::sleep(LOOK_INTERVAL);
                let Some(shared) = weak.upgrade() else { return };
                let over = {
                    let mut state = shared.state();
                    let now = Instant::now();
                    let is_old = |since: &Instant| now.duration_since(*since) > KEPT_FOR;
                    let spare = state.spare.extract_if(.., |(_, since)| is_old(since)).map(|(process, _)| process);
                    let mut over: Vec<Process> = spare.collect();
                    let unused = state.resident.extract_if(.., |resident| is_old(&resident.used));
                    over.extend(unused.map(|resident| resident.process));
                    over
                };
                shared.end(over, &shared.cancel);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("process pool".to_owned()).spawn(look) {
            tracing::warn!(error = %error, "no thread could be started that ends unused processes");
        }
        Self { shared }
    }

    /// Takes a part of the capacity for a process of a step or of a tool. Processes that are only kept make room for it.
    #[must_use]
    pub fn slot(&self, python: bool, cancel: &CancelFlag) -> Slot {
        let weight = if python { 2 } else { 1 };
        let evicted = {
            let mut state = self.shared.state();
            let evicted = state.evict(self.shared.capacity, weight);
            state.in_use += weight;
            evicted
        };
        self.shared.end(evicted, cancel);
        Slot { shared: Arc::downgrade(&self.shared), weight }
    }

    /// Returns a process that has run nothing, or starts one. It may still be starting.
    pub(crate) fn checkout(
        &self,
        kind: &ProcessKind,
        cancel: &CancelFlag,
    ) -> Result<(Process, Slot), super::ProgramError> {
        debug_assert!(!holds_guard(), "what is starting may wait for the guard of this thread");
        let taken = {
            let mut state = self.shared.state();
            state.asked.retain(|(asked, _)| asked != kind);
            state.asked.push((kind.clone(), Instant::now()));
            state.take_from_demand(kind);
            // One that is starting is ready before a new one would be.
            let is_coming = |state: &State| {
                !state.spare.iter().any(|(process, _)| process.kind == *kind) && state.starting.contains(kind)
            };
            let mut state = cancel.wait_while(&self.shared.changed, state, is_coming);
            if cancel.is_cancelled() {
                return Err(ProcessError::Cancelled.into());
            }
            let found = state.spare.iter().position(|(process, _)| process.kind == *kind);
            found.map(|position| state.spare.remove(position).0)
        };
        let slot = self.slot(kind.python, cancel);
        let process = match taken {
            Some(process) if !process.is_over() => process,
            _ => {
                let limits = ProcessLimits { memory_bytes: u64::MAX, shared_bytes: 0, core: None };
                Process::launch(&self.shared.host, kind.clone(), limits, cancel)?
            }
        };
        self.shared.replenish(kind);
        Ok((process, slot))
    }

    /// Returns the process in which a trusted program is loaded.
    pub(crate) fn checkout_resident(&self, program: &TrustedProgram, cancel: &CancelFlag) -> Option<(Process, Slot)> {
        let process = {
            let mut state = self.shared.state();
            let found = state.resident.iter().rposition(|resident| resident.program == *program)?;
            let resident = state.resident.remove(found);
            (!resident.process.is_over()).then_some(resident.process)
        }?;
        let slot = self.slot(process.kind.python, cancel);
        Some((process, slot))
    }

    /// Keeps the process of a trusted program loaded, where there is room.
    pub(crate) fn keep_resident(&self, process: Process, program: TrustedProgram, slot: Slot, cancel: &CancelFlag) {
        drop(slot);
        let mut state = self.shared.state();
        let has_room = state.in_use + state.kept() + weight(&process.kind) <= self.shared.capacity;
        let same = state.resident.iter().filter(|resident| resident.program == program).count();
        // Steps of a task that run at the same time have a process each; more than two of them are not worth their memory.
        if !state.keeps_any() || !has_room || same >= 2 {
            drop(state);
            return self.shared.end(vec![process], cancel);
        }
        state.resident.push(Resident { process, program, used: Instant::now() });
    }

    /// Ends every process that is only kept: the device is in doubt.
    pub fn clear(&self, cancel: &CancelFlag) {
        let over = {
            let mut state = self.shared.state();
            let spare: Vec<Process> = state.spare.drain(..).map(|(process, _)| process).collect();
            let resident: Vec<Process> = state.resident.drain(..).map(|resident| resident.process).collect();
            spare.into_iter().chain(resident).collect()
        };
        self.shared.end(over, cancel);
    }

    /// Ends every process that is only kept, also those that are starting, and keeps none until the guard is dropped. Returns early if the work
    /// is cancelled.
    #[must_use]
    pub fn pause(&self, cancel: &CancelFlag) -> PoolPause {
        self.shared.state().pauses += 1;
        let pause = PoolPause(Arc::downgrade(&self.shared));
        self.clear(cancel);
        drop(cancel.wait_while(&self.shared.changed, self.shared.state(), |state| !state.starting.is_empty()));
        pause
    }

    /// Ends processes that are only kept until a step has so many more bytes of the host's memory, by what a process takes.
    pub fn release_memory(&self, bytes: u64, bytes_per_process: u64, cancel: &CancelFlag) {
        let count = usize::try_from(bytes.div_ceil(bytes_per_process.max(1))).unwrap_or(usize::MAX);
        let over = {
            let mut state = self.shared.state();
            let (kept, in_use) = (state.kept(), state.in_use);
            state.evict(in_use + kept.saturating_sub(count), 0)
        };
        self.shared.end(over, cancel);
    }

    /// Starts the first processes of a known demand on a device.
    pub fn start_ahead(&self, device: &DeviceAccess) {
        let demand = self.shared.state().demand.unwrap_or_default();
        for (python, wanted) in [(false, demand.native), (true, demand.python)] {
            if wanted > 0 {
                self.shared.replenish(&ProcessKind { python, device: Some(device.clone()) });
            }
        }
    }

    /// Starts processes ahead of time for programs that will come soon, of the kinds that were asked for lately.
    pub fn expect_programs(&self) {
        let kinds: Vec<ProcessKind> = {
            let state = self.shared.state();
            let lately = state.asked.iter().filter(|(_, asked)| asked.elapsed() < KEPT_FOR);
            lately.map(|(kind, _)| kind.clone()).collect()
        };
        for kind in kinds {
            self.shared.replenish(&kind);
        }
    }
}

/// Ends all processes, also those that are starting, so that none is left running.
impl Drop for ProcessPool {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
        self.shared.state().closed = true;
        self.clear(&self.shared.cancel);
        // A process that has started meanwhile is ended by the thread that started it.
        let are_starting = |state: &mut State| !state.starting.is_empty();
        let waited = self.shared.changed.wait_timeout_while(self.shared.state(), DROP_LIMIT, are_starting);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            tracing::warn!("processes of a pool were still starting when it ended");
        }
    }
}

#[cfg(test)]
mod tests;
