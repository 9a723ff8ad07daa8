//! The runner of libraries: answers messages until the evaluator is gone.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use nightshift_sandbox::process::{receive_from_parent, send};
use nightshift_sandbox::refuse_start_up_calls;

use super::control::{Answer, ControlPage, WindowKind};
use super::message::{Message, ProgramPlan, Reply, Request, StartPlan};
use super::native::{NativeProgram, NativeTensors, bottom_of_the_stack};
use super::tensors::{RunnerDevice, Tensors};
use crate::device::driver::{DeviceBuffer, copy};
use crate::device::error::error_of_status;
use crate::device::{DeviceError, Exported};

/// Exit status of a runner that was given something it cannot work with.
const UNUSABLE: i32 = 126;

/// Status of a window in which the device failed.
const DEVICE_FAILED: i32 = i32::MIN;

/// Answers messages until the evaluator is gone, and returns the exit status. Of the descriptors the first is the channel, the
/// second the control page.
pub fn serve(plan: &str, descriptors: Vec<OwnedFd>) -> i32 {
    let Ok(plan) = serde_json::from_str::<StartPlan>(plan) else { return UNUSABLE };
    let mut work = Work { plan, descriptors, status: UNUSABLE };
    // SAFETY: the function takes the pointer for what it is, and nothing else uses the work meanwhile.
    #[expect(unsafe_code, reason = "calls a function at the bottom of the stack")]
    unsafe {
        bottom_of_the_stack(answer_all, (&raw mut work).cast());
    }
    work.status
}

/// What [`answer_all`] is given.
struct Work {
    plan: StartPlan,
    descriptors: Vec<OwnedFd>,
    status: i32,
}

#[expect(unsafe_code, reason = "takes a pointer to its work")]
unsafe extern "C-unwind" fn answer_all(work: *mut c_void) {
    // SAFETY: `serve` passes a pointer to its work, and waits.
    let work = unsafe { &mut *work.cast::<Work>() };
    work.status = answer_messages(&work.plan, std::mem::take(&mut work.descriptors));
}

fn answer_messages(plan: &StartPlan, descriptors: Vec<OwnedFd>) -> i32 {
    let mut descriptors = descriptors.into_iter();
    let (Some(channel), Some(page_memory)) = (descriptors.next(), descriptors.next()) else { return UNUSABLE };
    // The program can close any descriptor. Closing ours a second time would be taken for a fault of this runner.
    let channel = ManuallyDrop::new(channel);
    let Ok(page) = ControlPage::open(&page_memory) else { return UNUSABLE };
    drop(page_memory);
    let mut runner = Runner { page, device: None, tensors: None, shape: None, copies: Vec::new(), program: None };
    // The device is opened before the first message: other processes get ready meanwhile.
    let mut opened = plan.on_device.then(|| runner.open(plan.filtered));
    while let Ok(Some(received)) = receive_from_parent::<Message>(&*channel) {
        let Message { nonce, request } = received.message;
        let answer = match request {
            Request::Open {} => opened.take().unwrap_or(Ok(())).map(|()| Reply::default()),
            request => runner.answer(request, received.descriptors.into_iter().next()),
        };
        let reply = answer.unwrap_or_else(|fault| Reply { fault: Some(fault), ..Reply::default() });
        if send(&*channel, &Reply { nonce, ..reply }, &[]).is_err() {
            break;
        }
    }
    0
}

/// One library with its memory.
struct Runner {
    page: ControlPage,
    program: Option<NativeProgram>,
    shape: Option<NativeTensors>,
    tensors: Option<Tensors>,
    /// Outputs of calls of which only what is complete in the order of the stream counts.
    copies: Vec<DeviceBuffer>,
    device: Option<RunnerDevice>,
}

fn out_of_turn(what: &str) -> DeviceError {
    DeviceError { during: "following the evaluator".to_owned(), error: what.to_owned() }
}

impl Runner {
    fn open(&mut self, filtered: bool) -> Result<(), DeviceError> {
        self.device = Some(RunnerDevice::open()?);
        if filtered {
            let refused = refuse_start_up_calls();
            refused.map_err(|error| DeviceError { during: "filtering system calls".to_owned(), error })?;
        }
        Ok(())
    }

    fn answer(&mut self, request: Request, descriptor: Option<OwnedFd>) -> Result<Reply, DeviceError> {
        match request {
            Request::Hello {} | Request::Open {} | Request::Trim {} => Ok(Reply::default()),
            Request::Map { size, handle, layouts } => {
                let missing = || out_of_turn("no memory came with the message");
                let exported = match handle {
                    Some(handle) => Exported::Handle(handle),
                    None => Exported::Descriptor(descriptor.ok_or_else(missing)?),
                };
                self.unmap()?;
                self.tensors = Some(Tensors::map(self.device.as_ref(), &exported, size, layouts)?);
                self.select(0)
            }
            Request::Unmap {} => {
                self.unmap()?;
                Ok(Reply::default())
            }
            Request::Load(plan) => Ok(self.load(&plan)),
            Request::Shape { number } => self.select(number),
            Request::Init {} => self.init(),
            Request::Call { count } => self.call(count),
            Request::CallInOrder {} => {
                let (status, events_ns) = self.in_order(true)?;
                Ok(self.reply("ns_run", status, events_ns))
            }
            Request::Empty { count } => {
                self.empty(count)?;
                Ok(Reply::default())
            }
            Request::Windows {} => self.follow_page(),
        }
    }

    fn unmap(&mut self) -> Result<(), DeviceError> {
        self.synchronize("before other memory is mapped")?;
        if let Some(program) = &mut self.program {
            program.free();
        }
        (self.shape, self.tensors) = (None, None);
        self.copies.clear();
        Ok(())
    }

    fn select(&mut self, number: usize) -> Result<Reply, DeviceError> {
        self.synchronize("before another shape")?;
        if let Some(program) = &mut self.program {
            program.free();
        }
        self.copies.clear();
        let tensors = self.tensors.as_mut().ok_or_else(|| out_of_turn("no memory was mapped"))?;
        let layout = tensors.layouts.get(number).cloned().ok_or_else(|| out_of_turn("there is no such shape"))?;
        self.shape = Some(NativeTensors::new(&layout, tensors));
        Ok(Reply::default())
    }

    fn load(&mut self, plan: &ProgramPlan) -> Reply {
        if self.program.is_some() {
            return Reply { load_error: Some("there is a program already".to_owned()), ..Reply::default() };
        }
        match NativeProgram::load(plan) {
            Ok(program) => {
                self.program = Some(program);
                Reply::default()
            }
            Err(message) => Reply { load_error: Some(message), ..Reply::default() },
        }
    }

    fn synchronize(&self, during: &str) -> Result<(), DeviceError> {
        self.device.as_ref().map_or(Ok(()), |device| device.context.synchronize(during))
    }

    fn init(&mut self) -> Result<Reply, DeviceError> {
        let missing = || out_of_turn("there is no program, or no memory");
        let (program, shape) = (self.program.as_mut().ok_or_else(missing)?, self.shape.as_ref().ok_or_else(missing)?);
        program.free();
        let status = program.init(shape);
        self.synchronize("`ns_init`")?;
        Ok(self.reply("ns_init", status, 0))
    }

    fn reply(&self, entry_point: &str, status: i32, events_ns: u64) -> Reply {
        let fault = self.device.as_ref().and_then(|_| error_of_status(status, entry_point));
        Reply { status, events_ns, fault, ..Reply::default() }
    }

    fn call(&mut self, count: usize) -> Result<Reply, DeviceError> {
        let (status, events_ns) = self.calls(count)?;
        Ok(self.reply("ns_run", status, events_ns))
    }

    /// Calls the program, and waits until the device is at rest. On a device an operation of this runner lies before each call, as
    /// in use: a kernel that may begin before the one ahead of it has ended (programmatic launch) does not overlap with the call before.
    fn calls(&mut self, count: usize) -> Result<(i32, u64), DeviceError> {
        let missing = || out_of_turn("there is no program, or no memory");
        let (program, shape) = (self.program.as_ref().ok_or_else(missing)?, self.shape.as_ref().ok_or_else(missing)?);
        let Some(device) = &self.device else {
            let status =
                (0..count).map(|number| program.run(shape, number, std::ptr::null_mut())).find(|status| *status != 0);
            return Ok((status.unwrap_or(0), 0));
        };
        device.started.record(&device.stream)?;
        let stream = device.stream.handle();
        let mut status = 0;
        for number in 0..count {
            device.touch()?;
            status = program.run(shape, number, stream);
            if status != 0 {
                break;
            }
        }
        device.ended.record(&device.stream)?;
        device.context.synchronize("the call")?;
        Ok((status, device.started.until_ns(&device.ended).unwrap_or(0)))
    }

    /// Calls the program once with outputs in buffers of this process, and copies them to the evaluator's in the order of the stream:
    /// what the program writes later, because it runs where the stream does not wait for it, is not in the copy. Or makes the copies
    /// alone, without the program.
    fn in_order(&mut self, calls_program: bool) -> Result<(i32, u64), DeviceError> {
        let missing = || out_of_turn("there is no program, or no memory");
        let Some(device) = &self.device else { return if calls_program { self.calls(1) } else { Ok((0, 0)) } };
        let shape = self.shape.as_ref().ok_or_else(missing)?;
        let program = if calls_program { Some(self.program.as_ref().ok_or_else(missing)?) } else { None };
        if self.copies.is_empty() {
            self.copies =
                shape.outputs_of_first_call().map(|(_, size)| DeviceBuffer::new(size)).collect::<Result<_, _>>()?;
        }
        let buffers = &self.copies;
        device.started.record(&device.stream)?;
        for (buffer, (shared, size)) in buffers.iter().zip(shape.outputs_of_first_call()) {
            copy(buffer.address, shared, size, &device.stream)?;
        }
        let addresses: Vec<u64> = buffers.iter().map(|buffer| buffer.address).collect();
        let run = |program: &NativeProgram| program.run_with_outputs(shape, &addresses, device.stream.handle());
        let status = program.map_or(0, run);
        for (buffer, (shared, size)) in buffers.iter().zip(shape.outputs_of_first_call()) {
            copy(shared, buffer.address, size, &device.stream)?;
        }
        device.ended.record(&device.stream)?;
        device.context.synchronize("the call")?;
        Ok((status, device.started.until_ns(&device.ended).unwrap_or(0)))
    }

    /// What surrounds so many calls, without the program.
    fn empty(&self, count: usize) -> Result<(i32, u64), DeviceError> {
        if let Some(device) = &self.device {
            device.started.record(&device.stream)?;
            for _ in 0..count.max(1) {
                device.touch()?;
            }
            device.ended.record(&device.stream)?;
            device.context.synchronize("an empty window")?;
        }
        Ok((0, 0))
    }

    /// Carries out windows until the page says to leave.
    fn follow_page(&mut self) -> Result<Reply, DeviceError> {
        loop {
            let command = self.page.wait();
            let done = match command.kind {
                WindowKind::Calls => self.calls(command.count),
                WindowKind::CallInOrder => self.in_order(true),
                WindowKind::EmptyInOrder => self.in_order(false),
                WindowKind::Empty => self.empty(command.count),
                WindowKind::Leave => {
                    self.page.finish(Answer::default());
                    return Ok(Reply::default());
                }
            };
            match done {
                Ok((status, events_ns)) => {
                    self.page.finish(Answer { status, events_ns });
                    if status != 0 {
                        return Ok(self.reply("ns_run", status, events_ns));
                    }
                }
                Err(fault) => {
                    self.page.finish(Answer { status: DEVICE_FAILED, events_ns: 0 });
                    return Err(fault);
                }
            }
        }
    }
}
