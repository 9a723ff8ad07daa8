//! The StitchCUDA domain: tasks, strategies, agents, prompts, rubric, reward and model providers.
//!
//! Strategies, reward, rubric rules and screening are pure. Agents talk to models through the [`model::Model`] trait and to the
//! store through the [`agent::AgentPorts`] trait. Nothing here knows SQL or HTTP servers, and only
//! `model/command.rs` starts processes.

pub mod agent;
pub mod change_text;
pub mod export;
pub mod knowledge;
pub mod model;
pub mod prompt;
pub mod reply;
pub mod reward;
pub mod rollout;
mod roofline;
pub mod rubric;
pub mod screen;
pub mod strategy;
pub mod task_file;
