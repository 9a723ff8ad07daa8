//! Open requests: which runs wait for an agent outside of Nightshift, and which agent works on them.

use leptos::prelude::*;
use nightshift_client::Client;
use nightshift_protocol::api::{RequestState, RequestView};
use nightshift_protocol::id::{CampaignId, RunId};

use crate::format::{moment, words};
use crate::page::components::{Cell, table};

/// Maximum number of requests that a page shows.
const MAX_SHOWN: u32 = 50;

/// The requests that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// The first ones.
    shown: Vec<RequestView>,
    /// True if more requests wait than are shown.
    is_cut: bool,
    /// Why they cannot be read.
    failure: Option<String>,
}

/// Reads the requests that wait for an answer; none where the visitor may not read them.
pub(crate) async fn waiting(client: &Client, campaign: Option<&CampaignId>, run: Option<&RunId>) -> Waiting {
    match client.requests(campaign, run, false, Some(MAX_SHOWN), None).await {
        Ok(page) => Waiting { shown: page.items, is_cut: page.next.is_some(), failure: None },
        Err(error) if error.status() == Some(403) => Waiting::default(),
        Err(error) => Waiting { failure: Some(format!("{error} ({})", error.code())), ..Waiting::default() },
    }
}

/// The table of requests; nothing without any.
pub(crate) fn section(waiting: &Waiting) -> Option<AnyView> {
    if let Some(why) = &waiting.failure {
        let words = format!("Open requests cannot be shown: {why}");
        return Some(view! { <p class="notice bad">{words}</p> }.into_any());
    }
    if waiting.shown.is_empty() {
        return None;
    }
    let rows: Vec<Vec<Cell>> = waiting.shown.iter().map(row).collect();
    let more = waiting.is_cut.then(|| {
        let words = format!("There are more than these {MAX_SHOWN}: ");
        view! { <p class="quiet">{words}<code>"nightshift requests list"</code>" shows all."</p> }
    });
    let head = ["Request", "Run", "Step", "Role", "State", "Held by", "Since", "Deadline"];
    Some(
        view! {
            <section id="requests">
                <h2>"Open requests"</h2>
                <p class="quiet">"These model calls wait for an agent outside of Nightshift: "<code>"nightshift requests next"</code>" takes one."</p>
                {table(&head, &rows)}
                {more}
            </section>
        }
        .into_any(),
    )
}

fn row(request: &RequestView) -> Vec<Cell> {
    let state = request.state.as_str();
    let holder = request.holder.as_deref().filter(|_| request.state == RequestState::Leased);
    vec![
        Cell::Code(request.id.short().to_owned()),
        Cell::Link(format!("/runs/{}", request.run), request.run.short().to_owned()),
        Cell::Code(request.step_key.clone()),
        Cell::Text(request.role.as_str().to_owned()),
        Cell::Tag(state.to_owned(), words(state)),
        Cell::Text(holder.unwrap_or("no agent").to_owned()),
        Cell::Text(moment(request.created_at)),
        Cell::Text(moment(request.deadline)),
    ]
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::models::AgentRole;
    use nightshift_protocol::time::TimestampMs;

    use super::*;
    use crate::report;
    use crate::shell::Page;

    fn id<T: std::str::FromStr>(prefix: &str) -> T
    where
        T::Err: std::fmt::Display,
    {
        format!("{prefix}{}", "7".repeat(32)).parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn who_waits_for_what_is_shown_with_nothing_of_it_alive() {
        let request = RequestView {
            id: id("req_"),
            campaign: id("cmp_"),
            run: id("run_"),
            step_key: "subtask1/attempt2/write_code".to_owned(),
            turn: 1,
            role: AgentRole::Coder,
            model: "external/agent".to_owned(),
            state: RequestState::Leased,
            created_at: TimestampMs(0),
            deadline: TimestampMs(86_400_000),
            holder: Some("<b>one</b>".to_owned()),
            leased_until: Some(TimestampMs(900_000)),
            answered_at: None,
            answered_with: None,
        };
        let html = |waiting: &Waiting| report::with_links(Page::new("x", view! { {section(waiting)} }));
        let mut waiting = Waiting { shown: vec![request], ..Waiting::default() };
        let shown = html(&waiting);
        for part in
            ["Open requests", "subtask1/attempt2/write_code", "coder", "1970-01-02 00:00:00 UTC", "&lt;b&gt;one"]
        {
            assert!(shown.contains(part), "{part}");
        }
        assert!(!shown.contains("There are more"), "{shown}");
        waiting.is_cut = true;
        assert!(html(&waiting).contains("There are more than these 50"));
        assert!(section(&Waiting::default()).is_none());
        let failed = Waiting { failure: Some("the server cannot be reached".to_owned()), ..Waiting::default() };
        assert!(html(&failed).contains("Open requests cannot be shown: the server cannot be reached"));
    }
}
