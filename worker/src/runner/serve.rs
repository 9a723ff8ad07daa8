//! The runner's side: loads the library and calls it when asked to. It runs restricted, knows nothing about expected
//! results, and is believed in nothing but what the parent can see for itself.

use std::ffi::{CString, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::time::{ClockId, clock_gettime};

use super::arena::map_shared;
use super::message::{Reply, Request};
use super::plan::{Placed, RunnerPlan};
use crate::process::{receive, send};

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
    fn new(placed: &Placed, base: *mut u8) -> Self {
        let mut strides = vec![1_i64; placed.shape.len()];
        for axis in (1..placed.shape.len()).rev() {
            strides[axis - 1] = strides[axis] * placed.shape[axis];
        }
        // SAFETY: the plan's regions lie inside of the arena, whose size both sides know from the plan.
        let data = unsafe { base.add(placed.region.offset) }.cast();
        Self {
            data,
            dtype: placed.dtype.abi_code(),
            shape: placed.shape.clone(),
            strides,
            name: CString::new(placed.name.as_bytes()).unwrap_or_default(),
        }
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
pub(crate) fn serve(plan: &RunnerPlan, descriptors: Vec<OwnedFd>) -> i32 {
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
    let Ok(mut arena) = map_shared(&memory, plan.total_bytes) else { return UNUSABLE };
    drop(memory);
    let base = arena.as_mut_ptr();
    let describe = |tensors: &[Placed]| tensors.iter().map(|placed| Described::new(placed, base)).collect::<Vec<_>>();
    let (params, outputs) = (describe(&plan.params), describe(&plan.outputs));
    let mut inputs = describe(&plan.inputs);
    inputs.extend(describe(&plan.params));
    // SAFETY: as for the tensors.
    let workspace = unsafe { base.add(plan.workspace.offset) }.cast();
    let mut runner = Runner { params, inputs, outputs, workspace, program: None, state: std::ptr::null_mut() };
    while let Ok(Some(received)) = receive::<Request>(&*channel) {
        let Some(reply) = runner.answer(plan, received.message) else { return UNUSABLE };
        if send(&*channel, &reply, &[]).is_err() {
            break;
        }
    }
    0
}

struct Runner {
    params: Vec<Described>,
    inputs: Vec<Described>,
    outputs: Vec<Described>,
    workspace: *mut c_void,
    program: Option<Program>,
    state: *mut c_void,
}

impl Runner {
    fn answer(&mut self, plan: &RunnerPlan, request: Request) -> Option<Reply> {
        match request {
            Request::Load { nonce } => {
                let load_error = match load(plan) {
                    Ok(program) => {
                        self.program = Some(program);
                        None
                    }
                    Err(message) => Some(message),
                };
                Some(Reply { nonce, status: 0, elapsed_ns: 0, load_error })
            }
            Request::Init { nonce } => {
                let status = self.init()?;
                Some(Reply { nonce, status, elapsed_ns: 0, load_error: None })
            }
            Request::Run { nonce } => {
                let (status, elapsed_ns) = self.run()?;
                Some(Reply { nonce, status, elapsed_ns, load_error: None })
            }
        }
    }

    fn init(&mut self) -> Option<i32> {
        let program = self.program.as_ref()?;
        if let Some(free) = program.free.filter(|_| !self.state.is_null()) {
            // SAFETY: the state came from this library's `ns_init` and was not freed since.
            unsafe { free(self.state) };
        }
        self.state = std::ptr::null_mut();
        let Some(init) = program.init else { return Some(0) };
        let params: Vec<NsTensor> = self.params.iter().map(Described::descriptor).collect();
        // SAFETY: the library promises the native contract; descriptors and what they point to outlive the call. What it
        // does beside its promises can only hurt this process, which exists for that.
        Some(unsafe { init(params.as_ptr(), count(&params), &raw mut self.state) })
    }

    fn run(&mut self) -> Option<(i32, u64)> {
        let run = self.program.as_ref()?.run;
        let inputs: Vec<NsTensor> = self.inputs.iter().map(Described::descriptor).collect();
        let mut outputs: Vec<NsTensor> = self.outputs.iter().map(Described::descriptor).collect();
        let outputs_count = count(&outputs);
        let started = clock_gettime(ClockId::MonotonicRaw);
        // SAFETY: as for `ns_init`; the workspace has the size that the contract names.
        let status = unsafe {
            run(
                self.state,
                inputs.as_ptr(),
                count(&inputs),
                outputs.as_mut_ptr(),
                outputs_count,
                self.workspace,
                std::ptr::null_mut(),
            )
        };
        let ended = clock_gettime(ClockId::MonotonicRaw);
        let elapsed = (ended.tv_sec - started.tv_sec) * 1_000_000_000 + (ended.tv_nsec - started.tv_nsec);
        Some((status, u64::try_from(elapsed).unwrap_or(0)))
    }
}

fn count(tensors: &[NsTensor]) -> i32 {
    i32::try_from(tensors.len()).unwrap_or(i32::MAX)
}

fn load(plan: &RunnerPlan) -> Result<Program, String> {
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
