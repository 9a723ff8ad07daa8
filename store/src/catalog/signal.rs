//! Signals to a run.

use nightshift_engine::event::Event;
use nightshift_protocol::id::RunId;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;

use super::control::locked_run_id;
use super::handover;
use super::idempotency::Key;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::scheduling::event_text::EventText;
use crate::scheduling::locked_rows::{LoadRequest, LockedRows};
use crate::transaction::Transaction;
use crate::value::values;

/// Appends a signal.
///
/// A finished run accepts no signal. An answer to a gate is accepted only while the run waits for this gate: an earlier
/// answer cannot refer to what the gate shows.
pub(crate) async fn signal(
    transaction: &mut Transaction<'_>,
    run: &RunId,
    signal: &Signal,
    by: Option<&str>,
    idempotency: Option<&(String, String)>,
    at: TimestampMs,
) -> Result<(), Failure> {
    let wanted = LoadRequest { runs: vec![run.as_str().to_owned()], ..LoadRequest::default() };
    let mut held = LockedRows::load(transaction, wanted).await?;
    let run_id = locked_run_id(&held.set, run)?;
    handover::refuse_if_handed_over(transaction.connection, run_id).await?;
    if let Some((key, digest)) = idempotency {
        let key = Key::new("signal", key, digest);
        let known = key.find(transaction.connection).await?.is_some();
        if known || !key.insert(transaction.connection, run.as_str(), at).await? {
            // The first request with this key may have been a different one, which is a conflict.
            key.find(transaction.connection).await?;
            return Ok(());
        }
    }
    let status = held.set.run(run_id)?.status;
    if status.is_final() {
        let message = format!("the run is {}: it accepts no signals any more", status.as_str());
        return Err(Failure::refused("run.over", message));
    }
    if let Signal::Approved { gate } | Signal::Rejected { gate, .. } = signal
        && !awaits(transaction.connection, run_id).await?.iter().any(|awaited| awaited == gate.as_str())
    {
        let message = format!("the run does not wait at the gate `{}`: nothing was changed", gate.as_str());
        return Err(Failure::refused("signal.not_awaited", message));
    }
    let by = by.map(|by| json::clean(by).into_owned());
    held.set.append(run_id, at.0, EventText::of(&Event::SignalReceived { signal: signal.clone(), by })?)?;
    held.write(transaction, at).await?;
    Ok(())
}

/// Returns the signals that a loaded run waits for.
async fn awaits(connection: &mut Connection, run_id: i64) -> Result<Vec<String>, Failure> {
    let row = connection.fetch_one("SELECT awaits FROM run WHERE id = $1", values![run_id]).await?;
    row.opt_str(0)?.map_or_else(
        || Ok(Vec::new()),
        |text| json::read(text).map_err(|error| Failure::unreadable("what a run waits for", &error)),
    )
}
