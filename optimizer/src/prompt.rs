//! Prompts: templates in `prompts/<agent>/<stage>/`, each stage with a `system.md` and a `user.md`, rendered over plain
//! views of the protocol's types. What the stages of an agent share lies in the agent's folder, what agents share in
//! `prompts/shared/`, to be included.
//!
//! The templates ship inside the binary. A folder of the user's may replace single files of the same name. Each rendered
//! prompt carries a version: the hash of the sources of exactly those templates that it was made from, so that two
//! results can be told apart by what the models were told.

mod check;
mod difference;
mod error;
mod format;
mod gpu;
mod inclusion;
mod library;
mod memory;
mod session;
mod task;
mod view;

use nightshift_protocol::task::{CandidateForm, Target, TaskSpec};

pub use self::check::PromptProblem;
pub(crate) use self::check::place_of;
pub(crate) use self::difference::difference;
pub use self::error::{MAX_PROMPT_BYTES, PromptError};
pub(crate) use self::format::{clipped, fenced_program};
pub(crate) use self::gpu::GpuProfileView;
pub use self::library::{Prompt, Prompts, Rendered};
pub(crate) use self::memory::MemoryView;
pub(crate) use self::session::TurnResultView;
pub(crate) use self::task::TaskView;
pub(crate) use self::view::{AttemptView, MachineView, PlanView, SubtaskView};

/// Text of the native contract, which every author of such a program is shown.
pub const CONTRACT: &str = include_str!("../../worker/toolchain/include/nightshift.h");
/// Text of the contract of a program in Python.
pub const TORCH_CONTRACT: &str = include_str!("../include/model_new.py");

/// Where the paragraph on the `cuda` target begins in the native contract, and where the text goes on after it.
const CUDA_PARAGRAPH: [&str; 2] = [" *   cuda  CUDA C++20", " * Every entry point returns"];
/// The same of the elements of 16 bits, which the `cpu` target does not have.
const SHORT_ELEMENTS: [&str; 2] = ["/* Elements of 16 bits", "/* A tensor: row-major"];

/// Returns the contract of a task's programs, without what concerns other targets.
pub(crate) fn contract(spec: &TaskSpec) -> String {
    match (spec.form, spec.target) {
        (CandidateForm::Torch, _) => TORCH_CONTRACT.to_owned(),
        (CandidateForm::Native, Target::Cuda) => CONTRACT.to_owned(),
        (CandidateForm::Native, Target::Cpu) => {
            [CUDA_PARAGRAPH, SHORT_ELEMENTS].into_iter().fold(CONTRACT.to_owned(), without)
        }
    }
}

/// A text without what stands between two others; as it is where they are not there.
fn without(text: String, [from, to]: [&str; 2]) -> String {
    let begin = text.find(from);
    let cut = begin.and_then(|begin| Some((text.get(..begin)?, text.get(begin + text.get(begin..)?.find(to)?..)?)));
    cut.map(|(before, after)| format!("{before}{after}")).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_of_the_cpu_target_does_without_what_concerns_gpus() {
        let text = [CUDA_PARAGRAPH, SHORT_ELEMENTS].into_iter().fold(CONTRACT.to_owned(), without);
        for word in ["cudaStream_t", "nvcc", "ns_f16", "ns_bf16", "__half"] {
            assert!(CONTRACT.contains(word) && !text.contains(word), "{word}");
        }
        for word in
            ["cpu   C++20", "Every entry point", "typedef NS_REAL ns_real", "typedef struct ns_tensor", "ns_free"]
        {
            assert!(text.contains(word), "{word}");
        }
    }
}
