//! What limits how many warps of a kernel a multiprocessor holds, computed from what the compiler tells.

use nightshift_protocol::cuda_build::{BlockOccupancy, KernelBuild, OccupancyLimiter, OccupancyLimits};

use super::arch::Multiprocessor;

const WARP_THREADS: u32 = 32;
/// Registers are given to a warp in pieces of this many.
const REGISTER_UNIT: u32 = 256;
/// Parts of a multiprocessor, each with a quarter of the registers: a warp lives in one of them.
const PARTITIONS: u32 = 4;
/// Shared memory is given to a block in pieces of this many bytes.
const SHARED_UNIT_BYTES: u64 = 128;

/// The limits of a kernel on a multiprocessor.
#[must_use]
pub fn limits(kernel: &KernelBuild, multiprocessor: &Multiprocessor) -> OccupancyLimits {
    let warps_by_registers = warps_by_registers(kernel.registers, multiprocessor);
    let blocks_by_shared_memory = blocks_by_shared_memory(kernel.shared_bytes, multiprocessor);
    OccupancyLimits {
        max_warps: multiprocessor.max_warps,
        warps_by_registers,
        blocks_by_shared_memory,
        of_block: kernel
            .max_block_threads
            .filter(|threads| *threads > 0)
            .map(|threads| of_block(threads, warps_by_registers, blocks_by_shared_memory, multiprocessor)),
    }
}

fn warps_by_registers(registers: u32, multiprocessor: &Multiprocessor) -> u32 {
    if registers == 0 {
        return multiprocessor.max_warps;
    }
    let registers_of_warp = (registers * WARP_THREADS).next_multiple_of(REGISTER_UNIT);
    let warps_of_partition = multiprocessor.registers / PARTITIONS / registers_of_warp;
    (warps_of_partition * PARTITIONS).min(multiprocessor.max_warps)
}

fn blocks_by_shared_memory(shared_bytes: u64, multiprocessor: &Multiprocessor) -> u32 {
    let bytes_of_block = (shared_bytes + multiprocessor.reserved_shared_bytes).next_multiple_of(SHARED_UNIT_BYTES);
    let blocks = multiprocessor.shared_bytes.checked_div(bytes_of_block).unwrap_or(u64::MAX);
    u32::try_from(blocks).unwrap_or(u32::MAX).min(multiprocessor.max_blocks)
}

fn of_block(
    block_threads: u32,
    warps_by_registers: u32,
    blocks_by_shared_memory: u32,
    multiprocessor: &Multiprocessor,
) -> BlockOccupancy {
    let warps_of_block = block_threads.div_ceil(WARP_THREADS);
    // Of equal limits the first is named: where the architecture allows no more, nothing in the source is to blame.
    let (blocks, limited_by) = [
        (multiprocessor.max_blocks, OccupancyLimiter::Blocks),
        (warps_by_registers / warps_of_block, OccupancyLimiter::Registers),
        (blocks_by_shared_memory, OccupancyLimiter::SharedMemory),
    ]
    .into_iter()
    .fold((multiprocessor.max_warps / warps_of_block, OccupancyLimiter::Warps), |least, other| {
        if other.0 < least.0 { other } else { least }
    });
    BlockOccupancy { block_threads, blocks, warps: blocks * warps_of_block, limited_by }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::arch::Arch;
    use super::*;

    fn on(arch: &str, registers: u32, shared_bytes: u64, threads: u32) -> (u32, u32, OccupancyLimiter, u32) {
        let multiprocessor = arch.parse::<Arch>().unwrap().multiprocessor().unwrap();
        let max_block_threads = (threads > 0).then_some(threads);
        let kernel = KernelBuild { registers, shared_bytes, max_block_threads, ..KernelBuild::default() };
        let limits = limits(&kernel, &multiprocessor);
        let block = limits.of_block.unwrap();
        (block.blocks, block.warps, block.limited_by, limits.warps_by_registers)
    }

    // Expected values are those of the occupancy calculator of the CUDA toolkit (cuda_occupancy.h).

    #[test]
    fn registers_limit_a_kernel_that_takes_many() {
        assert_eq!(on("sm_90a", 128, 0, 256), (2, 16, OccupancyLimiter::Registers, 16));
        assert_eq!(on("sm_90a", 255, 0, 128), (2, 8, OccupancyLimiter::Registers, 8));
        assert_eq!(on("sm_80", 40, 0, 256), (6, 48, OccupancyLimiter::Registers, 48));
    }

    #[test]
    fn shared_memory_counts_with_what_the_system_takes() {
        assert_eq!(on("sm_90a", 32, 48 * 1024, 128), (4, 16, OccupancyLimiter::SharedMemory, 64));
        assert_eq!(on("sm_86", 32, 48 * 1024, 128), (2, 8, OccupancyLimiter::SharedMemory, 48));
        assert_eq!(on("sm_80", 32, 163 * 1024, 1024), (1, 32, OccupancyLimiter::SharedMemory, 64));
    }

    #[test]
    fn small_blocks_run_out_of_places_before_warps() {
        assert_eq!(on("sm_90a", 16, 0, 32), (32, 32, OccupancyLimiter::Blocks, 64));
        assert_eq!(on("sm_89", 16, 0, 32), (24, 24, OccupancyLimiter::Blocks, 48));
        assert_eq!(on("sm_86", 16, 0, 32), (16, 16, OccupancyLimiter::Blocks, 48));
    }

    #[test]
    fn a_kernel_that_fits_is_limited_by_warps_alone() {
        assert_eq!(on("sm_90a", 32, 1024, 256), (8, 64, OccupancyLimiter::Warps, 64));
        assert_eq!(on("sm_100a", 32, 0, 1024), (2, 64, OccupancyLimiter::Warps, 64));
        assert_eq!(on("sm_120a", 40, 0, 256), (6, 48, OccupancyLimiter::Warps, 48));
    }

    #[test]
    fn without_a_bound_on_the_block_only_the_single_limits_are_told() {
        let multiprocessor = "sm_90a".parse::<Arch>().unwrap().multiprocessor().unwrap();
        let kernel = KernelBuild { registers: 64, shared_bytes: 32 * 1024, ..KernelBuild::default() };
        let limits = limits(&kernel, &multiprocessor);
        assert_eq!((limits.warps_by_registers, limits.blocks_by_shared_memory, limits.of_block), (32, 6, None));
    }

    #[test]
    fn an_unknown_architecture_has_no_limits() {
        assert_eq!("sm_200".parse::<Arch>().unwrap().multiprocessor(), None);
    }
}
