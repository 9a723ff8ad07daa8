//! Finds the origin of the kernels of a `PyTorch` program: its own code, or a library.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nightshift_protocol::profile::{KernelTime, Profile};

use nightshift_toolchain::build::EXTENSION_MARKER;

/// Prefixes of kernels of libraries whose names are valid names of Python functions.
const LIBRARIES: [&str; 7] = ["nvjet", "cudnn", "cublas", "cutlass", "ampere_", "turing_", "volta_"];

/// Last part of the name of a decorator that makes a function a kernel: `@triton.jit`, `@gluon.jit`, `@jit`.
const KERNEL_DECORATOR: &str = "jit";

/// Text before the function in a call of that decorator, as in `triton.jit(function)`.
const KERNEL_CALL: &str = "jit(";

/// Length of the kind of kernel in a name that `torch.compile` gives, such as `triton_poi_fused_add_0`.
const KIND_CHARS: usize = 3;

/// The kernel code of a program.
struct OwnCode {
    /// Names of the kernels of Triton that its text defines.
    kernels: BTreeSet<String>,
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
        let decoded = |line: &&str| BASE64_STANDARD.decode(line.split_whitespace().next_back()?).ok();
        Self { kernels: kernels(&text), libraries: extensions.iter().filter_map(decoded).collect() }
    }

    fn has(&self, kernel: &KernelTime) -> bool {
        let name = kernel.mangled.as_deref().unwrap_or(&kernel.name);
        (self.kernels.contains(name) && !is_foreign(name)) || self.libraries.iter().any(|library| holds(library, name))
    }
}

/// Returns the names of the functions that a decorator of Triton makes kernels, or a call of it.
fn kernels(text: &[&str]) -> BTreeSet<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut kernels = BTreeSet::new();
    let mut is_kernel = false;
    for call in text.iter().flat_map(|line| line.split(KERNEL_CALL).skip(1)) {
        kernels.insert(call.trim_start().split(|c: char| !is_part(c)).next().unwrap_or_default().to_owned());
    }
    for line in text.iter().map(|line| line.trim_start()) {
        if let Some(decorator) = line.strip_prefix('@') {
            let path = decorator.trim_start().split(|c: char| !is_part(c) && c != '.').next().unwrap_or_default();
            is_kernel |= path.rsplit('.').next() == Some(KERNEL_DECORATOR);
        } else if let Some(function) = line.strip_prefix("def ") {
            let name = function.split('(').next().unwrap_or_default().trim();
            if std::mem::take(&mut is_kernel) {
                kernels.insert(name.to_owned());
            }
        }
    }
    kernels
}

/// True if the name has the form of a library's kernels or of those that `torch.compile` generates.
fn is_foreign(name: &str) -> bool {
    let of_architecture = name.strip_prefix("sm").is_some_and(|rest| {
        let rest_of_name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        rest_of_name.len() < rest.len() && rest_of_name.starts_with('_')
    });
    let is_generated = name
        .strip_prefix("triton_")
        .and_then(|rest| rest.get(KIND_CHARS..))
        .is_some_and(|rest| rest.starts_with("_fused"));
    of_architecture || is_generated || LIBRARIES.iter().any(|prefix| name.starts_with(prefix))
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

    /// Own kernels of Triton, names of others that a decorator is put in front of, and functions that are no kernels.
    const TRITON: &str = r#"
    """A docstring:
    def gemmSN_TN_kernel(x)
    """
@triton.jit
def triton_softmax_kernel(x):
    pass
@triton.autotune(configs=[
    triton.Config({"BLOCK": 128}),
], key=["n"])
@triton.jit(do_not_specialize=["n"])
def tuned_kernel(x, n):
    pass
@triton.jit
def nvjet_hsh_128(x):
    pass
@triton.jit
def sm86_xmma_gemm(x):
    pass
@triton.jit
def turing_sgemm(x):
    pass
@triton.jit
def triton_poi_fused_add_0(x):
    pass
def forward(x):
    pass"#;

    #[test]
    fn kernels_of_the_program_are_told_from_those_of_libraries() {
        let library = BASE64_STANDARD.encode(b"\x7fELF\0_Z8my_scalePfi\0more");
        let program = format!(
            "import triton\n@triton.jit\ndef add_kernel(x):\n    pass\n{TRITON}\n{EXTENSION_MARKER}ext {library}\n"
        );
        let expected = [
            (kernel("add_kernel", Some("add_kernel")), true),
            (kernel("my_scale(float*, int)", Some("_Z8my_scalePfi")), true),
            (kernel("my_scale(float*, int)", Some("_Z8my_scale")), false),
            (kernel("triton_softmax_kernel", None), true),
            (kernel("tuned_kernel", None), true),
            (kernel("nvjet_hsh_128", Some("nvjet_hsh_128")), false),
            (kernel("sm86_xmma_gemm", None), false),
            (kernel("turing_sgemm", None), false),
            (kernel("gemmSN_TN_kernel", None), false),
            (kernel("forward", None), false),
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
