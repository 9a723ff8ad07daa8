//! Shared memory of the host.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use memmap2::{MmapMut, MmapOptions};
use nightshift_protocol::task::{ConcreteTensor, Tolerance};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{Memory, MemoryError, Operand};
use crate::compare::{compare, count_pattern, differ_noticeably, is_finite};
use crate::device::Exported;
use crate::draw::{Draw, draw_on_host};
use crate::layout::{Layout, Placed, Region, guards};
use crate::tensor::{HostTensor, TensorView};

/// Drawn tensors that are remembered, in bytes: reference, truth and candidate are given the same ones, one after the other.
const REMEMBERED_BYTES: usize = 512 << 20;

/// Cache that is swept when nothing is known about the machine, and the most that is swept, in bytes. Larger last-level caches are
/// shared with other guests of the machine anyway, and all programs are treated alike.
const SWEPT_BYTES: u64 = 16 * 1024 * 1024;

/// Size of a cache line in 64-bit words.
const LINE_WORDS: usize = 8;

/// The host's memory.
#[derive(Debug)]
pub struct HostMemory {
    sweep: Mutex<Vec<u64>>,
    drawn: Mutex<Vec<Remembered>>,
}

#[derive(Debug)]
struct Remembered {
    tensor: ConcreteTensor,
    draw: Draw,
    values: HostTensor,
}

/// A mapping that another process maps, too.
#[derive(Debug)]
pub struct Mapping {
    map: MmapMut,
    descriptor: OwnedFd,
}

impl HostMemory {
    /// Knows the size of the machine's last-level cache, where it is known.
    #[must_use]
    pub fn new(last_level_cache_bytes: Option<u64>) -> Self {
        let swept = last_level_cache_bytes.map_or(SWEPT_BYTES, |bytes| bytes.saturating_mul(2)).min(SWEPT_BYTES);
        let words = usize::try_from(swept / 8).unwrap_or(0);
        Self { sweep: Mutex::new(vec![1; words]), drawn: Mutex::default() }
    }

    fn drawn(&self, tensor: &ConcreteTensor, draw: Draw) -> HostTensor {
        let known = |remembered: &Vec<Remembered>| {
            let found = remembered.iter().find(|one| one.draw == draw && one.tensor == *tensor);
            found.map(|one| one.values.clone())
        };
        if let Some(values) = known(&self.drawn.lock().unwrap_or_else(PoisonError::into_inner)) {
            return values;
        }
        let values = draw_on_host(tensor, draw);
        let mut remembered = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.push(Remembered { tensor: tensor.clone(), draw, values: values.clone() });
        let mut bytes: usize = remembered.iter().map(|one| one.values.bytes().len()).sum();
        while bytes > REMEMBERED_BYTES && remembered.len() > 1 {
            bytes -= remembered.remove(0).values.bytes().len();
        }
        values
    }

    fn view(operand: Operand<'_, Self>) -> TensorView<'_> {
        match operand {
            Operand::Shared(mapping, place) => {
                TensorView { element: place.element, bytes: mapping.bytes(place.region) }
            }
            Operand::Copied(copied) => copied.view(),
        }
    }
}

impl Mapping {
    fn bytes(&self, region: Region) -> &[u8] {
        self.map.get(region.offset..region.offset + region.size).unwrap_or_default()
    }

    fn bytes_mut(&mut self, region: Region) -> &mut [u8] {
        self.map.get_mut(region.offset..region.offset + region.size).unwrap_or_default()
    }
}

/// Maps memory that was made here or received.
pub(crate) fn map_shared(descriptor: &OwnedFd, size: usize) -> std::io::Result<MmapMut> {
    // SAFETY: the file is an anonymous one whose size is sealed, so no access can fall outside of it. The other process may
    // change the bytes at any time; both sides only copy plain bytes, for which every value is valid.
    unsafe { MmapOptions::new().len(size).map_mut(descriptor) }
}

/// Makes anonymous memory of a fixed size that other processes can map.
pub(crate) fn anonymous_memory(name: &str, size: usize) -> std::io::Result<OwnedFd> {
    let descriptor = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&descriptor, u64::try_from(size).unwrap_or(u64::MAX))?;
    fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(descriptor)
}

fn os(what: &'static str) -> impl Fn(std::io::Error) -> MemoryError {
    move |source| MemoryError::Os { what, source }
}

impl Memory for HostMemory {
    type Shared = Mapping;
    type Copied = HostTensor;

    fn allocate(&self, size: usize) -> Result<Mapping, MemoryError> {
        let size = size.max(1).next_multiple_of(rustix::param::page_size());
        let descriptor = anonymous_memory("nightshift-tensors", size).map_err(os("making shared memory"))?;
        let map = map_shared(&descriptor, size).map_err(os("mapping shared memory"))?;
        Ok(Mapping { map, descriptor })
    }

    fn export(&self, shared: &Mapping) -> Result<Exported, MemoryError> {
        shared.descriptor.try_clone().map(Exported::Descriptor).map_err(os("sharing memory"))
    }

    fn draw(
        &self,
        shared: &mut Mapping,
        place: &Placed,
        tensor: &ConcreteTensor,
        draw: Draw,
    ) -> Result<(), MemoryError> {
        self.drawn(tensor, draw).write_as(place.element, shared.bytes_mut(place.region));
        Ok(())
    }

    fn holds(
        &self,
        shared: &Mapping,
        place: &Placed,
        tensor: &ConcreteTensor,
        draw: Draw,
    ) -> Result<bool, MemoryError> {
        Ok(self.drawn(tensor, draw).equals_as(Self::view(Operand::Shared(shared, place))))
    }

    fn fill(&self, shared: &mut Mapping, region: Region, pattern: u32) -> Result<(), MemoryError> {
        let (words, rest) = shared.bytes_mut(region).as_chunks_mut::<4>();
        words.fill(pattern.to_le_bytes());
        rest.copy_from_slice(&pattern.to_le_bytes()[..rest.len()]);
        Ok(())
    }

    fn unwritten(&self, shared: &Mapping, place: &Placed, pattern: u32) -> Result<u64, MemoryError> {
        Ok(count_pattern(Self::view(Operand::Shared(shared, place)), pattern))
    }

    fn set_guards(&self, shared: &mut Mapping, layout: &Layout, seed: u64) -> Result<(), MemoryError> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for (_, region) in layout.regions() {
            for guard in guards(region) {
                random.fill_bytes(shared.bytes_mut(guard));
            }
        }
        Ok(())
    }

    fn broken_guards(&self, shared: &Mapping, layout: &Layout, seed: u64) -> Result<Vec<String>, MemoryError> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut broken = Vec::new();
        for (name, region) in layout.regions() {
            for guard in guards(region) {
                let mut expected = vec![0; guard.size];
                random.fill_bytes(&mut expected);
                if shared.bytes(guard) != expected && broken.last().is_none_or(|last| last != name) {
                    broken.push(name.to_owned());
                }
            }
        }
        Ok(broken)
    }

    fn keep(&self, shared: &Mapping, place: &Placed) -> Result<HostTensor, MemoryError> {
        Ok(HostTensor::new(place.element, shared.bytes(place.region).to_vec()))
    }

    fn compare(
        &self,
        output: Operand<'_, Self>,
        expected: Operand<'_, Self>,
        tolerance: &Tolerance,
    ) -> Result<crate::compare::TensorComparison, MemoryError> {
        Ok(compare(Self::view(output), Self::view(expected), tolerance))
    }

    fn fingerprint(&self, operand: Operand<'_, Self>) -> Result<u64, MemoryError> {
        let hash = blake3::hash(Self::view(operand).bytes);
        Ok(u64::from_le_bytes(*hash.as_bytes().first_chunk().unwrap_or(&[0; 8])))
    }

    fn differ(
        &self,
        (left, right): (Operand<'_, Self>, Operand<'_, Self>),
        output: &Placed,
        tolerance: &Tolerance,
        share: f64,
    ) -> Result<bool, MemoryError> {
        let element = crate::element::Element::of(output.dtype);
        Ok(differ_noticeably(Self::view(left), Self::view(right), element, tolerance, share))
    }

    fn is_finite(&self, operand: Operand<'_, Self>) -> Result<bool, MemoryError> {
        Ok(is_finite(Self::view(operand)))
    }

    fn is_constant(&self, operand: Operand<'_, Self>) -> Result<bool, MemoryError> {
        let values = Self::view(operand).to_f64();
        let is_same = |pair: &[f64]| pair[0].partial_cmp(&pair[1]) == Some(std::cmp::Ordering::Equal);
        Ok(values.windows(2).all(is_same))
    }

    fn flush_caches(&self) -> Result<(), MemoryError> {
        let mut sweep = self.sweep.lock().unwrap_or_else(PoisonError::into_inner);
        for word in sweep.iter_mut().step_by(LINE_WORDS) {
            *word = word.wrapping_add(1);
        }
        std::hint::black_box(&mut *sweep);
        Ok(())
    }

    fn null_operation(&self) -> Result<Duration, MemoryError> {
        Ok(Duration::ZERO)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use nightshift_protocol::task::{ConcreteShapes, DType, Distribution};

    use super::*;
    use crate::layout::Representation;

    fn shapes() -> ConcreteShapes {
        let tensor = |name: &str| ConcreteTensor {
            name: name.to_owned(),
            dtype: DType::F32,
            shape: vec![300],
            distribution: Distribution::default(),
        };
        ConcreteShapes {
            name: "default".to_owned(),
            inputs: vec![tensor("x")],
            params: Vec::new(),
            outputs: vec![tensor("y")],
        }
    }

    #[test]
    fn a_change_of_an_input_or_a_guard_is_found() {
        let (memory, shapes) = (HostMemory::new(None), shapes());
        for double in [false, true] {
            let layout =
                Layout::new(&shapes, Representation { double, torch: None, workspace: false, reuses_inputs: false }, 2);
            let mut shared = memory.allocate(layout.total_bytes).unwrap();
            let (place, tensor) = (&layout.calls[1].inputs[0], &shapes.inputs[0]);
            memory.draw(&mut shared, place, tensor, Draw::declared(3)).unwrap();
            memory.set_guards(&mut shared, &layout, 5).unwrap();
            assert!(memory.holds(&shared, place, tensor, Draw::declared(3)).unwrap());
            assert!(!memory.holds(&shared, place, tensor, Draw::declared(4)).unwrap());
            assert!(memory.broken_guards(&shared, &layout, 5).unwrap().is_empty());
            shared.bytes_mut(place.region)[17] ^= 1;
            assert!(!memory.holds(&shared, place, tensor, Draw::declared(3)).unwrap());
            shared.bytes_mut(guards(place.region)[1])[1023] ^= 1;
            assert_eq!(memory.broken_guards(&shared, &layout, 5).unwrap(), ["x"]);
        }
    }

    #[test]
    fn outputs_that_were_not_written_are_counted() {
        let (memory, shapes) = (HostMemory::new(Some(1 << 20)), shapes());
        let layout = Layout::new(
            &shapes,
            Representation { double: false, torch: None, workspace: true, reuses_inputs: false },
            1,
        );
        let mut shared = memory.allocate(layout.total_bytes).unwrap();
        let place = &layout.calls[0].outputs[0];
        memory.fill(&mut shared, place.region, 0x7FFC_1234).unwrap();
        assert_eq!(memory.unwritten(&shared, place, 0x7FFC_1234).unwrap(), 300);
        assert!(!memory.is_finite(Operand::Shared(&shared, place)).unwrap());
        memory.draw(&mut shared, place, &shapes.outputs[0], Draw::declared(1)).unwrap();
        assert_eq!(memory.unwritten(&shared, place, 0x7FFC_1234).unwrap(), 0);
        let kept = memory.keep(&shared, place).unwrap();
        let before = memory.fingerprint(Operand::Copied(&kept)).unwrap();
        assert_eq!(memory.fingerprint(Operand::Shared(&shared, place)).unwrap(), before);
        memory.draw(&mut shared, place, &shapes.outputs[0], Draw::declared(2)).unwrap();
        assert_ne!(memory.fingerprint(Operand::Shared(&shared, place)).unwrap(), before);
        memory.flush_caches().unwrap();
    }
}
