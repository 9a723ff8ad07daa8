//! Files with a `Model` of `PyTorch`, as `KernelBench` has them, become tasks.

pub(crate) mod files;
mod known;
pub(crate) mod layout;
pub(crate) mod task;
