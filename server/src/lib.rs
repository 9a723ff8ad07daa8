//! The HTTP server on axum: the API under `/api/v1`, access control, and the background loops that drive runs.
//!
//! It is composed of the ports of a [`Store`](nightshift_engine::store::Store), a
//! [`Workflow`](nightshift_engine::workflow::Workflow) and the agents. It contains no SQL, model provider or GPU code,
//! does not read the environment and starts no process.
//!
//! Every answer follows the store's acknowledgement of the change. Wake-ups are hints; the periodic heartbeat finds all
//! work.

mod access;
mod actor;
mod address;
mod agent_loop;
mod agent_ports;
mod agents;
mod api;
mod app;
mod artifact_loop;
mod attempt_inbox;
mod attempt_index;
mod backoff;
mod beside;
mod call_limits;
mod caller;
mod campaign_facts;
mod campaign_list;
mod clock;
mod commit;
mod config;
mod connections;
mod dispatch;
mod driver_loop;
mod driving;
mod error;
mod error_log_throttle;
mod extract;
mod fences;
mod heartbeat_loop;
mod index_loop;
mod keys;
mod leases;
mod live;
mod live_events;
mod notice_loop;
mod present;
mod rate_limits;
mod retention_loop;
mod run_inputs;
mod running;
mod secret;
mod server_lease;
mod shared;
mod store_health;
mod sweeper_loop;
mod sweeper_schedule;
mod table;
mod telemetry;
mod waiting;
mod wake;
mod webhook;
mod worker_registry;
mod worker_registry_loop;

pub use agents::AgentExecutor;
pub use api::{
    MAX_ARCHIVE_BYTES, MAX_ARCHIVE_TIMEOUT, MAX_ARTIFACT_TIMEOUT, MAX_BULK_RUNS, MAX_EVENTS_PER_PAGE, MAX_ID_MATCHES,
    MAX_JSON_BYTES, MAX_TASKS, REQUEST_TIMEOUT, openapi_json,
};
pub use attempt_index::{AttemptSpan, FORM as ATTEMPT_INDEX_FORM, Indexer, indexed_attempts};
pub use beside::guarded;
pub use clock::{OsRandom, SystemClock};
pub use config::{ChangesFn, DEFAULT_PULSE_MS, DEFAULT_REQUEST_DEADLINE, Parts, ServerConfig, ViewFn};
pub use error::{ApiFailure, ServerError};
pub use extract::Body;
pub use rate_limits::{Rate, Rates};
pub use running::{Running, Server, Shutdown, listen};
pub use telemetry::{MAX_QUEUED_SPANS, SpanExporter};
pub use worker_registry::MAX_LISTED_WORKERS;
