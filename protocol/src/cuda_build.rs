//! What nvcc, ptxas and the disassembler tell about a CUDA library.

use serde::{Deserialize, Serialize};

/// A built CUDA library, as the tools of the toolkit describe it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CudaBuild {
    /// Architecture of the machine code, for example `sm_90a`.
    pub arch: String,
    /// Kernels, in the order of their names; bounded.
    pub kernels: Vec<KernelBuild>,
    /// Shared libraries that have to be loaded for all to see (`RTLD_GLOBAL`), in this order, before this one: their
    /// file names, for example `libcublasLt.so.13`.
    pub libraries: Vec<String>,
    /// Why the instructions of the kernels were not counted; none when they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
}

/// One kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KernelBuild {
    /// Name as a person writes it, with parameter types.
    pub name: String,
    /// Name as the machine code and the profilers know it.
    #[serde(default)]
    pub symbol: String,
    /// Registers of one thread.
    pub registers: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Static shared memory of a block in bytes. What a launch adds dynamically is not known to a compiler.
    pub shared_bytes: u64,
    /// Stack frame of one thread in bytes.
    pub stack_bytes: u64,
    /// Registers written to memory for want of room, in bytes of one thread.
    pub spill_store_bytes: u64,
    /// Registers read back from memory, in bytes of one thread.
    pub spill_load_bytes: u64,
    /// Constant memory in bytes, over all banks that the compiler names.
    #[serde(default)]
    pub constant_bytes: u64,
    /// Most threads of a block, when the source says it with `__launch_bounds__`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_block_threads: Option<u32>,
    /// What its machine code consists of; none when there was no disassembler ([`CudaBuild::uncounted`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sass: Option<SassCounts>,
    /// What limits how many of its warps a multiprocessor holds; none for an architecture that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<OccupancyLimits>,
}

impl KernelBuild {
    /// Whether registers went to memory.
    #[must_use]
    pub fn spills(&self) -> bool {
        self.spill_store_bytes > 0 || self.spill_load_bytes > 0
    }
}

/// Instructions of a kernel by kind, as they stand in the machine code: how often each is executed is not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SassCounts {
    /// All, without padding.
    pub instructions: u64,
    /// On tensor cores, of every kind and width (`HMMA`, `IMMA`, `DMMA`, `HGMMA`, `QGMMA`, ...).
    pub tensor_core: u64,
    /// Of these, by a group of four warps or more, reading shared memory directly (`HGMMA`, `QGMMA`, `UTCHMMA`, ...).
    pub tensor_core_group: u64,
    /// Loads from global memory.
    pub global_loads: u64,
    /// Stores to global memory.
    pub global_stores: u64,
    /// Loads from shared memory, with those of whole matrix fragments (`LDSM`).
    pub shared_loads: u64,
    /// Stores to shared memory.
    pub shared_stores: u64,
    /// Loads of 16 bytes or more a thread, from global or shared memory.
    pub loads_128: u64,
    /// Loads of 8 bytes a thread.
    pub loads_64: u64,
    /// Stores of 16 bytes or more a thread.
    pub stores_128: u64,
    /// Stores of 8 bytes a thread.
    pub stores_64: u64,
    /// Asynchronous copies from global to shared memory, thread by thread (`LDGSTS`).
    pub async_copies: u64,
    /// Asynchronous copies of whole tiles by the copy engine (`UBLKCP`, `UTMALDG`, `UTMASTG`).
    pub bulk_copies: u64,
    /// Atomic operations and reductions in memory.
    pub atomics: u64,
    /// Loads from local memory: spills, and arrays that did not fit into registers.
    pub local_loads: u64,
    /// Stores to local memory.
    pub local_stores: u64,
    /// Barriers of a block (`BAR`).
    pub barriers: u64,
    /// Operations on barriers in shared memory (`SYNCS`).
    pub shared_barriers: u64,
    /// Exchanges between the threads of a warp (`SHFL`, `REDUX`, `VOTE`, `MATCH`).
    pub warp_exchanges: u64,
    /// Fused multiply-adds in single precision.
    pub ffma: u64,
    /// Fused multiply-adds in half precision, two numbers each.
    pub hfma: u64,
    /// Fused multiply-adds in double precision.
    pub dfma: u64,
    /// Operations of the special function unit (`MUFU`: `exp2`, `rcp`, `rsqrt`, `tanh`, ...).
    pub special_function: u64,
}

/// What limits how many warps of a kernel a multiprocessor holds at once, from registers, static shared memory and
/// block size. Dynamic shared memory can only lower it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OccupancyLimits {
    /// Most warps that a multiprocessor of this architecture holds.
    pub max_warps: u32,
    /// Warps for which its registers suffice, whatever the block size.
    pub warps_by_registers: u32,
    /// Blocks for which its shared memory suffices; never more than the blocks it can hold.
    pub blocks_by_shared_memory: u32,
    /// For the largest block that the source allows; none when the source does not bound it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_block: Option<BlockOccupancy>,
}

/// Occupancy of a kernel for one block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BlockOccupancy {
    /// Threads of a block.
    pub block_threads: u32,
    /// Blocks that a multiprocessor holds at once.
    pub blocks: u32,
    /// Their warps.
    pub warps: u32,
    /// What keeps it from holding more.
    pub limited_by: OccupancyLimiter,
}

impl BlockOccupancy {
    /// Share of the warps that the multiprocessor could hold, from 0 to 1.
    #[must_use]
    pub fn share(&self, limits: &OccupancyLimits) -> f64 {
        if limits.max_warps == 0 { 0.0 } else { f64::from(self.warps) / f64::from(limits.max_warps) }
    }
}

/// What keeps a multiprocessor from holding more blocks of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OccupancyLimiter {
    /// Registers.
    Registers,
    /// Static shared memory.
    SharedMemory,
    /// Its number of warps: nothing is wasted.
    Warps,
    /// Its number of blocks: they are small.
    Blocks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_worker_did_not_count_reads_as_nothing() -> Result<(), serde_json::Error> {
        let stored = r#"{"arch":"sm_90a","libraries":[],"kernels":[{"name":"saxpy(int)","registers":12,"barriers":0,
            "shared_bytes":0,"stack_bytes":0,"spill_store_bytes":0,"spill_load_bytes":0,"sass":{"instructions":40}}]}"#;
        let build: CudaBuild = serde_json::from_str(stored)?;
        let kernel = build.kernels.first().cloned().unwrap_or_default();
        assert_eq!(kernel.sass, Some(SassCounts { instructions: 40, ..SassCounts::default() }));
        assert_eq!((kernel.occupancy, kernel.max_block_threads, build.uncounted), (None, None, None));
        assert!(!kernel.spills());
        Ok(())
    }
}
