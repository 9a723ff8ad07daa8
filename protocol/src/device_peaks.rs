//! What a device can do at most, from its facts: the roofs of the roofline.

use crate::machine::GpuFacts;

/// Peaks of a device at its highest clock. Each is none when it is not known.
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
        let peak =
            |operations: Option<f64>| operations.zip(cycles_per_s).map(|(operations, cycles)| operations * cycles);
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn gpu(capability: &str, clock_mhz: Option<u32>) -> GpuFacts {
        serde_json::from_value(serde_json::json!({
            "index": 0, "name": "x", "uuid": "GPU-1", "compute_capability": capability, "memory_bytes": 1,
            "driver_version": "580.0", "cuda_driver_version": "13.0", "sm_clock_max_mhz": clock_mhz, "multiprocessors": 132,
            "memory_bytes_per_s": 4_814_304_000_000_u64,
        }))
        .unwrap()
    }

    #[test]
    fn the_peaks_of_an_h200_are_those_of_its_data_sheet() {
        let peaks = DevicePeaks::of(&gpu("9.0", Some(1980)));
        // 66.9 TFLOP/s in single precision; the sheet gives the tensor cores 989 at a clock of 1830 MHz.
        assert!((peaks.fp32_flops_per_s.unwrap() / 66.9e12 - 1.0).abs() < 0.01);
        let at_the_sheets_clock = DevicePeaks::of(&gpu("9.0", Some(1830))).tensor_flops_per_s.unwrap();
        assert!((at_the_sheets_clock / 989.4e12 - 1.0).abs() < 0.01);
        assert!((peaks.bytes_per_s.unwrap() / 4.814e12 - 1.0).abs() < 0.01);
    }

    #[test]
    fn what_is_not_known_has_no_peak() {
        let unknown_chip = DevicePeaks::of(&gpu("99.0", Some(1000)));
        assert!(unknown_chip.fp32_flops_per_s.is_none() && unknown_chip.bytes_per_s.is_some());
        assert!(DevicePeaks::of(&gpu("9.0", None)).tensor_flops_per_s.is_none());
    }
}
