//! Accepts the answer to a request once, in the transaction that continues the step.

use nightshift_engine::store::RequestAnswer;
use nightshift_protocol::api::RequestState;
use nightshift_protocol::id::RequestId;
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::time::TimestampMs;

use super::lease::{locked, refuse_other_lease, refuse_unless_waiting};
use super::view;
use crate::failure::Failure;
use crate::json;
use crate::scheduling::admit;
use crate::scheduling::locked_rows::{LoadRequest, LockedRows};
use crate::scheduling::rows::Place;
use crate::transaction::Transaction;
use crate::value::values;

/// Accepts an answer. Returns whether the same answer was accepted before.
pub(crate) async fn accept(
    transaction: &mut Transaction<'_>,
    id: &RequestId,
    lease: &str,
    answer: &RequestAnswer,
    at: TimestampMs,
) -> Result<bool, Failure> {
    let sql = "SELECT run_id, step_id FROM model_request WHERE public_id = $1";
    let row = transaction.connection.fetch_optional(sql, values![id.as_str()]).await?;
    let row = row.ok_or_else(|| Failure::not_found("request", id.as_str()))?;
    let (run_id, step_id) = (row.i64(0)?, row.i64(1)?);
    // The lock order requires the run before the request.
    let wanted = LoadRequest { run_ids: vec![run_id], step_ids: vec![step_id], ..LoadRequest::default() };
    let mut rows = LockedRows::load(transaction, wanted).await?;
    let row = locked(transaction, id).await?;
    let request = view(&row, at)?;
    let text = json::clean(&answer.text);
    if request.state == RequestState::Answered && was_given(transaction, id, &text).await? {
        return Ok(true);
    }
    refuse_unless_waiting(&request)?;
    refuse_other_lease(&row, id, lease)?;
    let step = rows.set.step(step_id)?;
    if step.status == StepStatus::Leased {
        let message = format!("the step of {id} is being carried out: send the answer again in a moment");
        return Err(Failure::refused("request.busy", message));
    }
    if let Place::Timer { for_window: false, .. } = step.place {
        rows.set.put(step_id, Place::Nowhere)?;
        admit::admit(&mut rows.set, step_id, at)?;
    }
    let tokens = |tokens: Option<u64>| tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
    let sql = "UPDATE model_request SET answer = $2, answered_at_ms = $3, input_tokens = $4, output_tokens = $5, \
               answered_with = $6 WHERE public_id = $1";
    let values = values![
        id.as_str(),
        text,
        at.0,
        tokens(answer.input_tokens),
        tokens(answer.output_tokens),
        answer.model.as_deref().map(|model| json::clean(model).into_owned())
    ];
    transaction.connection.execute(sql, values).await?;
    rows.write(transaction, at).await?;
    Ok(false)
}

/// Returns whether this answer was accepted.
async fn was_given(transaction: &mut Transaction<'_>, id: &RequestId, text: &str) -> Result<bool, Failure> {
    let sql = "SELECT answer FROM model_request WHERE public_id = $1";
    let row = transaction.connection.fetch_one(sql, values![id.as_str()]).await?;
    Ok(row.opt_str(0)? == Some(text))
}
