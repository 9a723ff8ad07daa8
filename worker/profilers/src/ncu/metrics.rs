//! The counters that are asked for. A name that the device does not have makes the tool refuse the whole list, so that the
//! list depends on the chip, and a short one that every chip has stands behind it.

use nightshift_protocol::needs::ComputeCapability;

pub(super) const DURATION: &str = "gpu__time_duration.sum";
pub(super) const COMPUTE: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
pub(super) const MEMORY: &str = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed";
pub(super) const DRAM: &str = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
pub(super) const L2: &str = "lts__throughput.avg.pct_of_peak_sustained_elapsed";
pub(super) const L1: &str = "l1tex__throughput.avg.pct_of_peak_sustained_active";
pub(super) const DRAM_READ: &str = "dram__bytes_read.sum";
pub(super) const DRAM_WRITTEN: &str = "dram__bytes_write.sum";
pub(super) const L2_HITS: &str = "lts__t_sector_hit_rate.pct";
pub(super) const L1_HITS: &str = "l1tex__t_sector_hit_rate.pct";
pub(super) const OCCUPANCY: &str = "sm__warps_active.avg.pct_of_peak_sustained_active";
pub(super) const OCCUPANCY_LIMIT: &str = "sm__maximum_warps_per_active_cycle_pct";
pub(super) const ISSUE: &str = "smsp__issue_active.avg.pct_of_peak_sustained_active";
pub(super) const REGISTERS: &str = "launch__registers_per_thread";
pub(super) const WAVES: &str = "launch__waves_per_multiprocessor";
pub(super) const SECTORS_PER_LOAD: &str = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio";
pub(super) const BANK_CONFLICTS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum";
pub(super) const TENSOR: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
pub(super) const FFMA: &str = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum";
pub(super) const FADD: &str = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum";
pub(super) const FMUL: &str = "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum";

/// What sets the limit of the occupancy, and the most blocks that it allows.
pub(super) const OCCUPANCY_LIMITS: [(&str, &str); 5] = [
    ("registers", "launch__occupancy_limit_registers"),
    ("shared_memory", "launch__occupancy_limit_shared_mem"),
    ("blocks", "launch__occupancy_limit_blocks"),
    ("barriers", "launch__occupancy_limit_barriers"),
    ("warps", "launch__occupancy_limit_warps"),
];

/// Arithmetic pipes outside of the tensor cores.
pub(super) const PIPES: [(&str, &str); 3] = [
    ("fma", "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active"),
    ("alu", "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active"),
    ("xu", "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"),
];

/// Operations of the tensor cores by element type.
pub(super) const TENSOR_OPS: [(&str, &str); 5] = [
    ("bf16", "sm__ops_path_tensor_src_bf16_dst_fp32.sum"),
    ("fp16", "sm__ops_path_tensor_src_fp16.sum"),
    ("tf32", "sm__ops_path_tensor_src_tf32_dst_fp32.sum"),
    ("fp8", "sm__ops_path_tensor_src_fp8.sum"),
    ("int8", "sm__ops_path_tensor_src_int8.sum"),
];

/// Before and after the reason in the name of a stall.
pub(super) const STALL_PREFIX: &str = "smsp__average_warps_issue_stalled_";
pub(super) const STALL_SUFFIX: &str = "_per_issue_active.ratio";

/// Counters that every chip from Volta on has.
const EVERYWHERE: [&str; 20] = [
    DURATION,
    COMPUTE,
    MEMORY,
    DRAM,
    L2,
    L1,
    DRAM_READ,
    DRAM_WRITTEN,
    L2_HITS,
    L1_HITS,
    OCCUPANCY,
    OCCUPANCY_LIMIT,
    ISSUE,
    REGISTERS,
    WAVES,
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_barriers",
    "launch__occupancy_limit_warps",
];

/// What is asked for beside them on Hopper, where every name was checked.
const HOPPER: [&str; 30] = [
    TENSOR,
    FFMA,
    FADD,
    FMUL,
    SECTORS_PER_LOAD,
    BANK_CONFLICTS,
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp16.sum",
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "sm__ops_path_tensor_src_fp8.sum",
    "sm__ops_path_tensor_src_int8.sum",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_drain_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_membar_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
];

/// The lists to try on this chip, the richest first.
pub(super) fn lists(capability: Option<ComputeCapability>) -> Vec<Vec<&'static str>> {
    let everywhere = EVERYWHERE.to_vec();
    if capability.is_some_and(|capability| capability.major == 9) {
        let rich = EVERYWHERE.into_iter().chain(HOPPER).collect();
        return vec![rich, everywhere];
    }
    vec![everywhere]
}
