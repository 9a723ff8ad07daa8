//! The runner's side: loads the library and calls it when asked to. It runs restricted, knows nothing about expected
//! results, and is believed in nothing but what the parent can see for itself.

use std::ffi::{CString, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use rustix::time::{ClockId, clock_gettime};

use super::arena::map_shared;
use super::device::{Addresses, Arena as DeviceArena, Device, DeviceTime};
use super::driver::fault_of_status;
use super::message::{Fault, Mix, Reply, Request};
use super::plan::{Layout, Placed, RunnerPlan};
use nightshift_sandbox::process::{receive_from_parent, send};
use nightshift_sandbox::refuse_start_up_calls;

/// Exit status of a runner that was given something it cannot work with.
const UNUSABLE: i32 = 126;

/// `ns_tensor` of the native contract.
#[repr(C)]
struct NsTensor {
    data: *mut c_void,
    dtype: i32,
    rank: i32,
    shape: *const i64,
    strides: *const i64,
    name: *const std::ffi::c_char,
}

// Foreign code may throw, whatever the contract says. That must not be undefined on its way to where it ends.
type NsInit = unsafe extern "C-unwind" fn(*const NsTensor, i32, *mut *mut c_void) -> i32;
type NsRun =
    unsafe extern "C-unwind" fn(*mut c_void, *const NsTensor, i32, *mut NsTensor, i32, *mut c_void, *mut c_void) -> i32;
type NsFree = unsafe extern "C-unwind" fn(*mut c_void);

/// The entry points of a loaded library.
struct Program {
    init: Option<NsInit>,
    run: NsRun,
    free: Option<NsFree>,
}

/// The parts of a descriptor that it points to. Kept apart, so that fresh descriptors can be made for every call.
struct Described {
    data: *mut c_void,
    dtype: i32,
    shape: Vec<i64>,
    strides: Vec<i64>,
    name: CString,
}

impl Described {
    fn new(placed: &Placed, data: *mut c_void) -> Self {
        let mut strides = vec![1_i64; placed.shape.len()];
        for axis in (1..placed.shape.len()).rev() {
            strides[axis - 1] = strides[axis] * placed.shape[axis];
        }
        Self {
            data,
            dtype: placed.dtype.abi_code(),
            shape: placed.shape.clone(),
            strides,
            name: CString::new(placed.name.as_bytes()).unwrap_or_default(),
        }
    }

    fn all(tensors: &[Placed], data: &[*mut c_void]) -> Vec<Self> {
        tensors.iter().zip(data).map(|(placed, data)| Self::new(placed, *data)).collect()
    }

    fn descriptor(&self) -> NsTensor {
        NsTensor {
            data: self.data,
            dtype: self.dtype,
            rank: i32::try_from(self.shape.len()).unwrap_or(i32::MAX),
            shape: self.shape.as_ptr(),
            strides: self.strides.as_ptr(),
            name: self.name.as_ptr(),
        }
    }
}

/// Answers requests until the parent is gone. Returns the exit status.
pub(crate) fn serve(plan: &str, descriptors: Vec<OwnedFd>) -> i32 {
    let Ok(plan) = serde_json::from_str::<RunnerPlan>(plan) else { return UNUSABLE };
    let plan = &plan;
    let mut work = Work { plan, descriptors, status: UNUSABLE };
    // SAFETY: the function takes the pointer for what it is, and nobody else uses the work meanwhile.
    unsafe { bottom_of_the_stack(answer_all, (&raw mut work).cast()) };
    work.status
}

/// What [`answer_all`] is given.
struct Work<'a> {
    plan: &'a RunnerPlan,
    descriptors: Vec<OwnedFd>,
    status: i32,
}

unsafe extern "C-unwind" fn answer_all(work: *mut c_void) {
    // SAFETY: `serve` passes a pointer to its work, and waits.
    let work = unsafe { &mut *work.cast::<Work<'_>>() };
    work.status = answer_requests(work.plan, std::mem::take(&mut work.descriptors));
}

/// Calls a function from a frame that looks like the first one of the stack. An exception that foreign code does not
/// catch finds nobody beyond it, so the C++ runtime says what was thrown and aborts, as in a program of its own;
/// otherwise the start-up code of this binary would catch it, and say nothing.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn bottom_of_the_stack(
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C-unwind" fn bottom_of_the_stack(
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
) {
    // SAFETY: as the caller promises.
    unsafe { function(argument) };
}

fn answer_requests(plan: &RunnerPlan, descriptors: Vec<OwnedFd>) -> i32 {
    let mut descriptors = descriptors.into_iter();
    let (Some(memory), Some(channel)) = (descriptors.next(), descriptors.next()) else { return UNUSABLE };
    // The program can close any descriptor. Closing ours a second time would be taken for a fault of this runner.
    let channel = ManuallyDrop::new(channel);
    let Ok(mut arena) = map_shared(&memory, plan.total_bytes, plan.on_device) else { return UNUSABLE };
    drop(memory);
    let mut runner = Runner::new(plan.clone(), arena.as_mut_ptr(), true);
    if plan.on_device {
        // Before it is asked to: others get ready meanwhile.
        runner.opened = Some(runner.open());
    } else if runner.take_shape(0).is_err() {
        return UNUSABLE;
    }
    while let Ok(Some(received)) = receive_from_parent::<Request>(&*channel) {
        let reply = match received.message {
            Request::Take { nonce, plan } => {
                if let Some(memory) = received.descriptors.first() {
                    runner.leave_arena();
                    let Ok(mapped) = map_shared(memory, plan.total_bytes, plan.on_device) else { return UNUSABLE };
                    arena = mapped;
                    runner.take_arena(arena.as_mut_ptr(), plan.total_bytes);
                }
                Some(Reply { nonce, fault: runner.take(*plan).err(), ..Reply::default() })
            }
            request => runner.answer(request),
        };
        let Some(reply) = reply else { return UNUSABLE };
        if send(&*channel, &reply, &[]).is_err() {
            break;
        }
    }
    0
}

/// The tensors of one shape, as the program is given them.
struct Shape {
    params: Vec<Described>,
    /// The weights come behind the inputs.
    inputs: Vec<Described>,
    outputs: Vec<Described>,
    workspace: *mut c_void,
}

impl Shape {
    fn new(layout: &Layout, addresses: &Addresses) -> Self {
        let mut inputs = Described::all(&layout.inputs, &addresses.inputs);
        inputs.extend(Described::all(&layout.params, &addresses.params));
        Self {
            params: Described::all(&layout.params, &addresses.params),
            inputs,
            outputs: Described::all(&layout.outputs, &addresses.outputs),
            workspace: addresses.workspace,
        }
    }
}

pub(super) struct Runner {
    plan: RunnerPlan,
    arena: DeviceArena,
    /// Whether it keeps memory of the device that it frees.
    pooled: bool,
    device: Option<Device>,
    /// How the taking hold of the device went, until somebody asks.
    opened: Option<Result<(), Fault>>,
    shape: Option<Shape>,
    /// Number of that shape.
    number: usize,
    /// The same tensors of that shape for the calls of a sample beyond the first.
    rotation: Vec<Shape>,
    program: Option<Program>,
    state: *mut c_void,
}

/// What a request comes to: a reply, or a fault of the device. Nothing when it came out of turn.
type Answer = Option<Result<Reply, Fault>>;

impl Runner {
    /// A runner that has loaded nothing yet. Where memory of the device is `pooled`, tools that look for errors of memory see
    /// less.
    pub(super) fn new(plan: RunnerPlan, arena: *mut u8, pooled: bool) -> Self {
        let arena = DeviceArena(arena);
        Self {
            plan,
            arena,
            pooled,
            device: None,
            opened: None,
            shape: None,
            number: 0,
            rotation: Vec::new(),
            program: None,
            state: std::ptr::null_mut(),
        }
    }

    pub(super) fn answer(&mut self, request: Request) -> Option<Reply> {
        let nonce = request.nonce();
        let answer = match request {
            Request::Hello { .. } => Some(Ok(Reply::default())),
            Request::Open { .. } => {
                let opened = self.opened.take().unwrap_or_else(|| self.open());
                Some(opened.map(|()| Reply::default()))
            }
            // Comes with an arena, so that whoever keeps it answers.
            Request::Take { .. } => None,
            Request::Load { .. } => Some(Ok(self.load())),
            Request::Shape { layout, .. } => Some(self.take_shape(layout).map(|()| Reply::default())),
            Request::Rest { keep_bytes, .. } => Some(self.rest(keep_bytes)),
            Request::Hold { bytes, .. } => {
                self.device.as_ref()?.hold(narrow(bytes));
                Some(Ok(Reply::default()))
            }
            Request::Init { .. } => self.init(),
            Request::Run { poison, weights, outputs_only, .. } => match &self.device {
                None => self.run().map(|(status, elapsed_ns)| Ok(Reply { status, elapsed_ns, ..Reply::default() })),
                Some(_) => self.run_on_device(poison, weights, outputs_only),
            },
            Request::Stage { set, .. } => Some(self.device.as_mut()?.stage(set).map(|()| Reply::default())),
            Request::Rotate { calls, .. } => self.rotate(calls),
            Request::Sample { poison, mixes, .. } => self.sample(&mixes, poison),
            Request::Keep { call, slot, .. } => {
                Some(self.device.as_mut()?.keep_call(call, slot).map(|()| Reply::default()))
            }
            Request::Burst { poison, mixes, slots, empty, .. } => self.on_device(empty, |device, call| {
                device.burst(&mixes, poison, slots, call).map(|status| (status, DeviceTime::default()))
            }),
            Request::Graph { launches, .. } => self.on_device(false, |device, call| device.graph(launches, call)),
            Request::Fetch { slot, outputs_only, .. } => {
                Some(self.device.as_ref()?.fetch(slot, outputs_only).map(|()| Reply::default()))
            }
        };
        Some(match answer? {
            Ok(reply) => Reply { nonce, ..reply },
            Err(fault) => Reply { nonce, fault: Some(fault), ..Reply::default() },
        })
    }

    /// Takes hold of the device, and makes room for the first shape.
    fn open(&mut self) -> Result<(), Fault> {
        self.device = Some(Device::open(self.arena, self.plan.total_bytes, self.pooled)?);
        if self.plan.filtered {
            refuse_start_up_calls().map_err(|error| Fault { during: "filtering system calls".to_owned(), error })?;
        }
        // A process that was started ahead of time is told of its shapes later.
        if self.plan.layouts.is_empty() { Ok(()) } else { self.take_shape(0) }
    }

    /// Uses the arena no more: it is about to be given back.
    fn leave_arena(&mut self) {
        if let Some(device) = &mut self.device {
            device.leave_arena();
        }
    }

    fn take_arena(&mut self, arena: *mut u8, size_bytes: usize) {
        self.arena = DeviceArena(arena);
        if let Some(device) = &mut self.device {
            device.take_arena(self.arena, size_bytes);
        }
    }

    /// Takes a library and its shapes, in place of none.
    fn take(&mut self, plan: RunnerPlan) -> Result<(), Fault> {
        let during = || "taking a plan".to_owned();
        if self.program.is_some() {
            return Err(Fault { during: during(), error: "there is a program already".to_owned() });
        }
        let Some(device) = &mut self.device else {
            return Err(Fault { during: during(), error: "there is no device".to_owned() });
        };
        device.expect_tensors(plan.total_bytes);
        self.plan = plan;
        self.take_shape(0)
    }

    fn load(&mut self) -> Reply {
        let load_error = match load(&self.plan) {
            Ok(program) => {
                self.program = Some(program);
                None
            }
            Err(message) => Some(message),
        };
        Reply { load_error, ..Reply::default() }
    }

    fn take_shape(&mut self, number: usize) -> Result<(), Fault> {
        self.free();
        self.rotation = Vec::new();
        let Some(layout) = self.plan.layouts.get(number) else {
            return Err(Fault { during: "taking a shape".to_owned(), error: "there is no such shape".to_owned() });
        };
        let addresses = match &mut self.device {
            Some(device) => device.take_shape(layout)?,
            None => self.arena.addresses(layout),
        };
        self.shape = Some(Shape::new(layout, &addresses));
        self.number = number;
        Ok(())
    }

    fn rest(&mut self, keep_bytes: u64) -> Result<Reply, Fault> {
        self.free();
        (self.shape, self.rotation) = (None, Vec::new());
        let kept_bytes = match &mut self.device {
            Some(device) => {
                // While no tensor is there: memory that one lies in cannot be given back.
                device.free_tensors()?;
                let keeps = keep_bytes > 0 && device.keeps_memory();
                device.give_back_to(if keeps { narrow(keep_bytes) + self.plan.total_bytes } else { 0 });
                if keeps { keep_bytes } else { 0 }
            }
            None => 0,
        };
        self.take_shape(0)?;
        Ok(Reply { kept_bytes, ..Reply::default() })
    }

    /// Makes room for samples of so many calls.
    fn rotate(&mut self, calls: usize) -> Answer {
        let (layout, device) = (self.plan.layouts.get(self.number)?, self.device.as_mut()?);
        self.rotation = Vec::new();
        let rotated = device.rotate(layout, calls);
        Some(rotated.map(|addresses| {
            self.rotation = addresses.iter().map(|addresses| Shape::new(layout, addresses)).collect();
            Reply::default()
        }))
    }

    /// Calls the program in a row, each time on the tensors of that call.
    fn sample(&mut self, mixes: &[Mix], poison: u32) -> Answer {
        let mut device = self.device.take()?;
        let stream = device.stream.handle();
        let Self { program, shape, rotation, state, .. } = self;
        let (program, first) = (program.as_ref()?, shape.as_ref()?);
        let of = |number: usize| number.checked_sub(1).and_then(|further| rotation.get(further)).unwrap_or(first);
        let done = device.sample(mixes, poison, &mut |number| call(program, of(number), *state, stream));
        self.device = Some(device);
        Some(done.map(timed))
    }

    /// Frees what the program made of earlier weights.
    fn free(&mut self) {
        let free = self.program.as_ref().and_then(|program| program.free);
        if let Some(free) = free.filter(|_| !self.state.is_null()) {
            // SAFETY: the state came from this library's `ns_init` and was not freed since.
            unsafe { free(self.state) };
        }
        self.state = std::ptr::null_mut();
    }

    fn init(&mut self) -> Answer {
        self.free();
        if let Some(Err(fault)) =
            self.device.as_ref().map(|device| device.upload_weights().and_then(|()| device.settle()))
        {
            return Some(Err(fault));
        }
        let (program, shape) = (self.program.as_ref()?, self.shape.as_ref()?);
        let Some(init) = program.init else { return Some(Ok(Reply::default())) };
        let params: Vec<NsTensor> = shape.params.iter().map(Described::descriptor).collect();
        // SAFETY: the library promises the native contract; descriptors and what they point to outlive the call. What it
        // does beside its promises can only hurt this process, which exists for that.
        let status = unsafe { init(params.as_ptr(), count(&params), &raw mut self.state) };
        let settled = self.device.as_ref().map_or(Ok(()), Device::settle);
        let fault = self.device.as_ref().and_then(|_| fault_of_status(status, "ns_init"));
        Some(settled.map(|()| Reply { status, fault, ..Reply::default() }))
    }

    fn run_on_device(&mut self, poison: u32, weights: bool, outputs_only: bool) -> Answer {
        let device = self.device.as_ref()?;
        let upload = || {
            if weights {
                device.upload_weights()?;
            }
            device.upload(poison)
        };
        if let Err(fault) = upload() {
            return Some(Err(fault));
        }
        let answer = self.on_device(false, |device, call| device.time(call))?;
        let download = |device: &Device| device.download(outputs_only);
        Some(answer.and_then(|reply| self.device.as_ref().map_or(Ok(()), download).map(|()| reply)))
    }

    /// Lets the device do something with calls of the program, or with nothing in their place.
    fn on_device(
        &mut self,
        empty: bool,
        act: impl FnOnce(&mut Device, &mut dyn FnMut() -> i32) -> Result<(i32, DeviceTime), Fault>,
    ) -> Answer {
        let mut device = self.device.take()?;
        let stream = device.stream.handle();
        let Self { program, shape, state, .. } = self;
        let (program, shape) = (program.as_ref()?, shape.as_ref()?);
        let done = act(&mut device, &mut || if empty { 0 } else { call(program, shape, *state, stream) });
        self.device = Some(device);
        Some(done.map(timed))
    }

    fn run(&mut self) -> Option<(i32, u64)> {
        let (program, shape) = (self.program.as_ref()?, self.shape.as_ref()?);
        let started = clock_gettime(ClockId::MonotonicRaw);
        let status = call(program, shape, self.state, std::ptr::null_mut());
        let ended = clock_gettime(ClockId::MonotonicRaw);
        let elapsed = (ended.tv_sec - started.tv_sec) * 1_000_000_000 + (ended.tv_nsec - started.tv_nsec);
        Some((status, u64::try_from(elapsed).unwrap_or(0)))
    }

    /// Calls the program once on what is in place, within the range that profilers are asked to look at.
    pub(super) fn call_marked(&mut self) -> Option<Reply> {
        let answer = self.on_device(false, |device, call| {
            device.profile(true);
            let status = call();
            device.settle()?;
            device.profile(false);
            Ok((status, DeviceTime::default()))
        })?;
        Some(answer.unwrap_or_else(|fault| Reply { fault: Some(fault), ..Reply::default() }))
    }
}

/// The answer to calls that were timed.
fn timed((status, time): (i32, DeviceTime)) -> Reply {
    let fault = fault_of_status(status, "ns_run");
    Reply { status, elapsed_ns: time.events_ns, rest_ns: Some(time.rest_ns), fault, ..Reply::default() }
}

/// Calls the program once.
fn call(program: &Program, shape: &Shape, state: *mut c_void, stream: *mut c_void) -> i32 {
    let inputs: Vec<NsTensor> = shape.inputs.iter().map(Described::descriptor).collect();
    let mut outputs: Vec<NsTensor> = shape.outputs.iter().map(Described::descriptor).collect();
    let outputs_count = count(&outputs);
    // SAFETY: as for `ns_init`; the workspace has the size that the contract names.
    unsafe {
        (program.run)(
            state,
            inputs.as_ptr(),
            count(&inputs),
            outputs.as_mut_ptr(),
            outputs_count,
            shape.workspace,
            stream,
        )
    }
}

fn narrow(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn count(tensors: &[NsTensor]) -> i32 {
    i32::try_from(tensors.len()).unwrap_or(i32::MAX)
}

fn load(plan: &RunnerPlan) -> Result<Program, String> {
    for path in &plan.libraries {
        // SAFETY: libraries of the toolkit, which the worker chose. They stay loaded.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        std::mem::forget(library.map_err(|error| describe(&error))?);
    }
    // SAFETY: runs the library's constructors. They are foreign code like the rest of it, and as restricted.
    let library = unsafe { Library::open(Some(&plan.library), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| describe(&error))?;
    // SAFETY: the symbols have the types of the native contract, or the library broke it.
    let program = unsafe {
        Program {
            init: library.get::<NsInit>("ns_init").ok().map(|symbol| *symbol),
            run: *library.get::<NsRun>("ns_run").map_err(|error| describe(&error))?,
            free: library.get::<NsFree>("ns_free").ok().map(|symbol| *symbol),
        }
    };
    // It stays loaded for the life of the process, so the entry points stay valid.
    std::mem::forget(library);
    Ok(program)
}

fn describe(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
