//! axum: the API under `/api/v1`, access control, and the background loops that move runs.
//!
//! It composes what it is given: a [`Store`](nightshift_engine::store::Store), a
//! [`Workflow`](nightshift_engine::workflow::Workflow) and the agents. It never names SQL, a model provider or a GPU,
//! never reads the environment and never starts a process. Commit, then act: every answer is given after the store has
//! acknowledged the change, and every wake-up is a hint on top of a slow poll (the pulse), which is the truth.

mod access;
mod actor;
mod agenda;
mod agent_loop;
mod agent_ports;
mod agents;
mod api;
mod app;
mod attempt_index;
mod backoff;
mod beside;
mod campaign_list;
mod claim;
mod clock;
mod commit;
mod complaints;
mod config;
mod connections;
mod dispatch;
mod driver_loop;
mod error;
mod extract;
mod fences;
mod leases;
mod life;
mod live;
mod notice_loop;
mod present;
mod pulse_loop;
mod retention_loop;
mod roster;
mod roster_loop;
mod run_inputs;
mod running;
mod sweeper_loop;
mod table;
mod telemetry;
mod trouble;
mod waiting;
mod wake;
mod webhook;

pub use access::{Rate, Rates};
pub use agents::AgentExecutor;
pub use api::{
    MAX_ARCHIVE_BYTES, MAX_ARCHIVE_TIMEOUT, MAX_ARTIFACT_TIMEOUT, MAX_BULK_RUNS, MAX_EVENTS_PER_PAGE, MAX_ID_MATCHES,
    MAX_JSON_BYTES, MAX_LISTED_WORKERS, MAX_TASKS, REQUEST_TIMEOUT, openapi_json,
};
pub use attempt_index::{AttemptSpan, FORM as ATTEMPT_INDEX_FORM, indexed_attempts};
pub use beside::guarded;
pub use clock::{OsRandom, SystemClock};
pub use config::{DEFAULT_PULSE_MS, DEFAULT_REQUEST_DEADLINE, Parts, ServerConfig, ViewFn};
pub use error::{ApiFailure, ServerError};
pub use extract::Body;
pub use running::{Running, Server, Shutdown, listen};
pub use telemetry::{MAX_QUEUED_SPANS, SpanExporter};
