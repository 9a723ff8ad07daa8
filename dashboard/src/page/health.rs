//! How the system is: servers and database. Tokens are on the page for administration.

use axum::response::Response;
use leptos::prelude::*;
use nightshift_protocol::api::{Health, ServerView};
use nightshift_protocol::time::TimestampMs;

use crate::failure::PageError;
use crate::format::{milliseconds, moment, when};
use crate::shell::{Live, Page, Section};
use crate::visitor::Visitor;

/// `GET /health`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let client = &visitor.client;
    let health = client.health().await?;
    let ready = client.ready().await.map_err(|error| error.to_string());
    Ok(page(&health, ready, &client.servers().await?))
}

/// The page.
fn page(health: &Health, ready: Result<(), String>, servers: &[ServerView]) -> Page {
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
            <p>"Tokens, shared links and retention: "<a href="/admin">"Administration"</a></p>
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
