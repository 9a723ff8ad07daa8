//! Shared memory of a device. Large tensors never leave it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUdeviceptr;
use nightshift_protocol::task::{ConcreteTensor, Distribution, Tolerance};

use super::{Memory, MemoryError, Operand};
use crate::compare::TensorComparison;
use crate::device::driver::{DeviceBuffer, copy, download, fill};
use crate::device::stream::Stream;
use crate::device::{BytesArgs, CompareArgs, DeviceError, DrawArgs, Exported, FOUND_WORDS, Gpu, SharedMemory};
use crate::draw::{Draw, InputKind};
use crate::element::Element;
use crate::layout::{Layout, Placed, Region, guards};
use crate::tensor::HostTensor;

type Outcome<T> = Result<T, DeviceError>;

/// Words of what a comparison finds, in the order of the kernel.
const WRONG: usize = 0;
const LARGEST: usize = 1;
const INDEX: usize = 2;
const HISTOGRAM: usize = 3;

/// A device's memory, for one evaluation.
#[derive(Debug)]
pub struct DeviceMemory {
    stream: Stream,
    found: DeviceBuffer,
    gpu: Arc<Gpu>,
}

/// A private copy of a tensor.
#[derive(Debug)]
pub struct CopiedTensor {
    element: Element,
    buffer: DeviceBuffer,
}

/// A tensor on the device.
#[derive(Clone, Copy)]
struct Located {
    address: CUdeviceptr,
    element: Element,
    size: usize,
}

impl Located {
    fn count(self) -> u64 {
        wide(self.size / self.element.size_bytes())
    }
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

fn located(operand: Operand<'_, DeviceMemory>) -> Located {
    match operand {
        Operand::Shared(shared, place) => Located {
            address: shared.address + wide(place.region.offset),
            element: place.element,
            size: place.region.size,
        },
        Operand::Copied(copied) => {
            Located { address: copied.buffer.address, element: copied.element, size: copied.buffer.size }
        }
    }
}

impl DeviceMemory {
    /// Works in the evaluator's context of a device.
    pub fn new(gpu: Arc<Gpu>) -> Outcome<Self> {
        gpu.context.enter()?;
        let (stream, found) = (Stream::new()?, DeviceBuffer::new(FOUND_WORDS * 8)?);
        Ok(Self { stream, found, gpu })
    }

    /// The evaluator's context.
    #[must_use]
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Copies a tensor to the host.
    pub fn read(&self, shared: &SharedMemory, place: &Placed) -> Outcome<HostTensor> {
        self.gpu.context.enter()?;
        self.stream.synchronize("before reading a tensor")?;
        let from = located(Operand::Shared(shared, place));
        let mut bytes = vec![0; from.size];
        download(&mut bytes, from.address)?;
        Ok(HostTensor::new(from.element, bytes))
    }

    fn clear_found(&self) -> Outcome<()> {
        self.gpu.context.enter()?;
        fill(self.found.address, self.found.size, 0, &self.stream)
    }

    fn read_found(&self, during: &str) -> Outcome<[u64; FOUND_WORDS]> {
        self.stream.synchronize(during)?;
        let mut bytes = [0; FOUND_WORDS * 8];
        download(&mut bytes, self.found.address)?;
        let mut words = [0; FOUND_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(words)
    }

    fn draw_args(&self, shared: &SharedMemory, place: &Placed, tensor: &ConcreteTensor, draw: Draw) -> DrawArgs {
        let (distribution, a, b, steps) = match tensor.distribution {
            Distribution::Normal { mean, std } => (0, mean, std, 0),
            Distribution::Uniform { low, high } => (1, low, high, 0),
            Distribution::Steps { low, high, step } => (2, low, step, Distribution::steps(low, high, step)),
        };
        DrawArgs {
            data: shared.address + wide(place.region.offset),
            count: wide(place.elements()),
            seed: draw.seed,
            steps,
            differences: self.found.address,
            a,
            b,
            factor: draw.factor(),
            distribution,
            contract: Element::of(tensor.dtype).code(),
            element: place.element.code(),
            flip_signs: u32::from(draw.kind == InputKind::SignsFlipped),
            few_factor: draw.few.map_or(0.0, |few| few.scale),
            few_seed: draw.few.map_or(0, |few| few.seed),
            few_one_in: draw.few.map_or(0, |few| few.one_in.max(1)),
            dropped_bits: draw.dropped_bits,
            unused: 0,
        }
    }

    /// Counts with one of the kernels that look at single tensors.
    fn count(&self, kernel: crate::device::Kernel, args: BytesArgs, during: &str) -> Outcome<u64> {
        self.clear_found()?;
        let args = BytesArgs { found: self.found.address, ..args };
        // SAFETY: the kernel takes this structure, and both operands live until the stream is synchronized.
        unsafe { self.gpu.launch(kernel, args, args.count, &self.stream) }?;
        Ok(self.read_found(during)?[0])
    }

    fn guard(&self, kernel: crate::device::Kernel, shared: &SharedMemory, guard: Region, seed: u64) -> Outcome<()> {
        let args = BytesArgs {
            data: shared.address + wide(guard.offset),
            found: self.found.address,
            count: wide(guard.size),
            seed,
            ..BytesArgs::default()
        };
        // SAFETY: the kernel takes this structure, and the region lies inside of the memory.
        unsafe { self.gpu.launch(kernel, args, args.count, &self.stream) }
    }
}

/// A seed of its own for each guard.
fn guard_seed(seed: u64, number: usize) -> u64 {
    seed ^ wide(number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Memory for DeviceMemory {
    type Shared = SharedMemory;
    type Copied = CopiedTensor;

    fn allocate(&self, size: usize) -> Result<SharedMemory, MemoryError> {
        self.gpu.context.enter()?;
        Ok(SharedMemory::new(&self.gpu.context, size, self.gpu.exports_descriptors)?)
    }

    fn export(&self, shared: &SharedMemory) -> Result<Exported, MemoryError> {
        Ok(shared.export()?)
    }

    fn draw(
        &self,
        shared: &mut SharedMemory,
        place: &Placed,
        tensor: &ConcreteTensor,
        draw: Draw,
    ) -> Result<(), MemoryError> {
        self.gpu.context.enter()?;
        let args = self.draw_args(shared, place, tensor, draw);
        // SAFETY: the kernel takes this structure, and the place lies inside of the memory.
        unsafe { self.gpu.launch(self.gpu.kernels.draw, args, args.count, &self.stream) }?;
        Ok(())
    }

    fn holds(
        &self,
        shared: &SharedMemory,
        place: &Placed,
        tensor: &ConcreteTensor,
        draw: Draw,
    ) -> Result<bool, MemoryError> {
        self.clear_found()?;
        let args = self.draw_args(shared, place, tensor, draw);
        // SAFETY: as for `draw`.
        unsafe { self.gpu.launch(self.gpu.kernels.holds, args, args.count, &self.stream) }?;
        Ok(self.read_found("looking for changed inputs")?[0] == 0)
    }

    fn fill(&self, shared: &mut SharedMemory, region: Region, pattern: u32) -> Result<(), MemoryError> {
        self.gpu.context.enter()?;
        Ok(fill(shared.address + wide(region.offset), region.size, pattern, &self.stream)?)
    }

    fn unwritten(&self, shared: &SharedMemory, place: &Placed, pattern: u32) -> Result<u64, MemoryError> {
        let data = located(Operand::Shared(shared, place));
        let args = BytesArgs {
            data: data.address,
            count: data.count(),
            element: data.element.code(),
            pattern,
            ..BytesArgs::default()
        };
        Ok(self.count(self.gpu.kernels.count_pattern, args, "looking for unwritten outputs")?)
    }

    fn set_guards(&self, shared: &mut SharedMemory, layout: &Layout, seed: u64) -> Result<(), MemoryError> {
        self.gpu.context.enter()?;
        for (number, guard) in layout.regions().flat_map(|(_, region)| guards(region)).enumerate() {
            self.guard(self.gpu.kernels.set_guard, shared, guard, guard_seed(seed, number))?;
        }
        Ok(())
    }

    fn broken_guards(&self, shared: &SharedMemory, layout: &Layout, seed: u64) -> Result<Vec<String>, MemoryError> {
        let check = |number: usize, region: Region| -> Outcome<()> {
            for (side, guard) in guards(region).into_iter().enumerate() {
                let seed = guard_seed(seed, number * 2 + side);
                self.guard(self.gpu.kernels.check_guard, shared, guard, seed)?;
            }
            Ok(())
        };
        let during = "looking for writes beside the buffers";
        self.clear_found()?;
        for (number, (_, region)) in layout.regions().enumerate() {
            check(number, region)?;
        }
        if self.read_found(during)?[0] == 0 {
            return Ok(Vec::new());
        }
        let mut broken: Vec<String> = Vec::new();
        for (number, (name, region)) in layout.regions().enumerate() {
            self.clear_found()?;
            check(number, region)?;
            if self.read_found(during)?[0] > 0 && !broken.iter().any(|known| known == name) {
                broken.push(name.to_owned());
            }
        }
        Ok(broken)
    }

    fn keep(&self, shared: &SharedMemory, place: &Placed) -> Result<CopiedTensor, MemoryError> {
        self.gpu.context.enter()?;
        let from = located(Operand::Shared(shared, place));
        let buffer = DeviceBuffer::new(from.size)?;
        copy(buffer.address, from.address, from.size, &self.stream)?;
        self.stream.synchronize("keeping a tensor")?;
        Ok(CopiedTensor { element: from.element, buffer })
    }

    fn compare(
        &self,
        output: Operand<'_, Self>,
        expected: Operand<'_, Self>,
        tolerance: &Tolerance,
    ) -> Result<TensorComparison, MemoryError> {
        let (output, expected) = (located(output), located(expected));
        let count = output.count().min(expected.count());
        let missing = output.count().max(expected.count()) - count;
        let args = CompareArgs {
            output: output.address,
            expected: expected.address,
            found: self.found.address,
            count,
            atol: tolerance.atol,
            rtol: tolerance.rtol,
            share: 0.0,
            step: 0.0,
            output_element: output.element.code(),
            expected_element: expected.element.code(),
        };
        self.clear_found()?;
        // The index that every other one is lower than.
        fill(self.found.address + wide(INDEX * 8), 8, u32::MAX, &self.stream)?;
        // SAFETY: the kernels take this structure, and both operands live until the stream is synchronized.
        unsafe {
            self.gpu.launch(self.gpu.kernels.compare, args, count, &self.stream)?;
            self.gpu.launch(self.gpu.kernels.find_worst, args, count, &self.stream)?;
        }
        let found = self.read_found("comparing outputs")?;
        let mut comparison = TensorComparison {
            wrong_elements: found[WRONG] + missing,
            largest_error: if missing > 0 { f64::INFINITY } else { f64::from_bits(found[LARGEST]) },
            ..TensorComparison::default()
        };
        for (slot, count) in comparison.histogram.iter_mut().zip(&found[HISTOGRAM..]) {
            *slot = *count;
        }
        if found[INDEX] < count {
            let value = |from: Located| -> Outcome<f64> {
                let width = from.element.size_bytes();
                let (mut bytes, mut value) = (vec![0; width], [0.0]);
                download(&mut bytes, from.address + found[INDEX] * wide(width))?;
                from.element.widen(&bytes, &mut value);
                Ok(value[0])
            };
            comparison.worst = Some((found[INDEX], value(output)?, value(expected)?));
        }
        Ok(comparison)
    }

    fn fingerprint(&self, operand: Operand<'_, Self>) -> Result<u64, MemoryError> {
        let data = located(operand);
        let args =
            BytesArgs { data: data.address, count: data.count(), element: data.element.code(), ..BytesArgs::default() };
        Ok(self.count(self.gpu.kernels.fingerprint, args, "fingerprinting a tensor")?)
    }

    fn differ(
        &self,
        (left, right): (Operand<'_, Self>, Operand<'_, Self>),
        output: &Placed,
        tolerance: &Tolerance,
        share: f64,
    ) -> Result<bool, MemoryError> {
        let (left, right) = (located(left), located(right));
        if left.count() != right.count() {
            return Ok(true);
        }
        let args = CompareArgs {
            output: left.address,
            expected: right.address,
            found: self.found.address,
            count: left.count(),
            atol: tolerance.atol,
            rtol: tolerance.rtol,
            share,
            step: crate::compare::STEPS * Element::of(output.dtype).relative_step(),
            output_element: left.element.code(),
            expected_element: right.element.code(),
        };
        self.clear_found()?;
        // SAFETY: as for `compare`.
        unsafe { self.gpu.launch(self.gpu.kernels.differ, args, args.count, &self.stream) }?;
        Ok(self.read_found("comparing expected values")?[0] > 0)
    }

    fn is_finite(&self, operand: Operand<'_, Self>) -> Result<bool, MemoryError> {
        let data = located(operand);
        let args =
            BytesArgs { data: data.address, count: data.count(), element: data.element.code(), ..BytesArgs::default() };
        Ok(self.count(self.gpu.kernels.not_finite, args, "looking for values that are not finite")? == 0)
    }

    fn is_constant(&self, operand: Operand<'_, Self>) -> Result<bool, MemoryError> {
        let data = located(operand);
        let args =
            BytesArgs { data: data.address, count: data.count(), element: data.element.code(), ..BytesArgs::default() };
        Ok(self.count(self.gpu.kernels.not_like_first, args, "looking for constant outputs")? == 0)
    }

    fn flush_caches(&self) -> Result<(), MemoryError> {
        self.gpu.context.enter()?;
        self.gpu.context.reset_persisting_lines();
        fill(self.gpu.flush.address, self.gpu.flush.size, 0, &self.stream)?;
        Ok(())
    }

    fn null_operation(&self) -> Result<Duration, MemoryError> {
        self.gpu.context.enter()?;
        let started = Instant::now();
        fill(self.found.address, 4, 0, &self.stream)?;
        self.stream.synchronize("the smallest operation")?;
        Ok(started.elapsed())
    }
}
