//! A loaded library behind the native contract (`nightshift.h`).

use std::ffi::{CString, c_char, c_void};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::message::ProgramPlan;
use super::tensors::Tensors;
use crate::layout::{Layout, Placed};

/// `ns_tensor` of the native contract.
#[repr(C)]
struct NsTensor {
    data: *mut c_void,
    dtype: i32,
    rank: i32,
    shape: *const i64,
    strides: *const i64,
    name: *const c_char,
}

// Foreign code may throw, whatever the contract says. That must not be undefined on its way to where it ends.
type NsInit = unsafe extern "C-unwind" fn(*const NsTensor, i32, *mut *mut c_void) -> i32;
type NsRun =
    unsafe extern "C-unwind" fn(*mut c_void, *const NsTensor, i32, *mut NsTensor, i32, *mut c_void, *mut c_void) -> i32;
type NsFree = unsafe extern "C-unwind" fn(*mut c_void);

/// The entry points of a loaded library, and what it prepared.
pub(super) struct NativeProgram {
    init: Option<NsInit>,
    run: NsRun,
    free: Option<NsFree>,
    state: *mut c_void,
}

/// Where a descriptor's pointers point to. Every call gets descriptors of its own, as a program may change them.
struct Described {
    data: *mut c_void,
    size: usize,
    dtype: i32,
    shape: Vec<i64>,
    strides: Vec<i64>,
    name: CString,
}

/// The tensors of one shape as the program is given them.
pub(super) struct NativeTensors {
    params: Vec<Described>,
    /// For each call: inputs followed by the weights, and outputs.
    calls: Vec<(Vec<Described>, Vec<Described>)>,
    workspace: *mut c_void,
}

impl Described {
    fn new(placed: &Placed, tensors: &mut Tensors) -> Self {
        let shape: Vec<i64> = placed.shape.iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect();
        let mut strides = vec![1_i64; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
        }
        Self {
            data: tensors.address(placed.region.offset),
            size: placed.region.size,
            dtype: if placed.element == crate::element::Element::F64 { 1 } else { placed.dtype.abi_code() },
            shape,
            strides,
            name: CString::new(placed.name.as_bytes()).unwrap_or_default(),
        }
    }

    fn all(placed: &[Placed], tensors: &mut Tensors) -> Vec<Self> {
        placed.iter().map(|placed| Self::new(placed, tensors)).collect()
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

impl NativeTensors {
    pub(super) fn new(layout: &Layout, tensors: &mut Tensors) -> Self {
        let mut calls = Vec::with_capacity(layout.calls.len());
        for call in &layout.calls {
            let mut inputs = Described::all(&call.inputs, tensors);
            inputs.extend(Described::all(&layout.params, tensors));
            calls.push((inputs, Described::all(&call.outputs, tensors)));
        }
        let params = Described::all(&layout.params, tensors);
        Self { params, calls, workspace: tensors.address(layout.workspace.offset) }
    }

    /// Addresses and sizes in bytes of the outputs of the first call.
    pub(super) fn outputs_of_first_call(&self) -> impl Iterator<Item = (u64, usize)> {
        let outputs = self.calls.first().map(|(_, outputs)| outputs.as_slice()).unwrap_or_default();
        outputs.iter().map(|output| (u64::try_from(output.data.addr()).unwrap_or(0), output.size))
    }
}

impl NativeProgram {
    /// Loads a library, with the libraries that it relies on.
    pub(super) fn load(plan: &ProgramPlan) -> Result<Self, String> {
        for path in &plan.libraries {
            // SAFETY: libraries of the toolkit, which the worker chose. They stay loaded.
            let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
            std::mem::forget(library.map_err(|error| describe(&error))?);
        }
        // SAFETY: runs the library's constructors. They are foreign code like the rest of it, and as restricted.
        let library = unsafe { Library::open(Some(&plan.program), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| describe(&error))?;
        // SAFETY: the symbols have the types of the native contract, or the library broke it.
        let program = unsafe {
            Self {
                init: library.get::<NsInit>("ns_init").ok().map(|symbol| *symbol),
                run: *library.get::<NsRun>("ns_run").map_err(|error| describe(&error))?,
                free: library.get::<NsFree>("ns_free").ok().map(|symbol| *symbol),
                state: std::ptr::null_mut(),
            }
        };
        // It stays loaded for the life of the process, so the entry points stay valid.
        std::mem::forget(library);
        Ok(program)
    }

    /// Frees what the program prepared.
    pub(super) fn free(&mut self) {
        if let Some(free) = self.free.filter(|_| !self.state.is_null()) {
            // SAFETY: the state came from this library's `ns_init` and was not freed since.
            unsafe { free(self.state) };
        }
        self.state = std::ptr::null_mut();
    }

    /// Lets the program prepare its weights.
    pub(super) fn init(&mut self, tensors: &NativeTensors) -> i32 {
        let Some(init) = self.init else { return 0 };
        let params: Vec<NsTensor> = tensors.params.iter().map(Described::descriptor).collect();
        // SAFETY: the library promises the native contract; descriptors and what they point to outlive the call. What it does
        // against its promises can only hurt this process, which exists for that.
        unsafe { init(params.as_ptr(), count(&params), &raw mut self.state) }
    }

    /// Calls the program once, on the buffers of the call of this number.
    pub(super) fn run(&self, tensors: &NativeTensors, number: usize, stream: *mut c_void) -> i32 {
        let Some((inputs, outputs)) = tensors.calls.get(number % tensors.calls.len().max(1)) else { return -1 };
        self.run_on(inputs, outputs.iter().map(Described::descriptor).collect(), tensors.workspace, stream)
    }

    /// The same on the buffers of the first call, with outputs at other addresses.
    pub(super) fn run_with_outputs(&self, tensors: &NativeTensors, addresses: &[u64], stream: *mut c_void) -> i32 {
        let Some((inputs, outputs)) = tensors.calls.first() else { return -1 };
        let at = |(output, address): (&Described, &u64)| NsTensor {
            data: std::ptr::without_provenance_mut(usize::try_from(*address).unwrap_or(0)),
            ..output.descriptor()
        };
        self.run_on(inputs, outputs.iter().zip(addresses).map(at).collect(), tensors.workspace, stream)
    }

    fn run_on(
        &self,
        inputs: &[Described],
        mut outputs: Vec<NsTensor>,
        workspace: *mut c_void,
        stream: *mut c_void,
    ) -> i32 {
        let inputs: Vec<NsTensor> = inputs.iter().map(Described::descriptor).collect();
        let outputs_count = count(&outputs);
        // SAFETY: as for `init`; the workspace has the size that the contract names.
        unsafe {
            (self.run)(
                self.state,
                inputs.as_ptr(),
                count(&inputs),
                outputs.as_mut_ptr(),
                outputs_count,
                workspace,
                stream,
            )
        }
    }
}

fn count(tensors: &[NsTensor]) -> i32 {
    i32::try_from(tensors.len()).unwrap_or(i32::MAX)
}

fn describe(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Calls a function from a frame that looks like the first one of the stack. An exception that foreign code does not catch finds
/// no handler beyond it, so the C++ runtime says what was thrown and aborts, as in a program of its own; otherwise the start-up
/// code of this binary would catch it, and say nothing.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) unsafe extern "C-unwind" fn bottom_of_the_stack(
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
pub(super) unsafe extern "C-unwind" fn bottom_of_the_stack(
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
) {
    // SAFETY: as the caller promises.
    unsafe { function(argument) };
}
