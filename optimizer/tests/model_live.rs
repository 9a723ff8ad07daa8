//! Models and agents against a local server that speaks the real wire formats, with its good days and its bad ones.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "model_live/agents.rs"]
mod agents;
#[path = "model_live/behaviours.rs"]
mod behaviours;
#[path = "model_live/budget.rs"]
mod budget;
#[path = "model_live/chain.rs"]
mod chain;
#[path = "model_live/cuda.rs"]
mod cuda;
#[path = "model_live/examples.rs"]
mod examples;
#[path = "model_live/fixture.rs"]
mod fixture;
#[path = "model_live/prompts.rs"]
mod prompts;
#[path = "model_live/reasoning.rs"]
mod reasoning;
#[path = "model_live/server.rs"]
mod server;
#[path = "model_live/session.rs"]
mod session;
#[path = "model_live/stages.rs"]
mod stages;
#[path = "model_live/wire.rs"]
mod wire;
