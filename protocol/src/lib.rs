//! The vocabulary that every other crate shares: ids, states, step inputs and outputs, messages and errors.
//!
//! This crate never does anything: no I/O, no clock, no environment, no runtime. It compiles to wasm. Types that are
//! stored or sent are tagged and carry a schema version where they outlive a release.

pub mod access;
pub mod api;
pub mod archive;
pub mod artifact;
pub mod attempt;
pub mod attempt_memory;
pub mod attempt_outcome;
pub mod baseline;
pub mod bound;
pub mod budget;
pub mod campaign;
pub mod capability;
pub mod code_request;
pub mod cost;
pub mod cuda_build;
pub mod device_peaks;
pub mod error;
pub mod evidence;
pub mod fence;
pub mod gpu_text;
pub mod handover;
pub mod id;
pub mod judgement;
pub mod last_words;
pub mod machine;
pub mod measurement;
pub mod model_call;
pub mod models;
pub mod needs;
#[cfg(feature = "openapi")]
mod openapi;
pub mod plan;
pub mod plan_difference;
pub mod prepared;
pub mod profile;
pub mod reports;
pub mod rubric;
pub mod run;
pub mod schedule;
pub mod score;
pub mod signal;
pub mod speedups;
pub mod step;
pub mod step_kind;
pub mod target;
pub mod target_baseline;
pub mod task;
pub mod time;
pub mod trace;
pub mod tunable;
pub mod tune;
pub mod verdict;
