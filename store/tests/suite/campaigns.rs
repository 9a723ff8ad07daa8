//! Tests of campaigns, lists and ids.

use nightshift_engine::store::{CampaignStore, PageRequest, RunControlStore, RunStore, StoreError, WatchStore};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::{RunStatus, RunTransition};
use serde_json::json;

use crate::bench::Bench;

crate::bench::on_both!(
    a_campaign_is_created_with_its_runs_in_order,
    the_same_key_and_digest_is_the_same_request,
    the_same_key_with_another_digest_is_a_conflict,
    a_creation_whose_answer_was_lost_can_be_repeated,
    lists_are_read_page_by_page,
    every_campaign_is_marked_with_where_its_runs_stand,
    the_runs_of_a_campaign_are_paged_in_the_order_of_its_tasks,
    runs_are_found_by_status,
    ids_are_found_by_their_beginning_their_digits_and_their_end,
    missing_objects_are_named,
    nul_characters_never_reach_a_text,
);

fn page(limit: u32, before: Option<&str>) -> PageRequest {
    PageRequest { limit, before: before.map(str::to_owned) }
}

async fn a_campaign_is_created_with_its_runs_in_order(bench: Bench) {
    let new = bench.new_campaign(3);
    let wanted: Vec<_> = new.runs.iter().map(|run| run.id.clone()).collect();
    let created = bench.store.create_campaign(new.clone()).await.unwrap();
    assert_eq!((created.id.clone(), created.runs.clone(), created.existed), (new.id.clone(), wanted.clone(), false));

    let listed = bench.store.list_runs(Some(&created.id), None, page(10, None)).await.unwrap();
    assert_eq!(listed.iter().map(|run| run.id.clone()).collect::<Vec<_>>(), wanted);
    let record = bench.store.load_campaign(&created.id).await.unwrap();
    assert_eq!((record.runs.running, record.runs.total()), (3, 3));
    assert_eq!((record.name.as_str(), record.spec), ("night", json!({ "schema": 1 })));
    assert_eq!(bench.log(&wanted[0]).await, ["run_created"]);
    assert_eq!(bench.to_drive().await, wanted);
    bench.assert_sound().await;
}

async fn the_same_key_and_digest_is_the_same_request(bench: Bench) {
    let mut first = bench.new_campaign(2);
    first.idempotency = Some(("key".to_owned(), "digest".to_owned()));
    let created = bench.store.create_campaign(first).await.unwrap();
    let mut second = bench.new_campaign(2);
    second.idempotency = Some(("key".to_owned(), "digest".to_owned()));
    let again = bench.store.create_campaign(second).await.unwrap();
    assert_eq!((again.id, again.runs, again.existed), (created.id, created.runs, true));
    assert_eq!(bench.store.list_campaigns(page(10, None)).await.unwrap().len(), 1);
}

async fn the_same_key_with_another_digest_is_a_conflict(bench: Bench) {
    let mut first = bench.new_campaign(1);
    first.idempotency = Some(("key".to_owned(), "digest".to_owned()));
    bench.store.create_campaign(first).await.unwrap();
    let mut second = bench.new_campaign(1);
    second.idempotency = Some(("key".to_owned(), "another".to_owned()));
    let error = bench.store.create_campaign(second).await.unwrap_err();
    assert!(matches!(error, StoreError::IdempotencyConflict { key } if key == "key"));
    assert_eq!(bench.store.list_campaigns(page(10, None)).await.unwrap().len(), 1);
}

async fn a_creation_whose_answer_was_lost_can_be_repeated(bench: Bench) {
    let new = bench.new_campaign(2);
    bench.store.create_campaign(new.clone()).await.unwrap();
    let again = bench.store.create_campaign(new).await.unwrap();
    assert!(again.existed);
    assert_eq!(again.runs.len(), 2);
    bench.assert_sound().await;
}

async fn lists_are_read_page_by_page(bench: Bench) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(bench.store.create_campaign(bench.new_campaign(1)).await.unwrap());
    }
    ids.reverse();
    let first = bench.store.list_campaigns(page(2, None)).await.unwrap();
    assert_eq!(first.iter().map(|c| &c.id).collect::<Vec<_>>(), [&ids[0].id, &ids[1].id]);
    let second = bench.store.list_campaigns(page(2, Some(first[1].id.as_str()))).await.unwrap();
    assert_eq!(second.iter().map(|c| &c.id).collect::<Vec<_>>(), [&ids[2].id, &ids[3].id]);

    let newest = bench.store.list_runs(None, None, page(3, None)).await.unwrap();
    assert_eq!(newest.iter().map(|r| &r.id).collect::<Vec<_>>(), [&ids[0].runs[0], &ids[1].runs[0], &ids[2].runs[0]]);
    let older = bench.store.list_runs(None, None, page(3, Some(newest[2].id.as_str()))).await.unwrap();
    assert_eq!(older.iter().map(|r| &r.id).collect::<Vec<_>>(), [&ids[3].runs[0], &ids[4].runs[0]]);
}

async fn every_campaign_is_marked_with_where_its_runs_stand(bench: Bench) {
    let first = bench.create(bench.new_campaign(2)).await;
    let second = bench.create(bench.new_campaign(1)).await;
    bench.store.control_run(&first.runs[0], RunTransition::Pause, None, bench.now()).await.unwrap();
    let watch = &bench.store;
    let marks = watch.campaign_marks().await.unwrap();
    let told: Vec<_> = marks.iter().map(|mark| (&mark.campaign, mark.runs.running, mark.runs.paused)).collect();
    assert_eq!(told, [(&second.id, 1, 0), (&first.id, 1, 1)]);
    let unknown = CampaignId::from_uuid(bench.uuid());
    let read = watch.campaigns_of(&[first.id.clone(), unknown, second.id.clone()]).await.unwrap();
    assert_eq!(read.iter().map(|record| &record.id).collect::<Vec<_>>(), [&second.id, &first.id]);
    assert_eq!((read[1].name.as_str(), read[1].runs.total()), ("night", 2));
}

async fn the_runs_of_a_campaign_are_paged_in_the_order_of_its_tasks(bench: Bench) {
    let campaign = bench.store.create_campaign(bench.new_campaign(5)).await.unwrap();
    bench.store.create_campaign(bench.new_campaign(2)).await.unwrap();
    let first = bench.store.list_runs(Some(&campaign.id), None, page(3, None)).await.unwrap();
    let rest = bench.store.list_runs(Some(&campaign.id), None, page(3, Some(first[2].id.as_str()))).await.unwrap();
    let seen: Vec<_> = first.into_iter().chain(rest).map(|run| run.id).collect();
    assert_eq!(seen, campaign.runs);
}

async fn runs_are_found_by_status(bench: Bench) {
    let (one, other) = (bench.run().await, bench.run().await);
    bench.store.control_run(&other, RunTransition::Pause, None, bench.now()).await.unwrap();
    let running = bench.store.list_runs(None, Some(RunStatus::Running), page(9, None)).await.unwrap();
    let paused = bench.store.list_runs(None, Some(RunStatus::Paused), page(9, None)).await.unwrap();
    assert_eq!((running.len(), &running[0].id, paused.len(), &paused[0].id), (1, &one, 1, &other));
    let campaign = bench.store.load_campaign(&paused[0].campaign).await.unwrap();
    assert_eq!((campaign.runs.paused, campaign.runs.running), (1, 0));
}

async fn ids_are_found_by_their_beginning_their_digits_and_their_end(bench: Bench) {
    let campaign = bench.store.create_campaign(bench.new_campaign(3)).await.unwrap();
    let run = &campaign.runs[1];
    assert_eq!(bench.store.find_ids(run.as_str(), 9).await.unwrap(), (Vec::new(), vec![run.clone()]));
    assert_eq!(bench.store.find_ids(&run.short().to_uppercase(), 9).await.unwrap().1, std::slice::from_ref(run));
    assert_eq!(
        bench.store.find_ids("run_", 2).await.unwrap(),
        (Vec::new(), vec![campaign.runs[2].clone(), campaign.runs[1].clone()])
    );
    let (campaigns, runs) = bench.store.find_ids("0000", 9).await.unwrap();
    assert_eq!((campaigns.len(), runs.len()), (1, 3));
    let ending = &run.as_str()[run.as_str().len() - 12..];
    assert_eq!(
        bench.store.find_ids(ending, 9).await.unwrap(),
        (Vec::new(), vec![run.clone()]),
        "by more than eight digits"
    );
    assert_eq!(bench.store.find_ids("run%", 9).await.unwrap(), (Vec::new(), Vec::new()));
}

async fn missing_objects_are_named(bench: Bench) {
    let error = bench.store.load_campaign(&CampaignId::from_uuid(bench.uuid())).await.unwrap_err();
    assert_eq!(error.code(), "campaign.not_found");
    let error = bench.store.list_runs(None, None, page(1, Some("run_x"))).await.unwrap_err();
    assert_eq!(error.code(), "run.not_found");
}

async fn nul_characters_never_reach_a_text(bench: Bench) {
    let mut new = bench.new_campaign(1);
    "a\0b".clone_into(&mut new.name);
    new.runs[0].input = json!({ "log": "x\0y" });
    let created = bench.store.create_campaign(new).await.unwrap();
    assert_eq!(bench.store.load_campaign(&created.id).await.unwrap().name, "a\u{fffd}b");
    let events = bench.events(&created.runs[0]).await;
    assert_eq!(events, [nightshift_engine::event::Event::RunCreated { input: json!({ "log": "x\u{fffd}y" }) }]);
}
