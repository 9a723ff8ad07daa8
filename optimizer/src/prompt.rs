//! Prompts: templates in `prompts/<agent>/<stage>/`, each stage with a `system.md` and a `user.md`, rendered over plain
//! views of the protocol's types. What the stages of an agent share lies in the agent's folder, what agents share in
//! `prompts/shared/`, to be included.
//!
//! The templates ship inside the binary. A folder of the user's may replace single files of the same name. Each rendered
//! prompt carries a version: the hash of the sources of exactly those templates that it was made from, so that two
//! results can be told apart by what the models were told.

mod check;
mod error;
mod format;
mod gpu;
mod library;
mod memory;
mod task;
mod view;

use nightshift_protocol::task::CandidateForm;

pub use self::check::PromptProblem;
pub(crate) use self::check::place_of;
pub use self::error::PromptError;
pub(crate) use self::gpu::GpuProfileView;
pub use self::library::{MAX_PROMPT_BYTES, Prompt, Prompts, Rendered};
pub(crate) use self::memory::MemoryView;
pub(crate) use self::task::TaskView;
pub(crate) use self::view::{AttemptView, MachineView, PlanView, SubtaskView};

/// Text of the native contract, which every author of such a program is shown.
pub const CONTRACT: &str = include_str!("../../worker/toolchain/include/nightshift.h");
/// Text of the contract of a program in Python.
pub const TORCH_CONTRACT: &str = include_str!("../include/model_new.py");

/// The contract of programs of this form.
pub(crate) fn contract(form: CandidateForm) -> &'static str {
    match form {
        CandidateForm::Native => CONTRACT,
        CandidateForm::Torch => TORCH_CONTRACT,
    }
}
