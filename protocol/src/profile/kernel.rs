//! What the hardware counters tell of one kernel.

use serde::{Deserialize, Serialize};

use super::BoundBy;

/// Hardware counters of one kernel. Each is none where the tool did not give it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KernelProfile {
    /// Its name with its parameters.
    pub name: String,
    /// Launches of it that were profiled. The numbers are those of the longest one.
    pub launches: u32,
    /// Share of the time of all kernels in the timeline, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_share: Option<f64>,
    /// Duration of the launch under the profiler, with cold caches, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<f64>,
    /// Grid, as the tool prints it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub grid: String,
    /// Block, as the tool prints it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub block: String,
    /// What limits it, with evidence.
    pub bound: BoundBy,
    /// Throughput of the multiprocessors against their peak, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_share: Option<f64>,
    /// Throughput of the memories and caches against their peak, the busiest of them, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_share: Option<f64>,
    /// Throughput of the device memory against its peak, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_share: Option<f64>,
    /// Throughput of the L2 cache against its peak, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_share: Option<f64>,
    /// Throughput of the L1 cache and shared memory against their peak, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l1_share: Option<f64>,
    /// Activity of the tensor pipe, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_share: Option<f64>,
    /// The busiest arithmetic pipe outside of the tensor cores, with its share, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_pipe: Option<(String, f64)>,
    /// Issue slots that were used, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_share: Option<f64>,
    /// Warps that were resident, of those that a multiprocessor can hold, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<f64>,
    /// The same, as the resources of the kernel would allow it, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy_limit: Option<f64>,
    /// What sets that limit: `registers`, `shared_memory`, `warps`, `blocks`, `barriers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy_limited_by: Option<String>,
    /// Waves of blocks per multiprocessor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waves: Option<f64>,
    /// Registers per thread, as the device allocates them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers_per_thread: Option<f64>,
    /// Bytes read from and written to the device memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_bytes: Option<f64>,
    /// The same, per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_bytes_per_s: Option<f64>,
    /// Single-precision operations that it did outside of the tensor cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32_flops: Option<f64>,
    /// Operations of the tensor cores, by element type, where there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensor_ops: Vec<(String, f64)>,
    /// Hits of the L2 cache, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_hit_rate: Option<f64>,
    /// Hits of the L1 cache, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l1_hit_rate: Option<f64>,
    /// Sectors that a load of a warp from global memory touches, on average: 4 when 32-bit loads are coalesced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sectors_per_load: Option<f64>,
    /// Conflicts of banks of shared memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank_conflicts: Option<f64>,
    /// What warps wait for, largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stall>,
}

/// One reason for which warps wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stall {
    /// The reason as the tool names it, for example `long_scoreboard`.
    pub reason: String,
    /// Warps that wait for it, on average, whenever an instruction is issued.
    pub warps: f64,
    /// Its share of all resident warps, 0 to 1.
    pub share: f64,
}
