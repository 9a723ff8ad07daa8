//! The memory that parent and runner share.
//!
//! Both sides only ever copy bytes in or out. The parent takes nothing from it on trust: what it needs again it keeps
//! in its own memory.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use memmap2::{MmapMut, MmapOptions};
use nightshift_protocol::task::DType;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::plan::{GUARD_BYTES, Layout, Placed, Region};
use crate::inputs::TensorData;

/// Threads that have an arena's memory allocated, and what one of them does at least, in bytes.
#[cfg(target_os = "linux")]
const TOUCHING_THREADS: usize = 4;
#[cfg(target_os = "linux")]
const SMALLEST_PART_BYTES: usize = 16 << 20;

/// The parent's view of an arena.
#[derive(Debug)]
pub(super) struct Arena {
    map: MmapMut,
    descriptor: OwnedFd,
    /// What was written or found in the regions that begin there, and nobody has reason to change since: it is not written
    /// again. A program that changes it nonetheless is found out as one that changes what it is given at any other time.
    known: HashMap<usize, (DType, TensorData)>,
}

impl Arena {
    /// A new arena of zeros, whose size nobody can change; in large pages where a device copies from and to it.
    pub(super) fn new(size_bytes: usize, for_device: bool) -> std::io::Result<Self> {
        let descriptor = memfd_create("nightshift-arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, u64::try_from(size_bytes).unwrap_or(u64::MAX))?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = map_shared(&descriptor, size_bytes, for_device)?;
        #[cfg(target_os = "linux")]
        if for_device {
            touch(&map);
        }
        Ok(Self { map, descriptor, known: HashMap::new() })
    }

    /// Its size in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        self.map.len()
    }

    /// What is handed to the runner.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Copies a tensor to its place, as what lies there, unless it lies there already.
    pub(super) fn write(&mut self, place: &Placed, data: &TensorData) {
        let known = self.known.get(&place.region.offset);
        if known.is_some_and(|(dtype, known)| *dtype == place.dtype && known.shares_memory(data)) {
            return;
        }
        data.copy_to_bytes(place.dtype, self.bytes_mut(place.region));
        self.know(place, data);
    }

    /// Copies a tensor out.
    pub(super) fn read(&self, place: &Placed) -> TensorData {
        TensorData::read(place.dtype, self.bytes(place.region))
    }

    /// The same, and how many elements are those of a pattern.
    pub(super) fn read_and_count(&self, place: &Placed, pattern: [u8; 8]) -> (TensorData, u64) {
        TensorData::read_and_count(place.dtype, self.bytes(place.region), Some(pattern))
    }

    /// Whether a place holds exactly what was written there.
    pub(super) fn holds(&mut self, place: &Placed, data: &TensorData) -> bool {
        let holds = data.equals_bytes(place.dtype, self.bytes(place.region));
        if holds {
            self.know(place, data);
        } else {
            self.known.remove(&place.region.offset);
        }
        holds
    }

    fn know(&mut self, place: &Placed, data: &TensorData) {
        self.known.insert(place.region.offset, (place.dtype, data.clone()));
    }

    /// Others may have written to it: all that is needed is written anew.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Fills a region with a repeated pattern.
    pub(super) fn fill(&mut self, region: Region, pattern: [u8; 8]) {
        for chunk in self.bytes_mut(region).chunks_mut(8) {
            chunk.copy_from_slice(pattern.get(..chunk.len()).unwrap_or_default());
        }
    }

    /// Sets the canaries around every buffer.
    pub(super) fn set_canaries(&mut self, layout: &Layout, seed: u64) {
        for (number, (_, region)) in layout.regions().enumerate() {
            for (side, guard) in guards(region).into_iter().enumerate() {
                let mut stream = CanaryStream::new(seed, number, side);
                for byte in self.bytes_mut(guard) {
                    *byte = stream.next();
                }
            }
        }
    }

    /// Names of the buffers whose canaries changed.
    pub(super) fn broken_canaries(&self, layout: &Layout, seed: u64) -> Vec<String> {
        let broken = |number: usize, region: Region| {
            guards(region).into_iter().enumerate().any(|(side, guard)| {
                let mut stream = CanaryStream::new(seed, number, side);
                self.bytes(guard).iter().any(|byte| *byte != stream.next())
            })
        };
        layout
            .regions()
            .enumerate()
            .filter(|(number, (_, region))| broken(*number, *region))
            .map(|(_, (name, _))| name.to_owned())
            .collect()
    }

    fn bytes(&self, region: Region) -> &[u8] {
        self.map.get(region.offset..region.offset + region.size).unwrap_or_default()
    }

    fn bytes_mut(&mut self, region: Region) -> &mut [u8] {
        self.map.get_mut(region.offset..region.offset + region.size).unwrap_or_default()
    }
}

/// Has the machine's memory behind a mapping allocated by several threads: a device that pins it would do so by one, page by
/// page. Where the system cannot do that, it is allocated as it is written to.
#[cfg(target_os = "linux")]
fn touch(map: &MmapMut) {
    let part = (map.len() / TOUCHING_THREADS).max(1).next_multiple_of(SMALLEST_PART_BYTES);
    std::thread::scope(|scope| {
        for start in (0..map.len()).step_by(part) {
            let size = part.min(map.len() - start);
            scope.spawn(move || map.advise_range(memmap2::Advice::PopulateWrite, start, size));
        }
    });
}

/// Maps an arena that was received or made.
pub(super) fn map_shared(descriptor: &OwnedFd, size_bytes: usize, for_device: bool) -> std::io::Result<MmapMut> {
    // SAFETY: the file is an anonymous one whose size is sealed, so no access can fall outside of it. The other process
    // may change the bytes at any time; both sides only copy plain bytes, for which every value is valid.
    let map = unsafe { MmapOptions::new().len(size_bytes).map_mut(descriptor) }?;
    #[cfg(target_os = "linux")]
    if for_device {
        // Hundreds of megabytes page by page take longer than the calls on them. Where there are no large pages, that is so.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Ok(map)
}

/// Maps a file with tensors for a process that has no parent; what it changes stays its own.
pub(super) fn map_private(file: &File, size_bytes: usize) -> std::io::Result<MmapMut> {
    // SAFETY: the file lies in a folder that nobody else writes to while the process lives, and only plain bytes are
    // copied from it, for which every value is valid.
    unsafe { MmapOptions::new().len(size_bytes).map_copy(file) }
}

/// Makes a file with tensors in their places and zeros elsewhere.
pub(super) fn fill_file(file: &File, size_bytes: usize, tensors: &[(Region, &TensorData)]) -> std::io::Result<()> {
    file.set_len(u64::try_from(size_bytes).unwrap_or(u64::MAX))?;
    for (region, data) in tensors {
        let mut bytes = vec![0; region.size];
        data.copy_to_bytes(data.dtype(), &mut bytes);
        file.write_all_at(&bytes, u64::try_from(region.offset).unwrap_or(u64::MAX))?;
    }
    Ok(())
}

fn guards(region: Region) -> [Region; 2] {
    [
        Region { offset: region.offset - GUARD_BYTES, size: GUARD_BYTES },
        Region { offset: region.offset + region.size, size: GUARD_BYTES },
    ]
}

/// Bytes that a program cannot guess: a small generator, keyed by a secret number.
struct CanaryStream(u64);

impl CanaryStream {
    fn new(seed: u64, number: usize, side: usize) -> Self {
        let place = u64::try_from(number * 2 + side).unwrap_or(0);
        Self(seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn next(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.to_le_bytes()[7]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(offset: usize) -> Placed {
        Placed { name: "x".to_owned(), dtype: DType::F32, shape: vec![2], region: Region { offset, size: 8 } }
    }

    fn tensor(first: f32) -> TensorData {
        TensorData::from(vec![first, 2.0])
    }

    /// What lies at a place, changed by somebody else.
    fn tamper(arena: &mut Arena, place: &Placed) {
        arena.bytes_mut(place.region)[0] ^= 1;
    }

    #[test]
    fn what_lies_there_already_is_not_written_again() {
        let (place, other) = (placed(4096), placed(8192));
        let Ok(mut arena) = Arena::new(3 * 4096, false) else { panic!("no memory") };
        let (data, equal) = (tensor(1.0), tensor(1.0));
        arena.write(&place, &data);
        arena.write(&other, &data);
        tamper(&mut arena, &place);
        arena.write(&place, &data);
        assert!(!arena.read(&place).same_bits(&data), "nobody had reason to change it");
        assert!(arena.read(&other).same_bits(&data));
        // Another tensor, if with the same values, is written.
        arena.write(&place, &equal);
        assert!(arena.read(&place).same_bits(&data));
    }

    #[test]
    fn what_was_changed_or_may_have_been_is_written_again() {
        let place = placed(4096);
        let Ok(mut arena) = Arena::new(2 * 4096, false) else { panic!("no memory") };
        let data = tensor(1.0);
        arena.write(&place, &data);
        tamper(&mut arena, &place);
        assert!(!arena.holds(&place, &data));
        arena.write(&place, &data);
        assert!(arena.holds(&place, &data));
        tamper(&mut arena, &place);
        arena.forget();
        arena.write(&place, &data);
        assert!(arena.read(&place).same_bits(&data));
        // Of another type the same elements are other bytes.
        let wide = Placed { dtype: DType::F64, region: Region { offset: 4096, size: 16 }, ..place };
        arena.write(&wide, &data);
        assert!(arena.holds(&wide, &data));
    }
}
