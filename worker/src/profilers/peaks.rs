//! What a device can do at most, from its facts: the roofs of the roofline.

use nightshift_protocol::machine::GpuFacts;

/// Peaks of a device. Each is none when it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DevicePeaks {
    /// Bytes per second of the device memory.
    pub bytes_per_s: Option<f64>,
    /// Single-precision operations per second outside of the tensor cores.
    pub fp32_flops_per_s: Option<f64>,
    /// Operations per second of the tensor cores on 16-bit floats, dense.
    pub tensor_flops_per_s: Option<f64>,
}

/// Operations of one multiprocessor in one cycle, a fused multiply-add counted as two: compute capability, single precision
/// outside of the tensor cores, 16-bit floats on the tensor cores. From the vendor's papers on each architecture.
const OPERATIONS_PER_CYCLE: [((u32, u32), f64, f64); 9] = [
    ((7, 0), 128.0, 1024.0),
    ((7, 5), 128.0, 1024.0),
    ((8, 0), 128.0, 2048.0),
    ((8, 6), 256.0, 1024.0),
    ((8, 9), 256.0, 1024.0),
    ((9, 0), 256.0, 4096.0),
    ((10, 0), 256.0, 8192.0),
    ((10, 3), 256.0, 8192.0),
    ((12, 0), 256.0, 1024.0),
];

impl DevicePeaks {
    /// The peaks of this device at its highest clock.
    #[must_use]
    pub fn of(gpu: &GpuFacts) -> Self {
        let capability = (gpu.compute_capability.major, gpu.compute_capability.minor);
        let known = OPERATIONS_PER_CYCLE.iter().find(|(known, ..)| *known == capability);
        let cycles_per_s = gpu
            .multiprocessors
            .zip(gpu.sm_clock_max_mhz)
            .map(|(count, clock_mhz)| f64::from(count) * f64::from(clock_mhz) * 1e6)
            .filter(|cycles| *cycles > 0.0);
        let peak = |operations: Option<f64>| operations.zip(cycles_per_s).map(|(operations, cycles)| operations * cycles);
        Self {
            bytes_per_s: gpu.memory_bytes_per_s.filter(|bytes| *bytes > 0).map(bytes_to_float),
            fp32_flops_per_s: peak(known.map(|(_, fp32, _)| *fp32)),
            tensor_flops_per_s: peak(known.map(|(.., tensor)| *tensor)),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a bandwidth needs no more than seven digits")]
fn bytes_to_float(bytes: u64) -> f64 {
    bytes as f64
}
