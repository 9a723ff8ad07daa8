//! `PyTorch`: which Python has it, and what a file with a model needs.
//!
//! Nothing of a model's file runs in this process: it is inspected in the jail, and its model runs in the runner's.

pub mod inspect;
pub(crate) mod provenance;
