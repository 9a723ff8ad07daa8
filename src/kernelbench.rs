//! Files with a `Model` of `PyTorch`, as `KernelBench` has them, become tasks, and results in its layout are written and read.

pub(crate) mod claims;
pub(crate) mod files;
mod known;
pub(crate) mod layout;
pub(crate) mod one_file;
pub(crate) mod results;
pub(crate) mod scripted;
pub(crate) mod task;
