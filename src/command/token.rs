//! `nightshift token`: who may speak to the server.

use nightshift_client::Client;
use nightshift_protocol::access::{CreateToken, Role, TokenView};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::TokenId;
use nightshift_protocol::time::TimestampMs;

use crate::args::{TokenCommand, TokenCreate};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::output::{Tone, printable};
use crate::present::{self, NONE};
use crate::random::random_text;
use crate::resolve;

pub(super) async fn run(context: &Context, command: TokenCommand) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        match &command {
            TokenCommand::Create(args) => create(context, &session.client, args).await?,
            TokenCommand::List => list(context, session).await?,
            TokenCommand::Revoke(args) => revoke(context, &session.client, &args.id).await?,
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// The secret alone goes to standard output, so that a script can keep it.
async fn create(context: &Context, client: &Client, args: &TokenCreate) -> Result<()> {
    let request = CreateToken { name: args.name.clone(), role: args.role, valid_for_ms: args.valid_for };
    let created = client.create_token(&request, &random_text()?).await?;
    let output = context.output;
    if output.is_json() {
        output.json(&created)?;
    } else {
        output.text(&created.secret)?;
    }
    let token = &created.token;
    let ends =
        token.expires_at.map_or_else(|| "does not expire".to_owned(), |at| format!("ends {}", present::moment(at)));
    output.note(&printable(&format!("{}  {} ({}), {ends}", token.id, token.name, token.role.as_str())));
    output.note("the secret is shown this once: only its hash is kept");
    if token.role == Role::Worker {
        output.note("a worker takes it as NIGHTSHIFT_SERVER__WORKER_TOKEN: `nightshift work --server URL`");
    }
    Ok(())
}

async fn list(context: &Context, session: &Session) -> Result<()> {
    let tokens = session.client.tokens().await?;
    let output = context.output;
    if output.is_json() {
        return output.json(&tokens);
    }
    let mut table = output.table(&["token", "name", "role", "created", "last used", "state"]);
    for token in &tokens {
        let (state, tone) = state(token, session.health.now);
        table.add_row([
            output.cell(token.id.short(), Tone::Plain),
            output.cell(printable(&token.name), Tone::Plain),
            output.cell(token.role.as_str(), Tone::Plain),
            output.cell(present::minute(token.created_at), Tone::Plain),
            output.cell(token.last_used_at.map_or_else(|| NONE.to_owned(), present::minute), Tone::Plain),
            output.cell(state, tone),
        ]);
    }
    output.text(&table.to_string())?;
    if tokens.is_empty() {
        output.note("there are no tokens besides those that the server was started with");
    }
    Ok(())
}

/// Returns whether a token can be used, by the server's clock.
fn state(token: &TokenView, now: TimestampMs) -> (String, Tone) {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => (format!("revoked {}", present::minute(at)), Tone::Bad),
        (None, Some(at)) if at <= now => (format!("expired {}", present::minute(at)), Tone::Bad),
        (None, Some(at)) => (format!("until {}", present::minute(at)), Tone::Plain),
        (None, None) => ("valid".to_owned(), Tone::Plain),
    }
}

async fn revoke(context: &Context, client: &Client, text: &str) -> Result<()> {
    let id = if let Ok(id) = text.parse() {
        id
    } else {
        let tokens = client.tokens().await?;
        let found =
            tokens.into_iter().filter(|token| resolve::fits(token.id.as_str(), TokenId::PREFIX, text)).collect();
        let id = |token: &TokenView| token.id.to_string();
        resolve::only(text, found, id, "token.not_found", "token", "nightshift token list")?.id
    };
    let token = client.revoke_token(&id).await?;
    let output = context.output;
    if output.is_json() {
        return output.json(&token);
    }
    output.text(&printable(&format!("{}  {} is revoked", token.id, token.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_over_says_why() {
        let token = |expires_at, revoked_at| TokenView {
            id: TokenId::try_from(format!("tok_{}", "0".repeat(32))).unwrap_or_else(|error| panic!("{error}")),
            name: "night".to_owned(),
            role: Role::Viewer,
            created_at: TimestampMs(1),
            expires_at,
            revoked_at,
            last_used_at: None,
        };
        let now = TimestampMs(10);
        assert_eq!(state(&token(None, None), now).0, "valid");
        assert!(state(&token(Some(TimestampMs(10)), None), now).0.starts_with("expired"));
        assert!(state(&token(Some(TimestampMs(11)), None), now).0.starts_with("until"));
        assert!(state(&token(Some(TimestampMs(11)), Some(TimestampMs(2))), now).0.starts_with("revoked"));
    }
}
