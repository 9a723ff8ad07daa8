//! Requests: open model calls that an outside agent answers. The state of a request is derived from its answer, its
//! deadline, its lease, its step and its run.

pub(crate) mod answer;
pub(crate) mod lease;

use nightshift_engine::store::{NewRequest, PageRequest, Placed, RequestAnswer, RequestFilter, RequestStanding};
use nightshift_protocol::api::{RequestDetail, RequestState, RequestView};
use nightshift_protocol::id::{RequestId, RunId};
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::time::TimestampMs;

use super::{MAX_PAGE, public_id, run};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::number::from_stored;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::{Value, values};

/// Selects requests with the columns that determine their state.
macro_rules! request_query {
    ($($tail:literal),+) => {
        concat!(
            "SELECT q.id, q.public_id, q.step_id, q.run_id, c.public_id AS campaign, r.public_id AS run, q.step_key, \
             q.turn, q.role, q.model, q.question, q.created_at_ms, q.deadline_ms, q.lease, q.holder, q.lease_until_ms, \
             q.answered_at_ms, q.answered_with, s.status AS step_status, r.status AS run_status \
             FROM model_request q JOIN run r ON r.id = q.run_id JOIN campaign c ON c.id = r.campaign_id \
             JOIN step s ON s.id = q.step_id ",
            $($tail),+
        )
    };
}
pub(super) use request_query;

/// The request of a step with this hash.
pub(crate) const FIND: &str = "SELECT public_id, created_at_ms, deadline_ms, fell_back, answer, answered_at_ms, \
     input_tokens, output_tokens, answered_with FROM model_request \
     WHERE run_id = $1 AND step_key = $2 AND turn = $3 AND request_hash = $4";

/// The answer to a request.
pub(crate) const ANSWER: &str = "SELECT answer FROM model_request WHERE public_id = $1";

/// A page of requests. `$6` restricts it to requests that wait for an answer at `$7`.
pub(crate) const LIST: &str = request_query!(
    "WHERE q.id < $5 AND (CAST($1 AS TEXT) IS NULL OR c.public_id = $1) AND (CAST($2 AS TEXT) IS NULL OR r.public_id = $2) \
     AND (CAST($3 AS TEXT) IS NULL OR $3 LIKE '%,' || q.role || ',%') AND (CAST($4 AS TEXT) IS NULL OR q.model = $4) \
     AND ($6 = 0 OR (q.answered_at_ms IS NULL AND q.deadline_ms > $7 AND s.status IN ('scheduled', 'leased') \
                     AND r.status IN ('running', 'paused'))) \
     ORDER BY q.id DESC LIMIT $8"
);

/// Restarts the deadline of a run's open requests, because no agent could take them while the run was paused or failed.
/// The campaign's wall time limits it.
pub(crate) async fn renew(connection: &mut Connection, run_id: i64, at: TimestampMs) -> Result<(), Failure> {
    let sql = "UPDATE model_request SET deadline_ms = (\
                   SELECT CASE WHEN c.created_at_ms + b.cap < $2 + model_request.time_ms THEN c.created_at_ms + b.cap \
                               ELSE $2 + model_request.time_ms END \
                   FROM run r JOIN campaign c ON c.id = r.campaign_id \
                   LEFT JOIN budget b ON b.campaign_id = c.id AND b.resource = 'wall_ms' \
                   WHERE r.id = model_request.run_id) \
               WHERE run_id = $1 AND answered_at_ms IS NULL";
    connection.execute(sql, values![run_id, at.0]).await?;
    Ok(())
}

/// Opens a request, or finds the same one.
pub(crate) async fn open(transaction: &mut Transaction<'_>, new: &NewRequest) -> Result<RequestStanding, Failure> {
    let connection = &mut *transaction.connection;
    let run_id = run::key_of(connection, new.run.as_str()).await?;
    // The deadline ends with the campaign's wall time, when the step is reconsidered and the run ends.
    let sql = "INSERT INTO model_request (public_id, run_id, step_id, step_key, turn, request_hash, role, model, question, \
                                          fell_back, created_at_ms, time_ms, deadline_ms) \
               SELECT $2, $1, s.id, $4, $5, $6, $7, $8, $9, $10, $11, $12 - $11, \
                      CASE WHEN c.created_at_ms + b.cap < $12 THEN c.created_at_ms + b.cap ELSE $12 END \
               FROM step s JOIN run r ON r.id = s.run_id JOIN campaign c ON c.id = r.campaign_id \
               LEFT JOIN budget b ON b.campaign_id = c.id AND b.resource = 'wall_ms' \
               WHERE s.public_id = $3 AND s.run_id = $1 ON CONFLICT DO NOTHING";
    let values = values![
        run_id,
        new.id.as_str(),
        new.step.as_str(),
        json::clean(&new.step_key),
        new.turn,
        json::clean(&new.request_hash),
        new.role.as_str(),
        json::clean(&new.model),
        json::write(&new.question)?,
        json::write(&new.fell_back)?,
        new.at.0,
        new.deadline.0
    ];
    connection.execute(sql, values).await?;
    find(connection, &new.run, &new.step_key, new.turn, &new.request_hash)
        .await?
        .ok_or_else(|| Failure::not_found("step", new.step.as_str()))
}

pub(crate) async fn find(
    connection: &mut Connection,
    run: &RunId,
    step_key: &str,
    turn: u32,
    request_hash: &str,
) -> Result<Option<RequestStanding>, Failure> {
    let run_id = run::key_of(connection, run.as_str()).await?;
    let key = values![run_id, json::clean(step_key), turn, json::clean(request_hash)];
    let Some(row) = connection.fetch_optional(FIND, key).await? else { return Ok(None) };
    let answer = match (row.opt_text("answer")?, row.opt_i64("answered_at_ms")?) {
        (Some(text), Some(at)) => {
            let answer = RequestAnswer {
                text,
                input_tokens: row.opt_i64("input_tokens")?.map(from_stored),
                output_tokens: row.opt_i64("output_tokens")?.map(from_stored),
                model: row.opt_text("answered_with")?,
            };
            Some((answer, TimestampMs(at)))
        }
        _ => None,
    };
    Ok(Some(RequestStanding {
        id: public_id(row.str("public_id")?, "a request's id")?,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        deadline: TimestampMs(row.i64("deadline_ms")?),
        fell_back: json::read(row.str("fell_back")?)
            .map_err(|error| Failure::unreadable(format!("the models before a request of {run}"), &error))?,
        answer,
    }))
}

pub(crate) async fn list(
    connection: &mut Connection,
    filter: &RequestFilter,
    waiting: bool,
    page: &PageRequest,
    at: TimestampMs,
) -> Result<Vec<Placed<RequestView>>, Failure> {
    let before: i64 = match &page.before {
        None => i64::MAX,
        Some(before) => before.parse().map_err(|_| Failure::not_a_cursor())?,
    };
    let mut values = restriction(filter);
    values.extend(values![before, waiting, at.0, page.limit.min(MAX_PAGE)]);
    let rows = connection.fetch_all(LIST, values).await?;
    rows.iter().map(|row| Ok(Placed { place: from_stored(row.i64("id")?), item: view(row, at)? })).collect()
}

pub(crate) async fn load(
    connection: &mut Connection,
    id: &RequestId,
    at: TimestampMs,
) -> Result<RequestDetail, Failure> {
    let row = connection.fetch_optional(request_query!("WHERE q.public_id = $1"), values![id.as_str()]).await?;
    let row = row.ok_or_else(|| Failure::not_found("request", id.as_str()))?;
    let mut found = detail(&row, at)?;
    // Lists and leases select no answers, which may be large.
    let answer = connection.fetch_optional(ANSWER, values![id.as_str()]).await?;
    found.answer = answer.map(|row| row.opt_text("answer")).transpose()?.flatten();
    Ok(found)
}

/// Returns campaign, run, roles and model as the first four parameters.
fn restriction(filter: &RequestFilter) -> Vec<Value> {
    let roles: Vec<&str> = filter.roles.iter().map(|role| role.as_str()).collect();
    values![
        filter.campaign.as_ref().map(ToString::to_string),
        filter.run.as_ref().map(ToString::to_string),
        (!roles.is_empty()).then(|| format!(",{},", roles.join(","))),
        filter.model.as_deref().map(|model| json::clean(model).into_owned())
    ]
}

fn detail(row: &Row, at: TimestampMs) -> Result<RequestDetail, Failure> {
    let request = view(row, at)?;
    let question = json::read(row.str("question")?)
        .map_err(|error| Failure::unreadable(format!("what request {} asks", request.id), &error))?;
    Ok(RequestDetail { request, question, answer: None })
}

fn view(row: &Row, at: TimestampMs) -> Result<RequestView, Failure> {
    let role = row.str("role")?;
    let role = AgentRole::parse(role)
        .ok_or_else(|| Failure::unreadable("the role of a request", &format!("`{role}` is none")))?;
    let state = state(row, at)?;
    let leased = state == RequestState::Leased;
    Ok(RequestView {
        id: public_id(row.str("public_id")?, "a request's id")?,
        campaign: public_id(row.str("campaign")?, "a campaign's id")?,
        run: public_id(row.str("run")?, "a run's id")?,
        step_key: row.text("step_key")?,
        turn: u32::try_from(row.i64("turn")?).unwrap_or(u32::MAX),
        role,
        model: row.text("model")?,
        state,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        deadline: TimestampMs(row.i64("deadline_ms")?),
        holder: row.opt_text("holder")?.filter(|_| leased || state == RequestState::Answered),
        leased_until: row.opt_i64("lease_until_ms")?.filter(|_| leased).map(TimestampMs),
        answered_at: row.opt_i64("answered_at_ms")?.map(TimestampMs),
        answered_with: row.opt_text("answered_with")?,
    })
}

/// Returns the state of a request at this time.
fn state(row: &Row, at: TimestampMs) -> Result<RequestState, Failure> {
    let waits = matches!(row.str("step_status")?, "scheduled" | "leased")
        && matches!(row.str("run_status")?, "running" | "paused");
    Ok(if row.opt_i64("answered_at_ms")?.is_some() {
        RequestState::Answered
    } else if row.i64("deadline_ms")? <= at.0 {
        RequestState::Expired
    } else if !waits {
        RequestState::Cancelled
    } else if row.opt_i64("lease_until_ms")?.is_some_and(|until| until > at.0) {
        RequestState::Leased
    } else {
        RequestState::Open
    })
}
