//! What people tell a run.

use nightshift_engine::event::Event;
use nightshift_protocol::id::RunId;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;

use super::control::held_run;
use super::idempotency::Key;
use crate::batch::event_text::EventText;
use crate::batch::held::{Held, Wanted};
use crate::failure::Failure;
use crate::json;
use crate::transaction::Transaction;

/// Appends a signal. A run that is over hears nothing any more.
pub(crate) async fn signal(
    transaction: &mut Transaction<'_>,
    run: &RunId,
    signal: &Signal,
    by: Option<&str>,
    idempotency: Option<&(String, String)>,
    at: TimestampMs,
) -> Result<(), Failure> {
    let wanted = Wanted { runs: vec![run.as_str().to_owned()], ..Wanted::default() };
    let mut held = Held::load(transaction, wanted).await?;
    let run_id = held_run(&held.set, run)?;
    if let Some((key, digest)) = idempotency {
        let key = Key::new("signal", key, digest);
        let known = key.find(transaction.connection).await?.is_some();
        if known || !key.insert(transaction.connection, run.as_str(), at).await? {
            // Whoever was first may have asked for something else: then this is a conflict.
            key.find(transaction.connection).await?;
            return Ok(());
        }
    }
    let status = held.set.run(run_id)?.status;
    if status.is_final() {
        let message = format!("the run is {}: it hears no signals any more", status.as_str());
        return Err(Failure::refused("run.over", message));
    }
    let by = by.map(|by| json::clean(by).into_owned());
    held.set.append(run_id, at.0, EventText::of(&Event::SignalReceived { signal: signal.clone(), by })?)?;
    held.write(transaction, at).await?;
    Ok(())
}
