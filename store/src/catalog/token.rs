//! API tokens. The store holds the hash of the secret.

use nightshift_engine::store::TokenRecord;
use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::id::TokenId;
use nightshift_protocol::time::TimestampMs;

use super::{MAX_PAGE, public_id};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::json;
use crate::row::Row;
use crate::transaction::Transaction;
use crate::value::values;

macro_rules! token_query {
    ($tail:literal) => {
        concat!(
            "SELECT public_id, name, role, created_at_ms, expires_at_ms, revoked_at_ms, last_used_at_ms FROM token ",
            $tail
        )
    };
}

/// The token of a secret.
pub(crate) const FIND: &str = token_query!("WHERE secret_hash = $1");

/// Stores a token. Storing the same one again changes nothing.
pub(crate) async fn create(transaction: &mut Transaction<'_>, token: &TokenRecord) -> Result<(), Failure> {
    let view = &token.view;
    let inserted = transaction
        .connection
        .execute(
            "INSERT INTO token (public_id, name, role, secret_hash, created_at_ms, expires_at_ms, revoked_at_ms, \
                                last_used_at_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
            values![
                view.id.as_str(),
                json::clean(&view.name),
                view.role.as_str(),
                json::clean(&token.secret_hash),
                view.created_at.0,
                view.expires_at.map(|at| at.0),
                view.revoked_at.map(|at| at.0),
                view.last_used_at.map(|at| at.0)
            ],
        )
        .await?;
    if inserted == 0 {
        let sql = "SELECT secret_hash FROM token WHERE public_id = $1";
        let stored = transaction.connection.fetch_optional(sql, values![view.id.as_str()]).await?;
        let same = stored.map(|row| row.text(0)).transpose()?.is_some_and(|stored| stored == token.secret_hash);
        if !same {
            return Err(Failure::refused("token.exists", "another token has this id or this secret: make a new one"));
        }
    }
    Ok(())
}

pub(crate) async fn list(connection: &mut Connection) -> Result<Vec<TokenView>, Failure> {
    let rows = connection.fetch_all(token_query!("ORDER BY id DESC LIMIT $1"), values![MAX_PAGE]).await?;
    rows.iter().map(view).collect()
}

pub(crate) async fn revoke(transaction: &mut Transaction<'_>, id: &TokenId, at: TimestampMs) -> Result<(), Failure> {
    let sql = "UPDATE token SET revoked_at_ms = coalesce(revoked_at_ms, $2) WHERE public_id = $1";
    let found = transaction.connection.execute(sql, values![id.as_str(), at.0]).await?;
    if found == 0 { Err(Failure::not_found("token", id.as_str())) } else { Ok(()) }
}

pub(crate) async fn find(connection: &mut Connection, secret_hash: &str) -> Result<Option<TokenView>, Failure> {
    let row = connection.fetch_optional(FIND, values![json::clean(secret_hash)]).await?;
    row.as_ref().map(view).transpose()
}

pub(crate) async fn of_id(connection: &mut Connection, id: &TokenId) -> Result<Option<TokenView>, Failure> {
    let row = connection.fetch_optional(token_query!("WHERE public_id = $1"), values![id.as_str()]).await?;
    row.as_ref().map(view).transpose()
}

/// Records that a token was used. A deleted token is ignored.
pub(crate) async fn touch(transaction: &mut Transaction<'_>, id: &TokenId, at: TimestampMs) -> Result<(), Failure> {
    let sql = "UPDATE token SET last_used_at_ms = $2 WHERE public_id = $1 \
               AND (last_used_at_ms IS NULL OR last_used_at_ms < $2)";
    transaction.connection.execute(sql, values![id.as_str(), at.0]).await?;
    Ok(())
}

fn view(row: &Row) -> Result<TokenView, Failure> {
    let role = row.str("role")?;
    Ok(TokenView {
        id: public_id(row.str("public_id")?, "a token's id")?,
        name: row.text("name")?,
        role: Role::parse(role)
            .ok_or_else(|| Failure::unreadable("the role of a token", &format!("`{role}` is none")))?,
        created_at: TimestampMs(row.i64("created_at_ms")?),
        expires_at: row.opt_i64("expires_at_ms")?.map(TimestampMs),
        revoked_at: row.opt_i64("revoked_at_ms")?.map(TimestampMs),
        last_used_at: row.opt_i64("last_used_at_ms")?.map(TimestampMs),
    })
}
