//! How the system is: servers, database, tokens. No secret is ever part of it.

use axum::response::Response;
use leptos::prelude::*;
use nightshift_protocol::access::TokenView;
use nightshift_protocol::api::{Health, ServerView};
use nightshift_protocol::time::TimestampMs;

use crate::format::{milliseconds, moment, when};
use crate::page::failure::PageError;
use crate::shell::{Live, Page, Section};
use crate::visitor::Visitor;

/// What an administrator alone may see.
#[derive(Debug)]
enum Tokens {
    /// All of them.
    Shown(Vec<TokenView>),
    /// The visitor may not see them: the code.
    Refused(String),
}

/// `GET /health`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let client = &visitor.client;
    let health = client.health().await?;
    let ready = client.ready().await.map_err(|error| error.to_string());
    let tokens = match client.tokens().await {
        Ok(tokens) => Tokens::Shown(tokens),
        Err(error) if matches!(error.status(), Some(401 | 403)) => Tokens::Refused(error.code().to_owned()),
        Err(error) => return Err(error.into()),
    };
    Ok(page(&health, ready, &client.servers().await?, &tokens))
}

/// The page.
fn page(health: &Health, ready: Result<(), String>, servers: &[ServerView], tokens: &Tokens) -> Page {
    let works = match ready {
        Ok(()) => view! { <p class="notice good">"The server is ready for work."</p> }.into_any(),
        Err(reason) => view! { <p class="notice bad">"The server is not ready: "{reason}</p> }.into_any(),
    };
    let drives = if health.drives { "carried out by this server" } else { "not carried out by this server" };
    Page::new(
        "Health",
        view! {
            <h1>"Health"</h1>
            {works}
            <dl>
                <dt>"Version"</dt><dd>{health.version.clone()}</dd>
                <dt>"Database"</dt><dd>{health.database.clone()}</dd>
                <dt>"Runs"</dt><dd>{drives}</dd>
                <dt>"Clock of the server"</dt><dd>{moment(health.now)}</dd>
            </dl>
            {servers_table(servers, health.now)}
            {tokens_table(tokens, health.now)}
        },
    )
    .section(Section::Health)
    .live(Live::Everything)
}

fn servers_table(servers: &[ServerView], now: TimestampMs) -> impl IntoView + use<> {
    let rows = servers
        .iter()
        .map(|server| {
            let (state, class) = if server.alive { ("alive", "tag completed") } else { ("gone", "tag failed") };
            let up = if server.alive { milliseconds(now.since_ms(server.started_at)) } else { "–".to_owned() };
            view! {
                <tr data-key=server.id.to_string()>
                    <th scope="row">{server.name.clone()}</th>
                    <td><span class=class>{state}</span></td>
                    <td>{server.address.clone()}</td>
                    <td>{server.version.clone()}</td>
                    <td>{when(server.started_at)}</td>
                    <td class="number">{up}</td>
                </tr>
            }
        })
        .collect::<Vec<_>>();
    let none = servers.is_empty().then(|| {
        view! { <p class="empty">"No server carries out runs on this database. Start one with "<code>"nightshift serve"</code>"."</p> }
    });
    view! {
        <h2 id="servers">"Servers"</h2>
        {none}
        <div class="scroll" tabindex="0">
            <table>
                <thead>
                    <tr>
                        <th scope="col">"Server"</th><th scope="col">"State"</th><th scope="col">"Address"</th>
                        <th scope="col">"Version"</th><th scope="col">"Began"</th><th scope="col" class="number">"Up"</th>
                    </tr>
                </thead>
                <tbody>{rows}</tbody>
            </table>
        </div>
    }
}

fn tokens_table(tokens: &Tokens, now: TimestampMs) -> impl IntoView + use<> {
    let content = match tokens {
        Tokens::Refused(code) => {
            let code = code.clone();
            view! {
                <p class="empty">
                    "Tokens are shown to administrators. "<a href="/sign-in?next=/health">"Sign in as one"</a>" "
                    <code class="quiet">{code}</code>
                </p>
            }
            .into_any()
        }
        Tokens::Shown(tokens) if tokens.is_empty() => view! {
            <p class="empty">"No token was made. Make one with "<code>"nightshift token create NAME --role ROLE"</code>"."</p>
        }
        .into_any(),
        Tokens::Shown(tokens) => {
            let rows = tokens.iter().map(|token| token_row(token, now)).collect::<Vec<_>>();
            view! {
                <div class="scroll" tabindex="0">
                    <table>
                        <caption>"Names and rights. The secrets are known to their owners alone."</caption>
                        <thead>
                            <tr>
                                <th scope="col">"Name"</th><th scope="col">"Role"</th><th scope="col">"State"</th>
                                <th scope="col">"Created"</th><th scope="col">"Last used"</th><th scope="col">"Ends"</th>
                            </tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </table>
                </div>
            }
            .into_any()
        }
    };
    view! { <h2 id="tokens">"Tokens"</h2>{content} }
}

fn token_row(token: &TokenView, now: TimestampMs) -> impl IntoView + use<> {
    let is_expired = token.expires_at.is_some_and(|end| end <= now);
    let (state, class) = match (token.revoked_at, is_expired) {
        (Some(_), _) => ("revoked", "tag cancelled"),
        (None, true) => ("expired", "tag cancelled"),
        (None, false) => ("valid", "tag completed"),
    };
    view! {
        <tr data-key=token.id.to_string()>
            <th scope="row">{token.name.clone()}</th>
            <td>{token.role.as_str()}</td>
            <td><span class=class>{state}</span></td>
            <td>{when(token.created_at)}</td>
            <td>{token.last_used_at.map_or_else(|| "never".into_any(), |at| when(at).into_any())}</td>
            <td>{token.expires_at.map_or_else(|| "never".to_owned(), moment)}</td>
        </tr>
    }
}
