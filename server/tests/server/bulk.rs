//! Tests of one action on many runs.

use nightshift_protocol::api::{Bulk, BulkAction, BulkDone, CampaignCreated, RunFilter};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::signal::Signal;
use nightshift_server::MAX_BULK_RUNS;
use serde_json::json;

use crate::setup::{TestServer, Wish, ok, refusal, refused};

impl TestServer {
    async fn tasks(&self, names: &[&str]) -> CampaignCreated {
        let request = self.request(names).await;
        ok(self.create(&request, None).await).await
    }

    async fn bulk(&self, filter: RunFilter, action: BulkAction, dry_run: bool) -> BulkDone {
        ok(self.post("/runs/bulk").json(&Bulk { filter, action, dry_run }).send().await.unwrap()).await
    }
}

#[tokio::test]
async fn a_filter_says_which_runs_are_meant() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let first = server.tasks(&["a", "b", "c"]).await;
    let second = server.tasks(&["a", "d"]).await;
    let of =
        |campaign: &CampaignCreated| RunFilter { campaign: Some(campaign.campaign.clone()), ..RunFilter::default() };

    let dry = server.bulk(of(&first), BulkAction::Pause, true).await;
    assert_eq!((dry.done.len(), dry.more), (3, false));
    assert_eq!(server.run(&first.runs[0]).await.summary.status, RunStatus::Running);

    let paused = server.bulk(of(&first), BulkAction::Pause, false).await;
    assert!(paused.done.iter().all(|(run, status)| first.runs.contains(run) && *status == RunStatus::Paused));
    assert_eq!(paused.done.len(), 3);
    assert_eq!(server.run(&second.runs[0]).await.summary.status, RunStatus::Running);
    // An action is not repeated on the same run. Another call continues with the others.
    assert!(server.bulk(of(&first), BulkAction::Pause, false).await.done.is_empty());

    let task = RunFilter { task: Some("a".to_owned()), ..RunFilter::default() };
    let of_task = server.bulk(task, BulkAction::Prioritize { priority: 7 }, false).await;
    let mut runs: Vec<_> = of_task.done.into_iter().map(|(run, _)| run).collect();
    runs.sort();
    let mut wanted = vec![first.runs[0].clone(), second.runs[0].clone()];
    wanted.sort();
    assert_eq!(runs, wanted);
    assert_eq!(server.run(&second.runs[0]).await.summary.priority, 7);

    let status = RunFilter { status: Some(RunStatus::Paused), ..RunFilter::default() };
    assert_eq!(server.bulk(status, BulkAction::Resume, false).await.done.len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn a_run_that_refuses_does_not_keep_the_others_from_it() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let created = server.tasks(&["a", "b"]).await;
    let one = RunFilter { task: Some("a".to_owned()), ..RunFilter::default() };
    server.bulk(one, BulkAction::Cancel, false).await;
    server.until_status(&created.runs[0], RunStatus::Cancelled).await;
    // A filter by its status includes a finished run, which reports why it cannot be changed.
    let over = RunFilter { status: Some(RunStatus::Cancelled), ..RunFilter::default() };
    let refused = server.bulk(over, BulkAction::Pause, false).await;
    assert!(refused.done.is_empty());
    let (run, code, message) = &refused.refused[0];
    assert_eq!((run, code.as_str()), (&created.runs[0], "request.illegal_transition"));
    assert!(!message.is_empty());
    let all = server.bulk(RunFilter::default(), BulkAction::Pause, false).await;
    assert_eq!(all.done, vec![(created.runs[1].clone(), RunStatus::Paused)]);
    server.stop().await;
}

#[tokio::test]
async fn one_call_acts_on_a_bounded_number_of_runs_and_says_that_there_are_more() {
    // No agent changes these runs while they are cancelled.
    let (server, _folder) = TestServer::start(Wish { agent_slots: 0, ..Wish::default() }).await;
    let names: Vec<String> = (0..=MAX_BULK_RUNS).map(|number| format!("task{number}")).collect();
    server.tasks(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let first = server.bulk(RunFilter::default(), BulkAction::Cancel, false).await;
    assert_eq!((first.done.len(), first.refused.len(), first.more), (MAX_BULK_RUNS, 0, true));
    let second = server.bulk(RunFilter::default(), BulkAction::Cancel, false).await;
    assert_eq!((second.done.len(), second.more), (1, false));
    server.stop().await;
}

#[tokio::test]
async fn a_bulk_call_that_makes_no_sense_is_refused_as_a_whole() {
    let (server, _folder) = TestServer::start(Wish::default()).await;
    let bulk = |action: BulkAction| Bulk { filter: RunFilter::default(), action, dry_run: false };
    let loud = bulk(BulkAction::Prioritize { priority: 101 });
    let answer = server.post("/runs/bulk").json(&loud).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(400, "campaign.invalid_priority"));
    let empty = bulk(BulkAction::Signal { signal: Signal::Hint { text: " ".to_owned() } });
    let answer = server.post("/runs/bulk").json(&empty).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(400, "signal.invalid_text"));
    let misspelt = json!({ "filter": { "campagin": "x" }, "action": { "do": "cancel" } });
    let answer = server.post("/runs/bulk").json(&misspelt).send().await.unwrap();
    assert_eq!(refused(answer).await, refusal(400, "request.invalid"));
    server.stop().await;
}
