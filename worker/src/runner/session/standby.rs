//! Processes on a device that outlive a step. Taking hold of a GPU takes longer than most checks, and drivers let one
//! process at a time do it; so what can be done before, or does not have to be done again, is not done while a step waits.
//!
//! Two kinds are kept. The *trusted* libraries of a task, its reference and its truth, rest until the next step needs them:
//! with tensors of its own for each step, and never longer than some minutes; so does, beside a model of `PyTorch`, a program
//! that passed its check, once, for its first measurement. And *spare* processes have taken hold of the device before
//! anybody knew for what: each is given one program, and ends with it. Beside the processes the questions to programs are kept
//! whose answers are known.

mod process;
mod shares;
mod table;
mod turns;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::task::{ConcreteShapes, TorchSpec};
use nightshift_toolchain::Host;

pub use self::shares::Place;
pub(crate) use self::shares::{SHARE_BYTES, SHARES_PER_CONTEXT};
use self::shares::{SHARES_BESIDE_KNOWN, shares, shares_of};
use self::table::{ExpectedMemory, Kept, Table};
pub(crate) use self::turns::Turn;
use self::turns::Turns;
use super::{DeviceUse, Launched, Session, SessionError, SessionOptions, Stage, doubled, is_python, os};
use crate::known::{KnownQuestions, Reserved, Subject};
use crate::room::{Part, Room};
use crate::runner::gate::{Gate, Stay};
use crate::runner::plan::RunnerPlan;
use nightshift_sandbox::process::{CancelFlag, Survivor, adopt_survivors, take_survivors};
use nightshift_sandbox::{DeviceAccess, Queues};

/// How long a process is kept that nobody asks for: it holds memory of the device.
const KEPT_FOR: Duration = Duration::from_mins(2);

/// How often somebody looks whether a process has been kept long enough.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Libraries' processes that take hold of the device at a time: drivers begin two contexts in less than twice the time of one,
/// and no more in any less.
const AT_A_TIME: usize = 2;

/// Queues to the device of processes that wait to be told of a program. Those that a result rests on have the usual ones, and are
/// new.
const OF_SPARE: Queues = Queues::OneForCopies;

/// Of all shares this part may be held by processes that wait to be told of a program.
const SPARE_PART: usize = 4;

/// The processes on standby on one device. Dropping it ends them.
#[derive(Debug)]
pub struct Standby {
    shared: Arc<Shared>,
    chores: Sender<Chore>,
}

/// Room that contexts do not have while a step with large tensors is at work.
#[derive(Debug)]
pub struct Withheld {
    shared: Arc<Shared>,
    shares: usize,
}

impl Drop for Withheld {
    fn drop(&mut self) {
        self.shared.withheld.fetch_sub(self.shares, Ordering::SeqCst);
    }
}

/// What a process can be used for again: everything that it was started with.
#[derive(Debug)]
pub(super) struct Purpose {
    library: ArtifactHash,
    torch: Option<TorchSpec>,
    shapes: Vec<ConcreteShapes>,
    double: bool,
    memory_bytes: u64,
    call_timeout_ms: u64,
    require_sandbox: bool,
    device: DeviceUse,
    queues: Queues,
    /// Whether it is a program that was checked, and none of the task's own libraries.
    checked: bool,
    born: Instant,
}

impl Purpose {
    fn of(options: &SessionOptions<'_>, device: &DeviceUse) -> Result<Self, SessionError> {
        let bytes = std::fs::read(options.library).map_err(os("reading the library"))?;
        Ok(Self {
            library: ArtifactHash::of(&bytes),
            torch: options.torch.cloned(),
            shapes: options.shapes.to_vec(),
            double: options.double,
            memory_bytes: options.memory_bytes,
            call_timeout_ms: options.call_timeout_ms,
            require_sandbox: options.require_sandbox,
            device: device.clone(),
            queues: options.queues,
            checked: false,
            born: Instant::now(),
        })
    }

    /// The same, of a program.
    fn of_checked(options: &SessionOptions<'_>, device: &DeviceUse) -> Result<Self, SessionError> {
        Ok(Self { checked: true, ..Self::of(options, device)? })
    }

    fn serves(&self, other: &Self) -> bool {
        let terms =
            |purpose: &Self| (purpose.double, purpose.memory_bytes, purpose.call_timeout_ms, purpose.require_sandbox);
        self.library == other.library
            && self.checked == other.checked
            && terms(self) == terms(other)
            && self.device == other.device
            && self.queues == other.queues
            && self.torch == other.torch
            && self.shapes == other.shapes
    }
}

/// What a process can become of which nobody knows yet what for.
#[derive(Debug, Clone, PartialEq)]
struct Kind {
    /// How it reaches the device.
    access: DeviceAccess,
    /// Whether it is a Python that has loaded `PyTorch`, which takes longer than all else.
    python: bool,
}

impl Kind {
    fn of(options: &SessionOptions<'_>, device: &DeviceUse) -> Self {
        Self { access: device.access.clone(), python: is_python(options.library) }
    }
}

#[derive(Debug)]
enum Chore {
    /// Have so many processes of a kind ready.
    Spare { kind: Kind, count: usize },
    /// End what waits for that.
    End,
}

/// Leave to keep some memory, with the part of it that it takes where that is counted.
#[derive(Debug)]
pub(super) struct Grant(Option<Part>);

/// Memory that a process has beside what the step was counted with that uses it.
#[derive(Debug, Default)]
pub(super) struct OwnMemory {
    machine: Option<Grant>,
    device: Option<Grant>,
}

impl OwnMemory {
    /// Whether there is some of the machine that a step could use.
    fn is_of_machine(&self) -> bool {
        matches!(self.machine, Some(Grant(Some(_))))
    }

    /// The same of the device.
    fn is_on_device(&self) -> bool {
        matches!(self.device, Some(Grant(Some(_))))
    }
}

/// Memory that steps take parts of.
#[derive(Debug)]
struct Memory {
    machine: Arc<Room>,
    device: Arc<Room>,
}

#[derive(Debug)]
struct Shared {
    host: Host,
    /// Where the folders of spare processes are made.
    scratch: PathBuf,
    gate: Arc<Gate>,
    /// Shares that the device has room for.
    room: usize,
    /// Of those, the ones whose memory has another use now.
    withheld: AtomicUsize,
    /// Shares of contexts in use, by whomever.
    in_use: Arc<AtomicUsize>,
    table: Mutex<Table>,
    known: KnownQuestions,
    turns: Turns,
    /// The memory that what is kept takes while nobody uses it; none where nobody else needs any.
    memory: OnceLock<Memory>,
    /// Processes that outlived their end, until a step speaks for them.
    survivors: Mutex<Vec<Survivor>>,
}

impl Standby {
    /// For a device with room for contexts of so many shares, on which this gate keeps steps apart. `scratch` is an existing folder
    /// without links in its path.
    #[must_use]
    pub fn new(host: Host, scratch: PathBuf, gate: Arc<Gate>, room: usize, known: KnownQuestions) -> Self {
        let (chores, for_later) = channel();
        let (in_use, table, survivors) = (Arc::default(), Mutex::default(), Mutex::default());
        let (withheld, turns, memory) = (AtomicUsize::new(0), Turns::default(), OnceLock::new());
        let shared =
            Arc::new(Shared { host, scratch, gate, room, withheld, in_use, table, known, turns, memory, survivors });
        let theirs = Arc::clone(&shared);
        // Without the thread nothing is ready before it is asked for, and all else works as it does.
        if let Err(error) =
            std::thread::Builder::new().name("GPU standby".to_owned()).spawn(move || theirs.do_chores(&for_later))
        {
            tracing::warn!(error = %error, "no thread could be started that keeps processes on the GPU ready");
        }
        Self { shared, chores }
    }

    /// In memories that steps take parts of: of the machine, and of the device.
    pub(crate) fn within(self, machine: Arc<Room>, device: Arc<Room>) -> Self {
        // Nobody asks for memory before there is something to be kept, and it is never set twice.
        let _ = self.shared.memory.set(Memory { machine, device });
        self
    }

    /// Gives memory of the machine back to a step that has to wait for some, a piece at a time: what is known, and then what
    /// waits for programs.
    pub(crate) fn give_machine_memory_back(&self, bytes: u64, beside: u64) {
        self.shared.known.make_room(bytes, beside);
        if self.shared.memory.get().is_some_and(|memory| !memory.machine.has_room(bytes, beside)) {
            self.end_spare_with(OwnMemory::is_of_machine);
        }
    }

    /// Gives memory of the device back to a step that has to wait for some, a piece at a time: what processes at rest keep, and
    /// then what waits for programs. Not for a thread that has a place on the device.
    pub(crate) fn give_device_memory_back(&self) {
        let Some(mut kept) = self.shared.table().take_trusted_with_device_memory() else {
            return self.end_spare_with(OwnMemory::is_on_device);
        };
        let rests = {
            let _beside = self.shared.gate.beside_others(Stay::Driver);
            kept.session.rest(None)
        };
        tracing::debug!("a process at rest gave its memory of the device to a step");
        let mut table = self.shared.table();
        if rests && !table.closed {
            return table.put_back(kept);
        }
        drop(table);
        self.end(vec![kept.session]);
    }

    fn end_spare_with(&self, has: impl Fn(&OwnMemory) -> bool) {
        let taken = self.shared.table().take_spare_with(has);
        if let Some(session) = taken {
            tracing::debug!("a process on standby gives its memory to a step");
            self.end(vec![session]);
        }
    }

    /// Takes a place among the contexts of the device, of a Python or not. Whoever is only kept makes room.
    #[must_use]
    pub fn place(&self, python: bool) -> Place {
        let shares = shares(python);
        loop {
            let mut table = self.shared.table();
            if self.shared.in_use.load(Ordering::SeqCst) + shares > self.shared.room()
                && self.shared.known.forget_longest()
            {
                continue;
            }
            if self.shared.in_use.load(Ordering::SeqCst) + shares > self.shared.room()
                && let Some(longest) = table.take_to_make_room()
            {
                drop(table);
                drop(longest);
                continue;
            }
            // Whoever is granted a step is granted its contexts: there is room once nobody is kept.
            return self.shared.take(shares);
        }
    }

    /// Takes the memory of so many shares for something else: processes that are only kept are ended until the others have
    /// room, and no more are kept than there is room for. Not for a thread that has a place on the device.
    #[must_use]
    pub fn withhold(&self, shares: usize) -> Withheld {
        // Never so many that sums of them could overflow.
        let shares = shares.min(self.shared.room);
        self.shared.withheld.fetch_add(shares, Ordering::SeqCst);
        let withheld = Withheld { shared: Arc::clone(&self.shared), shares };
        if self.shared.is_over_full() {
            let _beside = self.shared.gate.beside_others(Stay::Driver);
            self.shared.make_room();
        }
        withheld
    }

    /// Lets processes get ready until there are so many for programs that will be there soon, if there was one on this
    /// device lately: they will want what that one wanted.
    pub fn expect_programs(&self, count: usize) {
        let wanted = self.shared.table().wanted();
        for (kind, recent) in wanted {
            // Without the thread there is none, as above.
            let _ = self.chores.send(Chore::Spare { kind, count: count.max(recent) });
        }
    }

    /// Memory for questions whose answers are to be known, as far as neither contexts nor steps need it.
    pub(crate) fn reserve_known(&self, shapes: &[ConcreteShapes], bytes: u64) -> Option<Reserved> {
        let _table = self.shared.table();
        let free = self.shared.room().saturating_sub(self.shared.in_use.load(Ordering::SeqCst));
        if shares_of(bytes).saturating_add(SHARES_BESIDE_KNOWN) > free {
            return None;
        }
        self.shared.known.reserve(shapes, bytes)
    }

    /// Questions whose answers are known.
    #[must_use]
    pub fn known(&self) -> &KnownQuestions {
        &self.shared.known
    }

    /// Waits for a turn at the processes of a task's reference and truth. Not for a thread that has a place on the device.
    pub(super) fn turn(&self, of: &Subject, cancel: &CancelFlag) -> Option<Turn<'_>> {
        self.shared.turns.take(of, cancel)
    }

    /// Ends and forgets everything that is kept: something is wrong with the device, or may be.
    pub fn clear(&self) {
        self.shared.known.clear();
        self.end_kept();
    }

    /// Ends every process that is kept.
    pub fn end_kept(&self) {
        let kept = self.shared.table().take_all();
        if !kept.is_empty() {
            self.end(kept);
        }
    }

    /// Counts processes that outlived their end, which nobody waited for, as left behind by this thread: a device that keeps
    /// them is out of order, whoever finds out.
    pub(crate) fn adopt_survivors(&self) {
        adopt_survivors(std::mem::take(&mut *self.shared.survivors.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// How many processes are kept: trusted ones, and spare ones.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        let table = self.shared.table();
        (table.trusted.len(), table.spare.len())
    }

    pub(super) fn launch(
        &self,
        options: &SessionOptions<'_>,
        device: &DeviceUse,
        cancel: &CancelFlag,
    ) -> Result<Launched, SessionError> {
        match self.take_spare(options, device, cancel)? {
            Some(session) => Ok(Launched(Stage::Ready(session))),
            None => self.launch_new(options, cancel, None),
        }
    }

    /// A process that waited for a program like this one, with the program in it.
    fn take_spare(
        &self,
        options: &SessionOptions<'_>,
        device: &DeviceUse,
        cancel: &CancelFlag,
    ) -> Result<Option<Box<Session>>, SessionError> {
        if options.queues == Queues::Usual {
            return Ok(None);
        }
        let kind = Kind::of(options, device);
        let arena = RunnerPlan::new(PathBuf::new(), options.shapes, doubled(options), None).arena_bytes();
        self.shared.table().note(&kind, ExpectedMemory { arena, stock: options.stock_bytes });
        loop {
            let Some(mut session) = self.shared.table().take_spare(&kind) else { return Ok(None) };
            match session.take(&self.shared.host, options, cancel) {
                Ok(()) => return Ok(Some(Box::new(session))),
                Err(error @ SessionError::Insufficient(_)) => return Err(error),
                Err(error) => tracing::debug!(error = %error, "a process on standby could not be used"),
            }
        }
    }

    pub(super) fn launch_again(
        &self,
        options: &SessionOptions<'_>,
        device: &DeviceUse,
        cancel: &CancelFlag,
    ) -> Result<Launched, SessionError> {
        let purpose = Purpose::of(options, device)?;
        if let Some(session) = self.woken(&purpose, cancel) {
            return Ok(Launched(Stage::Ready(session)));
        }
        // What loads for seconds is taken from those that have loaded; a library leaves them to programs.
        let spare = if is_python(options.library) { self.take_spare(options, device, cancel)? } else { None };
        match spare {
            Some(mut session) => {
                session.purpose = Some(Box::new(purpose));
                Ok(Launched(Stage::Ready(session)))
            }
            None => self.launch_new(options, cancel, Some(Box::new(purpose))),
        }
    }

    /// Lets the process of a program that was checked be kept, when it is left, for its first measurement.
    pub(super) fn keep_for_measurement(
        session: &mut Session,
        options: &SessionOptions<'_>,
        device: &DeviceUse,
    ) -> Result<(), SessionError> {
        session.purpose = Some(Box::new(Purpose::of_checked(options, device)?));
        Ok(())
    }

    /// The process in which a program was checked with these options, or one that is new to it. It is not kept again.
    pub(super) fn launch_checked(
        &self,
        options: &SessionOptions<'_>,
        device: &DeviceUse,
        cancel: &CancelFlag,
    ) -> Result<Launched, SessionError> {
        match self.woken(&Purpose::of_checked(options, device)?, cancel) {
            Some(mut session) => {
                session.purpose = None;
                Ok(Launched(Stage::Ready(session)))
            }
            None => self.launch(options, device, cancel),
        }
    }

    /// A process that was kept for this.
    fn woken(&self, purpose: &Purpose, cancel: &CancelFlag) -> Option<Box<Session>> {
        loop {
            let mut session = self.shared.table().take_trusted(purpose)?;
            match session.wake(cancel) {
                Ok(()) => return Some(Box::new(session)),
                Err(error) => tracing::debug!(error = %error, "a process on standby could not be used again"),
            }
        }
    }

    fn launch_new(
        &self,
        options: &SessionOptions<'_>,
        cancel: &CancelFlag,
        purpose: Option<Box<Purpose>>,
    ) -> Result<Launched, SessionError> {
        let place = self.place(is_python(options.library));
        let mut launched = Session::launch(&self.shared.host, options, cancel)?;
        let Launched(Stage::Starting { session, .. } | Stage::Ready(session)) = &mut launched;
        (session.place, session.purpose) = (Some(place), purpose);
        Ok(launched)
    }

    pub(super) fn keep(&self, sessions: impl IntoIterator<Item = Session>) {
        let mut unusable = Vec::new();
        for mut session in sessions {
            // What it had beyond its step's is counted anew.
            session.own.device = None;
            let memory = self.shared.device_memory(session.stock_bytes());
            if !session.come_to_rest(memory) {
                unusable.push(session);
                continue;
            }
            let mut table = self.shared.table();
            if table.closed {
                unusable.push(session);
            } else {
                table.trusted.push(Kept { session, what: (), since: Instant::now() });
            }
        }
        self.shared.make_room();
        if !unusable.is_empty() {
            self.end(unusable);
        }
    }

    /// Lets them be ended while nobody takes times, so that no step waits for it.
    fn end(&self, sessions: Vec<Session>) {
        self.shared.table().over.extend(sessions);
        if self.chores.send(Chore::End).is_err() {
            // Without the thread, here.
            let over = std::mem::take(&mut self.shared.table().over);
            Session::end_all(over);
        }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.closed = true;
        let kept = table.take_all();
        drop(table);
        Session::end_all(kept);
    }
}

impl Shared {
    /// Takes room for a context. Whoever has the table knows that it is there.
    fn take(&self, shares: usize) -> Place {
        Place::take(&self.in_use, shares)
    }

    /// Shares that there is memory for now.
    fn room(&self) -> usize {
        let elsewhere = self.withheld.load(Ordering::SeqCst).saturating_add(shares_of(self.known.kept_bytes()));
        self.room.saturating_sub(elsewhere)
    }

    /// Ends processes that are only kept, the longest kept first, while memory of contexts has another use and too many are in
    /// use for what is left.
    fn make_room(&self) {
        while self.is_over_full() {
            if self.known.forget_longest() {
                continue;
            }
            let Some(longest) = self.table().take_to_make_room() else { return };
            drop(longest);
        }
    }

    /// Whether memory of contexts has another use and too many are in use for what is left.
    fn is_over_full(&self) -> bool {
        self.withheld.load(Ordering::SeqCst) > 0 && self.in_use.load(Ordering::SeqCst) > self.room()
    }

    /// Memory of the device for a process that nobody uses, if nobody else needs it.
    fn device_memory(&self, bytes: u64) -> Option<Grant> {
        self.part_of(|memory| &memory.device, bytes)
    }

    /// The same of the machine.
    fn machine_memory(&self, bytes: u64) -> Option<Grant> {
        self.part_of(|memory| &memory.machine, bytes)
    }

    fn part_of(&self, which: impl FnOnce(&Memory) -> &Arc<Room>, bytes: u64) -> Option<Grant> {
        match self.memory.get() {
            _ if bytes == 0 => None,
            Some(memory) => which(memory).take_if_free(bytes).map(|part| Grant(Some(part))),
            None => Some(Grant(None)),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn do_chores(self: &Arc<Self>, chores: &Receiver<Chore>) {
        loop {
            match chores.recv_timeout(LOOK_EVERY) {
                Ok(Chore::Spare { kind, count }) => {
                    // Several get ready side by side, and nobody waits for them: a Python loads for seconds.
                    for _ in 0..self.missing(&kind, count) {
                        let (shared, of_kind) = (Arc::clone(self), kind.clone());
                        let make = move || while shared.make_spare(&of_kind, count) && !of_kind.python {};
                        if let Err(error) = std::thread::Builder::new().name("GPU standby".to_owned()).spawn(make) {
                            tracing::warn!(error = %error, "no thread could be started that makes a process ready");
                        }
                    }
                }
                Ok(Chore::End) => self.end_beside_others(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.known.forget_old();
            let over = self.table().take_kept_since_before(Instant::now().checked_sub(KEPT_FOR));
            if !over.is_empty() {
                tracing::debug!(processes = over.len(), "processes on standby that nobody asked for are ended");
                self.table().over.extend(over);
                self.end_beside_others();
            }
        }
    }

    /// The end of a context disturbs who takes times as its beginning does.
    fn end_beside_others(&self) {
        let _beside = self.gate.beside_others(Stay::Driver);
        // Taken only now: whoever needs room meanwhile, ends one of them.
        let over = std::mem::take(&mut self.table().over);
        Session::end_all(over);
        let left = take_survivors();
        self.survivors.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }

    /// How many of this kind are neither ready nor getting so, of those that are wanted, as far as they get ready at once.
    fn missing(&self, kind: &Kind, wanted: usize) -> usize {
        let table = self.table();
        let missing = wanted.saturating_sub(table.spares_of(kind));
        if kind.python { missing } else { missing.min(AT_A_TIME.saturating_sub(table.coming_of(kind))) }
    }

    /// One more, unless there are as many as are wanted, or room for. Whether there is.
    fn make_spare(&self, kind: &Kind, wanted: usize) -> bool {
        let place = {
            let mut table = self.table();
            let shares = shares(kind.python);
            let most = (self.room() / SPARE_PART).max(shares);
            let full =
                table.spare_shares() + shares > most || self.in_use.load(Ordering::SeqCst) + shares > self.room();
            if table.closed || table.spares_of(kind) >= wanted || full {
                return false;
            }
            table.coming.push(kind.clone());
            self.take(shares)
        };
        let beside = || self.gate.beside_others(Stay::Driver);
        // As much as the programs before it had, if nobody else needs the memory.
        let expected = self.table().expected_memory(kind);
        let machine = self.machine_memory(expected.arena);
        let arena_bytes = if machine.is_some() { expected.arena } else { 0 };
        let stock_bytes = if kind.python || expected.stock == 0 { 0 } else { expected.arena + expected.stock };
        let device = self.device_memory(stock_bytes);
        let launch = || Session::launch_empty(&self.host, &self.scratch, kind, arena_bytes);
        let hold = |mut session: Session| match &device {
            Some(_) => session.hold(stock_bytes).map(|()| session),
            None => Ok(session),
        };
        let made = if kind.python {
            // It loads for seconds before it takes hold of the device.
            launch().and_then(Launched::load).and_then(|loaded| {
                let _beside = beside();
                loaded.wait().and_then(hold)
            })
        } else {
            let _beside = beside();
            launch().and_then(Launched::wait).and_then(hold)
        };
        self.table().has_come(kind);
        let mut session = match made {
            Ok(session) => session,
            // The step that wanted it starts its own, and says what is wrong.
            Err(error) => {
                tracing::debug!(error = %error, "no process could be put on standby");
                return false;
            }
        };
        session.place = Some(place);
        let held_bytes = session.stock_bytes();
        session.has(OwnMemory { machine, device }, held_bytes);
        let mut table = self.table();
        if table.closed {
            drop(table);
            drop(session);
        } else {
            table.spare.push(Kept { session, what: kind.clone(), since: Instant::now() });
            drop(table);
            if self.is_over_full() {
                let _beside = beside();
                self.make_room();
            }
        }
        true
    }
}
