//! Architectures of NVIDIA's GPUs: their names, and what a multiprocessor of each holds.

use std::fmt;
use std::str::FromStr;

use nightshift_protocol::needs::ComputeCapability;

use super::error::NvccError;

/// Default architecture on a machine without a GPU: that of the H100 and H200.
pub const DEFAULT_ARCH: Arch = Arch { capability: ComputeCapability { major: 9, minor: 0 }, suffix: Some('a') };

/// From this compute capability on, an architecture has instructions of its own that need the suffix `a`.
const FIRST_SPECIFIC_MAJOR: u32 = 9;

/// An architecture of machine code, for example `sm_90a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arch {
    /// Compute capability.
    pub capability: ComputeCapability,
    /// `a` for the instructions of this very architecture, `f` for those of its family.
    suffix: Option<char>,
}

impl Arch {
    /// The virtual architecture that the compiler's middle part writes for, for example `compute_90a`.
    #[must_use]
    pub fn virtual_name(&self) -> String {
        format!("compute_{}", self.number())
    }

    fn number(&self) -> String {
        let ComputeCapability { major, minor } = self.capability;
        let suffix = self.suffix.map(String::from).unwrap_or_default();
        format!("{major}{minor}{suffix}")
    }

    /// Returns the resources of a multiprocessor; `None` for an unknown architecture.
    #[must_use]
    pub fn multiprocessor(&self) -> Option<Multiprocessor> {
        let ComputeCapability { major, minor } = self.capability;
        // Warps, blocks, shared memory in KiB: "Technical Specifications per Compute Capability" of the CUDA C++
        // Programming Guide, and the same numbers in cuda_occupancy.h.
        let (max_warps, max_blocks, shared_kib) = match (major, minor) {
            (7, 5) => (32, 16, 64),
            (8, 0) => (64, 32, 164),
            (8, 7) => (48, 16, 164),
            (8, 6) => (48, 16, 100),
            (9, 0) | (10, 0 | 3) => (64, 32, 228),
            (8, 9) | (12, 0 | 1) => (48, 24, 100),
            _ => return None,
        };
        Some(Multiprocessor {
            registers: 64 * 1024,
            max_warps,
            max_blocks,
            shared_bytes: shared_kib * 1024,
            reserved_shared_bytes: if major >= 8 { 1024 } else { 0 },
        })
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number())
    }
}

/// The architecture of a device, with all the instructions that it has.
impl From<ComputeCapability> for Arch {
    fn from(capability: ComputeCapability) -> Self {
        Self { capability, suffix: (capability.major >= FIRST_SPECIFIC_MAJOR).then_some('a') }
    }
}

/// `sm_90a`, `90a`, `compute_90a`, or a compute capability such as `9.0`, which stands for the device's architecture.
impl FromStr for Arch {
    type Err = NvccError;

    fn from_str(text: &str) -> Result<Self, NvccError> {
        let unreadable = || NvccError::UnreadableArch { text: text.to_owned() };
        if let Ok(capability) = text.parse::<ComputeCapability>() {
            return Ok(capability.into());
        }
        let number = text.trim().trim_start_matches("sm_").trim_start_matches("compute_");
        let (digits, suffix) = match number.strip_suffix(['a', 'f']) {
            Some(digits) => (digits, number.chars().next_back()),
            None => (number, None),
        };
        if !(2..=3).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(unreadable());
        }
        let (major, minor) = digits.split_at(digits.len() - 1);
        let capability = ComputeCapability {
            major: major.parse().map_err(|_| unreadable())?,
            minor: minor.parse().map_err(|_| unreadable())?,
        };
        Ok(Self { capability, suffix })
    }
}

/// The resources of a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Registers of 4 bytes.
    pub registers: u32,
    /// Warps at once.
    pub max_warps: u32,
    /// Blocks at once.
    pub max_blocks: u32,
    /// Shared memory in bytes.
    pub shared_bytes: u64,
    /// What the system takes of it for each block, in bytes.
    pub reserved_shared_bytes: u64,
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_is_read_in_every_spelling() {
        for text in ["sm_90a", "90a", "compute_90a", "9.0"] {
            let arch: Arch = text.parse().unwrap();
            assert_eq!((arch.to_string().as_str(), arch.virtual_name().as_str()), ("sm_90a", "compute_90a"), "{text}");
        }
        assert_eq!("sm_90".parse::<Arch>().unwrap().to_string(), "sm_90");
        assert_eq!("sm_100f".parse::<Arch>().unwrap().to_string(), "sm_100f");
        assert_eq!("12.1".parse::<Arch>().unwrap().to_string(), "sm_121a");
        assert_eq!("8.6".parse::<Arch>().unwrap().to_string(), "sm_86");
        assert_eq!("sm_90a".parse::<Arch>().unwrap(), DEFAULT_ARCH);
    }

    #[test]
    fn what_is_no_architecture_is_refused_with_the_key_to_correct() {
        for text in ["", "native", "sm_", "sm_9", "sm_9000", "hopper", "9", "sm_9xa"] {
            let error = text.parse::<Arch>().unwrap_err();
            assert_eq!(error.code(), "toolchain.cuda_arch");
            assert!(error.to_string().contains("worker.cuda_arch"), "{error}");
        }
    }
}
