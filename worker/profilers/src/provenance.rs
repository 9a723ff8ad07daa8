//! Finds the origin of the kernels of a `PyTorch` program: its own code, or a library.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nightshift_protocol::profile::{KernelTime, Profile};

use nightshift_toolchain::build::EXTENSION_MARKER;

/// Prefixes of kernels of libraries and compilers whose names are valid names of Python functions.
const OTHERS: [&str; 12] = [
    "nvjet", "sm70_", "sm75_", "sm80_", "sm90_", "sm100_", "cudnn", "cublas", "cutlass", "ampere_", "volta_", "triton_",
];

/// The kernel code of a program.
struct OwnCode {
    /// Names of functions that its text defines, which is what kernels of Triton are called.
    functions: BTreeSet<String>,
    /// Libraries that were compiled from its text.
    libraries: Vec<Vec<u8>>,
}

/// Notes of each kernel whether it comes from the program. What `torch.compile` generates does not: the program did not
/// write it.
pub fn mark_own(profile: &mut Profile, program: &[u8]) {
    let own = OwnCode::of(&String::from_utf8_lossy(program));
    for kernel in profile.timeline.iter_mut().flat_map(|timeline| &mut timeline.kernels) {
        kernel.own = Some(own.has(kernel));
    }
}

impl OwnCode {
    fn of(program: &str) -> Self {
        let (extensions, text): (Vec<&str>, Vec<&str>) =
            program.lines().partition(|line| line.starts_with(EXTENSION_MARKER));
        let defined = |line: &&str| {
            let name = line.trim_start().strip_prefix("def ")?.split('(').next()?.trim();
            (!name.is_empty()).then(|| name.to_owned())
        };
        let decoded = |line: &&str| BASE64_STANDARD.decode(line.split_whitespace().next_back()?).ok();
        Self {
            functions: text.iter().filter_map(defined).collect(),
            libraries: extensions.iter().filter_map(decoded).collect(),
        }
    }

    fn has(&self, kernel: &KernelTime) -> bool {
        let name = kernel.mangled.as_deref().unwrap_or(&kernel.name);
        let is_known = OTHERS.iter().any(|prefix| name.starts_with(prefix));
        (!is_known && self.functions.contains(name)) || self.libraries.iter().any(|library| holds(library, name))
    }
}

/// Returns whether a library names this kernel: what starts kernels registers them by their names.
fn holds(library: &[u8], name: &str) -> bool {
    let mut symbol = name.as_bytes().to_vec();
    symbol.push(0);
    !name.is_empty() && library.windows(symbol.len()).any(|window| window == symbol)
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::profile::Timeline;

    use super::*;

    fn kernel(name: &str, mangled: Option<&str>) -> KernelTime {
        KernelTime { name: name.to_owned(), mangled: mangled.map(str::to_owned), ..KernelTime::default() }
    }

    #[test]
    fn kernels_of_the_program_are_told_from_those_of_libraries() {
        let library = BASE64_STANDARD.encode(b"\x7fELF\0_Z8my_scalePfi\0more");
        let program = format!(
            "import triton\n@triton.jit\ndef add_kernel(x):\n    pass\ndef nvjet_hsh_128(x):\n    pass\n{EXTENSION_MARKER}ext {library}\n"
        );
        let expected = [
            (kernel("add_kernel", Some("add_kernel")), true),
            (kernel("my_scale(float*, int)", Some("_Z8my_scalePfi")), true),
            (kernel("my_scale(float*, int)", Some("_Z8my_scale")), false),
            (kernel("nvjet_hsh_128", Some("nvjet_hsh_128")), false),
            (kernel("triton_poi_fused_add_0", None), false),
            (kernel("void at::native::vectorized_elementwise_kernel<4>(int)", None), false),
        ];
        let kernels = expected.iter().map(|(kernel, _)| kernel.clone()).collect();
        let mut profile = Profile { timeline: Some(Timeline { kernels, ..Timeline::default() }), ..Profile::default() };
        mark_own(&mut profile, program.as_bytes());
        let marked: Vec<_> = profile.timeline.iter().flat_map(|timeline| &timeline.kernels).collect();
        for (kernel, (_, own)) in marked.into_iter().zip(&expected) {
            assert_eq!(kernel.own, Some(*own), "{}", kernel.name);
        }
    }
}
