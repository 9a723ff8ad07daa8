//! What profilers tell of a generated program on a GPU: a timeline, counters, and the trace behind them.

use nightshift_protocol::artifact::ArtifactHash;
use serde_json::{Value, json};

use super::dice::Dice;

/// Calls of the program that a trace covers.
const CALLS: u32 = 4;
/// Kernels of one call: name, share of its time.
const KERNELS: [(&str, f64); 3] = [("kernel", 0.78), ("reduce_partials", 0.17), ("fill", 0.05)];
/// Length of a call in the trace, in microseconds.
const CALL_US: f64 = 120.0;

/// Adds what only profilers know.
pub(super) fn fill(profile: &mut Value, dice: &mut Dice, task: &str, call_ns: f64, trace: &ArtifactHash) {
    let busy_share = dice.between(0.82, 0.97);
    let device_ns = call_ns * busy_share;
    profile["tier"] = json!("nsys+ncu+compiler_report+analytic_roofline");
    profile["missing"] = json!([]);
    profile["trace"] = json!(trace);
    profile["timeline"] = timeline(task, call_ns, device_ns);
    let kernels: Vec<Value> =
        KERNELS.iter().map(|(name, share)| counters(dice, &named(task, name), *share, device_ns * share)).collect();
    profile["kernels"] = json!(kernels);
    profile["bound"] = json!({
        "bound": "memory", "evidence": [format!("the device is busy for {:.0} % of the time", busy_share * 100.0)],
    });
    let tool = |purpose: &str, tool: &str, version: &str, wall_ms: u64| json!({ "purpose": purpose, "tool": tool, "version": version, "used": true, "wall_ms": wall_ms });
    profile["tiers"] = json!([
        tool("timeline", "nsys", "2025.3.2", 2_300 + dice.below(900)),
        tool("kernels", "ncu", "2025.3.1", 3_100 + dice.below(2_000)),
        tool("code", "compiler_report", "13.0", 40),
        tool("roofline", "analytic_roofline", "1", 1),
    ]);
}

fn named(task: &str, kernel: &str) -> String {
    format!("{task}_{kernel}(float const*, float*, int, int)")
}

fn timeline(task: &str, call_ns: f64, device_ns: f64) -> Value {
    let times = |count: u32, each_ns: f64| {
        let each = whole(each_ns);
        json!({ "count": count, "total_ns": each * u64::from(count), "min_ns": whole(each_ns * 0.97), "max_ns": whole(each_ns * 1.05) })
    };
    let kernels: Vec<Value> = KERNELS
        .iter()
        .map(|(name, share)| {
            json!({
                "name": named(task, name), "times": times(CALLS, device_ns * share), "share": share, "grid": [4_096, 1, 1],
                "block": [256, 1, 1], "registers_per_thread": 40, "shared_bytes": 16_896,
            })
        })
        .collect();
    let calls = f64::from(CALLS);
    let gap_ns = (call_ns - device_ns) / 3.0;
    json!({
        "calls": CALLS, "span_ns": whole(call_ns * calls), "busy_ns": whole(device_ns * calls), "overlap_ns": 0,
        "host_share": 1.0 - device_ns / call_ns, "kernels": kernels,
        "copies": [{ "direction": "device_to_device", "times": times(CALLS, 1_500.0), "bytes": 65_536 }],
        "api": [
            { "name": "cudaLaunchKernel", "times": times(CALLS * 3, 2_400.0) },
            { "name": "cudaMemcpyAsync", "times": times(CALLS, 3_100.0) },
        ],
        "gaps": { "between": times(CALLS * 2, gap_ns), "before_first": times(CALLS, gap_ns) },
        "launches": { "host": times(CALLS * 3, 2_400.0), "until_start": times(CALLS * 3, 5_200.0), "graphs": 0 },
        "streams": [{ "stream": 7, "kernels": CALLS * 3, "copies": CALLS, "busy_ns": whole(device_ns * calls) }],
    })
}

fn counters(dice: &mut Dice, name: &str, share: f64, duration_ns: f64) -> Value {
    let dram = dice.between(0.35, 0.88);
    let bytes_per_s = dram * 4.8e12;
    let bytes = bytes_per_s * duration_ns * 1e-9;
    let stall = |reason: &str, warps: f64| json!({ "reason": reason, "warps": warps, "share": warps / 16.0 });
    json!({
        "name": name, "launches": 1, "time_share": share, "duration_ns": duration_ns, "grid": "(4096, 1, 1)",
        "block": "(256, 1, 1)",
        "bound": { "bound": "memory", "evidence": [format!("the device memory is at {:.0} % of its peak", dram * 100.0)] },
        "compute_share": dice.between(0.1, 0.4), "memory_share": dram + 0.05, "dram_share": dram,
        "l2_share": dice.between(0.3, 0.6), "l1_share": dice.between(0.2, 0.5), "issue_share": dice.between(0.15, 0.5),
        "occupancy": dice.between(0.4, 0.7), "occupancy_limit": 0.75, "occupancy_limited_by": "registers",
        "waves": dice.between(1.2, 6.0), "registers_per_thread": 40.0, "dram_bytes": bytes, "dram_bytes_per_s": bytes_per_s,
        "fp32_flops": bytes * dice.between(0.2, 0.9), "l2_hit_rate": dice.between(0.3, 0.7), "l1_hit_rate": dice.between(0.1, 0.6),
        "sectors_per_load": dice.between(4.0, 9.0), "bank_conflicts": whole(dice.between(0.0, 40_000.0)),
        "stalls": [
            stall("long_scoreboard", dice.between(3.0, 6.0)), stall("barrier", dice.between(0.6, 2.0)),
            stall("mio_throttle", dice.between(0.2, 0.6)),
        ],
    })
}

/// The same calls as a trace: host, device, and what both wait for.
pub(super) fn trace() -> Vec<u8> {
    let mut events = vec![
        json!({ "ph": "M", "name": "thread_name", "pid": 2, "tid": 7, "args": { "name": "Stream 7" } }),
        json!({ "ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": { "name": "Thread 1" } }),
    ];
    let mut span = |name: &str, kind: &str, (pid, tid): (u32, u32), begin: f64, length: f64| {
        events.push(json!({
            "ph": "X", "name": name, "cat": kind, "pid": pid, "tid": tid, "ts": begin, "dur": length, "args": {},
        }));
    };
    for call in 0..CALLS {
        let begin = f64::from(call) * CALL_US * 1.15;
        span(&format!("call {}", call + 1), "call", (1, 0), begin, CALL_US);
        span("cudaMemcpyAsync", "cuda_runtime", (1, 1), begin + 1.0, 3.1);
        span("device_to_device", "gpu_memcpy", (2, 7), begin + 6.0, 1.5);
        let mut at = begin + 11.0;
        for (place, (name, share)) in (0_u32..).zip(KERNELS) {
            span("cudaLaunchKernel", "cuda_runtime", (1, 1), begin + 5.0 + 3.0 * f64::from(place), 2.4);
            let length = (CALL_US - 24.0) * share;
            span(name, "kernel", (2, 7), at, length);
            at += length + 3.5;
        }
    }
    json!({ "displayTimeUnit": "ns", "otherData": {}, "traceEvents": events }).to_string().into_bytes()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative, and far from the limit")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}
