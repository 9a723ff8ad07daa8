//! Browser sessions, stored by the hash of their cookie.

use nightshift_engine::store::{SessionHolder, SessionLimits, SessionRecord};
use nightshift_protocol::time::TimestampMs;

use super::public_id;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

/// Deletes the sessions that have expired, or whose token or link is expired, revoked or deleted.
const FORGET_ENDED: &str = "DELETE FROM session WHERE expires_at_ms <= $1 \
     OR (token IS NOT NULL AND NOT EXISTS (SELECT 1 FROM token t WHERE t.public_id = session.token \
         AND t.revoked_at_ms IS NULL AND (t.expires_at_ms IS NULL OR t.expires_at_ms > $1))) \
     OR (share IS NOT NULL AND NOT EXISTS (SELECT 1 FROM share s WHERE s.public_id = session.share \
         AND s.revoked_at_ms IS NULL AND s.expires_at_ms > $1))";
/// Deletes the oldest sessions of a holder.
const FORGET_OLDEST: &str = "DELETE FROM session WHERE secret_hash IN \
     (SELECT secret_hash FROM session WHERE coalesce(token, share, '') = $1 \
      ORDER BY created_at_ms DESC, secret_hash LIMIT $3 OFFSET $2)";

pub(crate) async fn create(
    transaction: &mut Transaction<'_>,
    session: &SessionRecord,
    limits: SessionLimits,
) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let (token, share, proof) = match &session.holder {
        SessionHolder::Configured { proof } => (None, None, Some(proof.clone())),
        SessionHolder::Token(token) => (Some(token.to_string()), None, None),
        SessionHolder::Share(share) => (None, Some(share.to_string()), None),
    };
    connection.execute(FORGET_ENDED, values![session.created_at.0]).await?;
    let holder = token.as_deref().or(share.as_deref()).unwrap_or_default();
    let kept = limits.per_holder.saturating_sub(1);
    connection.execute(FORGET_OLDEST, values![holder, kept, u32::MAX]).await?;
    let open = connection.fetch_one("SELECT COUNT(*) FROM session WHERE proof IS NULL", values![]).await?.i64(0)?;
    // The configured token can always sign in, so that an administrator can end the sessions of others.
    if proof.is_none() && open >= i64::from(limits.in_total) {
        return Err(Failure::refused(
            "auth.too_many_sessions",
            format!("{open} sessions are open, which is the maximum: sign out somewhere, or wait until one ends"),
        ));
    }
    let sql = "INSERT INTO session (secret_hash, token, share, proof, created_at_ms, expires_at_ms) \
               VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
    let values = values![session.secret_hash.as_str(), token, share, proof, session.created_at.0, session.expires_at.0];
    connection.execute(sql, values).await?;
    Ok(())
}

/// The session of a cookie.
pub(crate) const FIND: &str =
    "SELECT token, share, proof, created_at_ms, expires_at_ms FROM session WHERE secret_hash = $1";

pub(crate) async fn find(connection: &mut Connection, secret_hash: &str) -> Result<Option<SessionRecord>, Failure> {
    let Some(row) = connection.fetch_optional(FIND, values![secret_hash]).await? else { return Ok(None) };
    Ok(Some(record(secret_hash, &row)?))
}

/// Sessions that have not expired.
pub(crate) const LIST: &str = "SELECT secret_hash, token, share, proof, created_at_ms, expires_at_ms FROM session \
     WHERE expires_at_ms > $1 ORDER BY created_at_ms DESC, secret_hash LIMIT $2";

pub(crate) async fn list(
    connection: &mut Connection,
    at: TimestampMs,
    limit: u32,
) -> Result<Vec<SessionRecord>, Failure> {
    let rows = connection.fetch_all(LIST, values![at.0, limit]).await?;
    rows.iter().map(|row| record(row.str("secret_hash")?, row)).collect()
}

fn record(secret_hash: &str, row: &Row) -> Result<SessionRecord, Failure> {
    let holder = match (row.opt_str("token")?, row.opt_str("share")?, row.opt_text("proof")?) {
        (Some(token), _, _) => SessionHolder::Token(public_id(token, "a token's id")?),
        (_, Some(share), _) => SessionHolder::Share(public_id(share, "a link's id")?),
        (_, _, Some(proof)) => SessionHolder::Configured { proof },
        (None, None, None) => return Err(Failure::unreadable("a session", &"it has no holder")),
    };
    Ok(SessionRecord {
        secret_hash: secret_hash.to_owned(),
        holder,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        expires_at: TimestampMs(row.i64("expires_at_ms")?),
    })
}

/// Ends the session whose hash begins with `beginning`.
pub(crate) async fn end_named(transaction: &mut Transaction<'_>, beginning: &str) -> Result<bool, Failure> {
    let sql = "DELETE FROM session WHERE substr(secret_hash, 1, length($1)) = $1";
    Ok(transaction.connection.execute(sql, values![json::clean(beginning)]).await? > 0)
}

pub(crate) async fn end(transaction: &mut Transaction<'_>, secret_hash: &str) -> Result<bool, Failure> {
    let sql = "DELETE FROM session WHERE secret_hash = $1";
    Ok(transaction.connection.execute(sql, values![secret_hash]).await? > 0)
}
