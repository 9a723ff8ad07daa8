//! Shared memory as a runner sees it.

use std::ffi::c_void;

use memmap2::MmapMut;

use crate::device::driver::{Context, DeviceBuffer, fill, upload};
use crate::device::stream::{Event, Stream};
use crate::device::{DeviceError, Exported, SharedMemory};
use crate::layout::{Layout, Region};
use crate::memory::map_shared;

/// A device, as a runner of libraries uses it.
pub(super) struct RunnerDevice {
    pub(super) stream: Stream,
    pub(super) started: Event,
    pub(super) ended: Event,
    /// Scratch word: written, never read.
    touched: DeviceBuffer,
    pub(super) context: Context,
}

impl RunnerDevice {
    /// Opens the one device that this process is shown.
    pub(super) fn open() -> Result<Self, DeviceError> {
        let context = Context::open(None)?;
        let stream = Stream::new()?;
        context.start_callbacks(&stream)?;
        context.synchronize("starting callbacks")?;
        let touched = DeviceBuffer::new(4)?;
        Ok(Self { stream, started: Event::new()?, ended: Event::new()?, touched, context })
    }

    /// Queues the smallest operation.
    pub(super) fn touch(&self) -> Result<(), DeviceError> {
        fill(self.touched.address, self.touched.size, 0, &self.stream)
    }
}

/// Mapped memory with the places of tensors.
pub(super) struct Tensors {
    memory: Mapped,
    pub(super) layouts: Vec<Layout>,
}

enum Mapped {
    Host(MmapMut),
    Device(SharedMemory),
    /// A buffer for each region: a tool that looks for errors of memory then sees where each one ends.
    Buffers(Vec<(Region, DeviceBuffer)>),
}

impl Tensors {
    /// Maps memory that the evaluator made.
    pub(super) fn map(
        device: Option<&RunnerDevice>,
        exported: &Exported,
        size: usize,
        layouts: Vec<Layout>,
    ) -> Result<Self, DeviceError> {
        let unusable = |error: String| DeviceError { error, during: "mapping shared memory".to_owned() };
        let memory = match (device, exported) {
            (Some(device), exported) => Mapped::Device(SharedMemory::import(&device.context, exported, size)?),
            (None, Exported::Descriptor(descriptor)) => {
                Mapped::Host(map_shared(descriptor, size).map_err(|error| unusable(error.to_string()))?)
            }
            (None, Exported::Handle(_)) => return Err(unusable("a handle names memory of a device".to_owned())),
        };
        Ok(Self { memory, layouts })
    }

    /// Allocates a buffer of the device for each region of a layout. Inputs and weights get what the bytes hold at their places, and
    /// everything else the pattern.
    pub(super) fn in_buffers(
        device: &RunnerDevice,
        layout: &Layout,
        bytes: &[u8],
        pattern: u32,
    ) -> Result<Self, DeviceError> {
        let mut buffers = Vec::new();
        for (_, region) in layout.regions() {
            let buffer = DeviceBuffer::new(region.size)?;
            fill(buffer.address, region.size, pattern, &device.stream)?;
            buffers.push((region, buffer));
        }
        device.context.synchronize("filling buffers")?;
        for place in layout.params.iter().chain(&layout.call(0).inputs) {
            let held = buffers.iter().find(|(region, _)| *region == place.region);
            let part = bytes.get(place.region.offset..place.region.offset + place.region.size);
            if let Some(((_, buffer), part)) = held.zip(part) {
                upload(buffer.address, part)?;
            }
        }
        Ok(Self { memory: Mapped::Buffers(buffers), layouts: vec![layout.clone()] })
    }

    /// Returns the address of a byte. Places lie inside of the memory, whose size both sides know.
    pub(super) fn address(&mut self, offset: usize) -> *mut c_void {
        match &mut self.memory {
            Mapped::Host(map) => map.as_mut_ptr().wrapping_add(offset).cast(),
            Mapped::Device(memory) => {
                let base = usize::try_from(memory.address).unwrap_or(0);
                std::ptr::without_provenance_mut(base + offset)
            }
            Mapped::Buffers(buffers) => {
                let held = buffers.iter().find(|(region, _)| region.offset == offset);
                let address = held.and_then(|(_, buffer)| usize::try_from(buffer.address).ok());
                std::ptr::without_provenance_mut(address.unwrap_or(0))
            }
        }
    }
}
