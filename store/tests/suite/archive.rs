//! Tests of exported, imported and pruned campaigns.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use nightshift_engine::store::{
    Among, ArchiveStore, ArtifactStore, BudgetStore, CampaignArchive, CampaignStore, Creation, CreationStore,
    KnowledgeStore, ModelCallRecord, ModelCallStore, NewCampaign, PageRequest, RetentionStore, RowSink,
    RunControlStore, RunStore, ScoreRecord, StoreError, TeamStore,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::api::{Pin, Remark, Tag, Target};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{BudgetCaps, Resource};
use nightshift_protocol::id::{CampaignId, RemarkId, RunId};
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::ArtifactOptions;
use serde_json::{Value, json};

use crate::bench::{Bench, amount, done, order, steps};
use crate::place::Kind;
use crate::raw::Raw;

crate::bench::on_both!(
    a_finished_campaign_is_the_same_elsewhere,
    importing_again_changes_nothing_and_importing_another_state_is_refused,
    retrievals_and_later_scores_are_part_of_an_archive,
    notes_tags_and_pins_travel_along_and_belong_to_their_campaign,
    an_archive_of_an_older_release_is_taken_and_recognized,
    an_unfinished_run_is_imported_as_paused_and_can_continue,
    an_archive_whose_artifacts_are_not_there_is_refused,
    an_archive_that_is_none_is_refused_and_leaves_nothing,
    an_export_gives_some_rows_at_a_time,
    only_finished_campaigns_are_pruned,
    a_campaign_is_pruned_in_chunks,
    artifacts_that_something_names_are_kept,
    an_artifact_that_is_stored_again_is_not_pruned_as_an_old_one,
    an_artifact_that_is_asked_for_is_not_pruned_as_an_old_one,
    one_transaction_deletes_so_many_bytes,
    pruning_shrinks_the_file,
);

/// Creates a campaign of two runs with an artifact, a model call and some usage. The second run is left to the test.
async fn campaign(bench: &Bench) -> (CampaignId, ArtifactHash) {
    let hash = ArtifactHash::of(b"a program");
    bench.store.put_artifact(&hash, b"a program", bench.now()).await.unwrap();
    let budget = BudgetCaps { tokens: Some(100), ..BudgetCaps::default() };
    let new = NewCampaign { budget, priority: 2, weight: 3, ..bench.new_campaign(2) };
    let created = bench.create(new).await;
    let run = &created.runs[0];
    let dear = StepOrder { reserve: vec![amount(Resource::Tokens, 30)], ..order("build") };
    bench.schedule_orders(run, vec![dear]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    bench.report_used(&step, done(json!({ "program": hash })), vec![amount(Resource::Tokens, 20)]).await;
    let call = ModelCallRecord {
        run: run.clone(),
        step_key: "build".to_owned(),
        turn: 1,
        request_hash: "h".to_owned(),
        summary: json!({ "tokens": 7 }),
        released: Vec::new(),
        used: Vec::new(),
        at: bench.now(),
    };
    bench.store.record_model_call(call, Vec::new()).await.unwrap();
    bench.complete_run(run).await;
    (created.id, hash)
}

async fn finished_campaign(bench: &Bench) -> (CampaignId, ArtifactHash) {
    let (id, hash) = campaign(bench).await;
    let page = PageRequest { limit: 9, before: None };
    let runs = bench.store.list_runs(Some(&id), None, page).await.unwrap();
    bench.fail_run(&runs[1].id, StepFailure::fatal("x", "broken")).await;
    (id, hash)
}

/// Returns an archive, and a bench on the other kind of database with its artifacts.
async fn elsewhere(bench: &Bench, id: &CampaignId) -> (CampaignArchive, Bench) {
    let archive = bench.store.export_campaign(id).await.unwrap();
    let other = Bench::on(if bench.kind() == Kind::Sqlite { Kind::Postgres } else { Kind::Sqlite }).await;
    for hash in &archive.artifacts {
        let bytes = bench.store.get_artifact(hash).await.unwrap();
        other.store.put_artifact(hash, &bytes, other.now()).await.unwrap();
    }
    (archive, other)
}

async fn a_finished_campaign_is_the_same_elsewhere(bench: Bench) {
    let (id, hash) = finished_campaign(&bench).await;
    let (archive, other) = elsewhere(&bench, &id).await;
    assert_eq!(archive.artifacts, [hash]);
    let imported = other.store.import_campaign(archive.clone(), other.now()).await.unwrap();
    assert!(!imported.existed);
    other.assert_sound().await;
    assert_eq!(other.store.export_campaign(&id).await.unwrap(), archive);
    assert_eq!(other.store.load_campaign(&id).await.unwrap(), bench.store.load_campaign(&id).await.unwrap());
    assert_eq!(other.store.load_budget(&id).await.unwrap(), bench.store.load_budget(&id).await.unwrap());
    for run in &imported.runs {
        assert_eq!(other.store.load_run(run).await.unwrap(), bench.store.load_run(run).await.unwrap());
        assert_eq!(other.events(run).await, bench.events(run).await);
        assert_eq!(steps(&other.store, run).await, steps(&bench.store, run).await);
    }
    let call = other.store.find_model_call(&imported.runs[0], "build", 1, "h").await.unwrap().unwrap();
    assert_eq!(call.summary, json!({ "tokens": 7 }));
    let text = serde_json::to_string(&archive).unwrap();
    assert_eq!(serde_json::from_str::<CampaignArchive>(&text).unwrap(), archive, "it survives its file");
}

async fn importing_again_changes_nothing_and_importing_another_state_is_refused(bench: Bench) {
    let (id, _) = finished_campaign(&bench).await;
    let (archive, other) = elsewhere(&bench, &id).await;
    for existed in [false, true] {
        let imported = other.store.import_campaign(archive.clone(), other.now()).await.unwrap();
        assert_eq!((imported.id, imported.existed), (id.clone(), existed));
    }
    let runs = other.store.list_runs(Some(&id), None, PageRequest { limit: 9, before: None }).await.unwrap();
    other.store.retry_run(&runs[1].id, None, None, other.now()).await.unwrap();
    let error = other.store.import_campaign(archive, other.now()).await.unwrap_err();
    assert_eq!(error.code(), "archive.differs");
    other.assert_sound().await;
}

/// Creates a finished campaign with a pinned retrieval and a later score in its first run.
async fn scored_campaign(bench: &Bench) -> (CampaignId, RunId) {
    let (id, _) = finished_campaign(bench).await;
    let page = PageRequest { limit: 9, before: None };
    let run = bench.store.list_runs(Some(&id), None, page).await.unwrap().remove(0).id;
    let items = json!({ "notes": ["Fuse \u{201e}all\u{201c} of it."], "lessons": [] });
    bench.store.pin_retrieval(&run, "plan", items, bench.now()).await.unwrap();
    bench.store.put_scores(vec![score(&run, "published.1", 0.5), score(&run, "nightshift.1", 1.5)]).await.unwrap();
    (id, run)
}

fn score(run: &RunId, formula: &str, reward: f64) -> ScoreRecord {
    ScoreRecord {
        run: run.clone(),
        attempt: 1,
        formula: formula.to_owned(),
        score: json!({ "reward": reward }),
        at: TimestampMs(7),
    }
}

async fn retrievals_and_later_scores_are_part_of_an_archive(bench: Bench) {
    let (id, run) = scored_campaign(&bench).await;
    let (archive, other) = elsewhere(&bench, &id).await;
    other.store.import_campaign(archive.clone(), other.now()).await.unwrap();
    other.assert_sound().await;
    let given = other.store.find_retrieval(&run, "plan").await.unwrap();
    assert!(given.is_some() && given == bench.store.find_retrieval(&run, "plan").await.unwrap());
    let scores = other.store.list_scores(&run).await.unwrap();
    assert_eq!(scores, bench.store.list_scores(&run).await.unwrap());
    assert_eq!(scores.len(), 2);
    assert_eq!(other.store.export_campaign(&id).await.unwrap(), archive);
    // A new score does not change the archived history, but another event would.
    let scored_anew = score(&run, "published.1", 0.7);
    other.store.put_scores(vec![scored_anew]).await.unwrap();
    assert!(other.store.import_campaign(archive.clone(), other.now()).await.unwrap().existed);
    assert_eq!(other.store.list_scores(&run).await.unwrap()[1].score, json!({ "reward": 0.7 }), "the later one stays");
    other.store.pin_retrieval(&run, "replan2", json!({}), other.now()).await.unwrap();
    let error = other.store.import_campaign(archive, other.now()).await.unwrap_err();
    assert_eq!(error.code(), "archive.differs");
}

async fn notes_tags_and_pins_travel_along_and_belong_to_their_campaign(bench: Bench) {
    let (id, _) = finished_campaign(&bench).await;
    let runs = bench.store.list_runs(Some(&id), None, PageRequest { limit: 9, before: None }).await.unwrap();
    let of_campaign = Target::Campaign(id.clone());
    let of_attempt = Target::Attempt(runs[0].id.clone(), 1);
    let author = || "ada".to_owned();
    for target in [&of_campaign, &of_attempt] {
        let remark = Remark {
            id: RemarkId::from_uuid(bench.uuid()),
            target: target.clone(),
            text: "**mind** the tail".to_owned(),
            author: author(),
            created_at: bench.now(),
            edited_at: None,
        };
        bench.store.create(Creation::Note(remark), None).await.unwrap();
    }
    let tag = Tag { target: of_attempt.clone(), tag: "odd".to_owned(), author: author(), at: bench.now() };
    bench.store.change_tags(vec![tag], Vec::new(), 9).await.unwrap();
    let pin = Pin {
        target: of_attempt.clone(),
        campaign: id.clone(),
        label: "to compare with".to_owned(),
        author: author(),
        at: bench.now(),
    };
    bench.store.set_pin(pin).await.unwrap();
    let (archive, other) = elsewhere(&bench, &id).await;
    assert!(!other.store.import_campaign(archive.clone(), other.now()).await.unwrap().existed);
    other.assert_sound().await;
    let among = Among { target: Some(of_campaign.clone()), within: true, ..Among::default() };
    let page = PageRequest { limit: 9, before: None };
    let left = async |bench: &Bench| {
        let remarks = bench.store.list_remarks(&among, &page).await.unwrap();
        let tags = bench.store.list_tags(&among, &page).await.unwrap();
        let pins = bench.store.list_pins(&among, &page).await.unwrap();
        let remarks: Vec<Remark> = remarks.into_iter().map(|placed| placed.item).collect();
        let tags: Vec<Tag> = tags.into_iter().map(|placed| placed.item).collect();
        let pins: Vec<Pin> = pins.into_iter().map(|placed| placed.item).collect();
        (remarks, tags, pins)
    };
    let (remarks, tags, pins) = left(&other).await;
    assert_eq!((remarks.len(), tags.len(), pins.len()), (2, 1, 1));
    assert_eq!((remarks, tags, pins), left(&bench).await);
    // Later annotations do not make it a different campaign.
    bench.store.remove_pin(&of_attempt).await.unwrap();
    assert!(bench.store.import_campaign(archive.clone(), bench.now()).await.unwrap().existed);
    assert!(left(&bench).await.2.is_empty(), "and a pin that was taken away stays away");
    // A note about another campaign.
    let mut foreign = archive;
    let row = foreign.rows.iter_mut().find(|row| row["table"] == "pin").unwrap();
    row["target"] = json!(format!("{}/1", RunId::from_uuid(bench.uuid())));
    let empty = Bench::on(bench.kind()).await;
    for hash in &foreign.artifacts {
        let bytes = bench.store.get_artifact(hash).await.unwrap();
        empty.store.put_artifact(hash, &bytes, empty.now()).await.unwrap();
    }
    let error = empty.store.import_campaign(foreign, empty.now()).await.unwrap_err();
    assert_eq!(error.code(), "archive.unusable");
}

async fn an_archive_of_an_older_release_is_taken_and_recognized(bench: Bench) {
    let (id, run) = scored_campaign(&bench).await;
    let (mut archive, other) = elsewhere(&bench, &id).await;
    let count = archive.rows.len();
    archive.rows.retain(|row| row["table"] != "retrieval" && row["table"] != "attempt_score");
    assert_eq!(archive.rows.len(), count - 3);
    assert!(
        bench.store.import_campaign(archive.clone(), bench.now()).await.unwrap().existed,
        "it is the same campaign"
    );
    assert!(!other.store.import_campaign(archive, other.now()).await.unwrap().existed);
    assert_eq!(other.store.find_retrieval(&run, "plan").await.unwrap(), None);
    assert_eq!(other.store.list_scores(&run).await.unwrap(), []);
    other.assert_sound().await;
}

async fn an_unfinished_run_is_imported_as_paused_and_can_continue(bench: Bench) {
    let (id, _) = campaign(&bench).await;
    let page = PageRequest { limit: 9, before: None };
    let run = bench.store.list_runs(Some(&id), None, page).await.unwrap().remove(1).id;
    bench.schedule(&run, &["held", "ready"]).await;
    let worker = bench.worker().await;
    bench.claim(&worker, 1).await;
    let (archive, other) = elsewhere(&bench, &id).await;
    other.store.import_campaign(archive.clone(), other.now()).await.unwrap();
    other.assert_sound().await;
    assert!(other.store.import_campaign(archive, other.now()).await.unwrap().existed, "the same, as far as it came");
    let record = other.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.owner), (RunStatus::Paused, None));
    assert_eq!(other.step(&run, "held").await.status, StepStatus::Scheduled);
    other.store.control_run(&run, RunTransition::Resume, None, other.now()).await.unwrap();
    let helper = other.worker().await;
    let epochs: Vec<_> = other.claim(&helper, 9).await.into_iter().map(|step| (step.key, step.epoch)).collect();
    assert_eq!(epochs, [("held".to_owned(), 2), ("ready".to_owned(), 1)], "an epoch never comes again");
    other.assert_sound().await;
}

async fn an_archive_whose_artifacts_are_not_there_is_refused(bench: Bench) {
    let (id, hash) = finished_campaign(&bench).await;
    let archive = bench.store.export_campaign(&id).await.unwrap();
    let other = bench.another().await;
    let error = other.store.import_campaign(archive, other.now()).await.unwrap_err();
    assert!(error.to_string().contains(hash.as_str()), "{error}");
    assert!(!error.is_transient(), "{error:?}");
    assert_eq!(other.store.load_campaign(&id).await.unwrap_err().code(), "campaign.not_found");
}

async fn an_archive_that_is_none_is_refused_and_leaves_nothing(bench: Bench) {
    let (id, _) = finished_campaign(&bench).await;
    let archive = bench.store.export_campaign(&id).await.unwrap();
    let other = bench.another().await;
    for hash in &archive.artifacts {
        let bytes = bench.store.get_artifact(hash).await.unwrap();
        other.store.put_artifact(hash, &bytes, other.now()).await.unwrap();
    }
    let last = archive.rows.len() - 1;
    let without = |index: usize| {
        let mut rows = archive.rows.clone();
        rows.remove(index);
        rows
    };
    let mut wrong_kind = archive.rows.clone();
    wrong_kind[last] = json!({ "table": archive.rows[last]["table"], "key": 7 });
    let nothing: Vec<serde_json::Value> = Vec::new();
    for rows in [nothing, vec![json!("a letter")], without(0), wrong_kind] {
        let broken = CampaignArchive { rows, artifacts: archive.artifacts.clone() };
        let error = other.store.import_campaign(broken, other.now()).await.unwrap_err();
        assert_eq!(error.code(), "archive.unusable", "{error}");
        assert_eq!(other.store.load_campaign(&id).await.unwrap_err().code(), "campaign.not_found");
    }
    let unknown = CampaignId::from_uuid(bench.uuid());
    assert_eq!(bench.store.export_campaign(&unknown).await.unwrap_err().code(), "campaign.not_found");
}

/// Counts the received rows.
#[derive(Default)]
struct Batches(Mutex<Vec<usize>>);

#[async_trait]
impl RowSink for Batches {
    async fn take(&self, rows: Vec<Value>) -> Result<(), StoreError> {
        self.0.lock().unwrap().push(rows.len());
        Ok(())
    }
}

async fn an_export_gives_some_rows_at_a_time(bench: Bench) {
    let created = bench.create(bench.new_campaign(1_100)).await;
    let batches = Arc::new(Batches::default());
    bench.store.export_rows(&created.id, batches.clone()).await.unwrap();
    let batches = batches.0.lock().unwrap().clone();
    assert!(batches.iter().all(|rows| (1..=500).contains(rows)), "{batches:?}");
    let whole = bench.store.export_campaign(&created.id).await.unwrap();
    assert_eq!(batches.iter().sum::<usize>(), whole.rows.len());
    assert!(whole.rows.len() > 2_200, "each run has a row and an event");
}

async fn only_finished_campaigns_are_pruned(bench: Bench) {
    let (old, _) = finished_campaign(&bench).await;
    bench.clock.forward(1_000);
    let (open, _) = campaign(&bench).await;
    let (young, _) = finished_campaign(&bench).await;
    let due = bench.store.campaigns_to_prune(bench.now(), 9).await.unwrap();
    assert_eq!(due, std::slice::from_ref(&old));
    let due = bench.store.campaigns_to_prune(bench.now().plus_ms(1), 9).await.unwrap();
    assert_eq!(due, [old.clone(), young.clone()]);
    let oldest = bench.store.campaigns_to_prune(bench.now().plus_ms(1), 1).await.unwrap();
    assert_eq!(oldest, std::slice::from_ref(&old));
    let error = bench.store.prune_campaign(&open, 1_000).await.unwrap_err();
    assert_eq!(error.code(), "campaign.not_finished");
    let pruned = bench.store.prune_campaign(&old, 1_000).await.unwrap();
    assert!(pruned.campaigns == 1 && pruned.rows > 10 && !pruned.more, "{pruned:?}");
    assert_eq!(bench.store.load_campaign(&old).await.unwrap_err().code(), "campaign.not_found");
    assert_eq!(bench.store.load_campaign(&young).await.unwrap().runs.total(), 2);
    bench.assert_sound().await;
}

async fn a_campaign_is_pruned_in_chunks(bench: Bench) {
    let created = bench.create(bench.new_campaign(5)).await;
    for run in &created.runs {
        bench.schedule(run, &["a", "b"]).await;
        bench.complete_run(run).await;
    }
    let mut chunks = 0;
    loop {
        let pruned = bench.store.prune_campaign(&created.id, 1).await.unwrap();
        bench.assert_sound().await;
        chunks += 1;
        if pruned.campaigns == 1 {
            assert!(!pruned.more);
            break;
        }
        assert!(pruned.more && pruned.rows < 30, "{pruned:?}");
    }
    assert!(chunks > 3, "{chunks}");
}

async fn artifacts_that_something_names_are_kept(bench: Bench) {
    let (id, named) = finished_campaign(&bench).await;
    let loose = ArtifactHash::of(b"loose");
    bench.store.put_artifact(&loose, b"loose", bench.now()).await.unwrap();
    let part = ArtifactHash::of(b"in parts");
    bench.store.append_artifact(&part, 8, 0, b"in", bench.now()).await.unwrap();
    assert_eq!(bench.store.prune_artifacts(bench.now(), 9).await.unwrap().artifacts, 0, "they are young");
    bench.clock.forward(1);
    let first = bench.store.prune_artifacts(bench.now(), 1).await.unwrap();
    assert!(first.artifacts == 1 && first.more, "{first:?}");
    let rest = bench.store.prune_artifacts(bench.now(), 9).await.unwrap();
    assert!(rest.artifacts == 1 && !rest.more, "{rest:?}");
    assert_eq!(bench.store.get_artifact(&named).await.unwrap(), b"a program");
    assert_eq!(bench.store.get_artifact(&loose).await.unwrap_err().code(), "artifact.not_found");
    assert_eq!(bench.store.artifact_progress(&part).await.unwrap(), None);
    bench.store.prune_campaign(&id, 1_000).await.unwrap();
    assert_eq!(bench.store.prune_artifacts(bench.now(), 9).await.unwrap().artifacts, 1);
    assert_eq!(bench.store.get_artifact(&named).await.unwrap_err().code(), "artifact.not_found");
    bench.assert_sound().await;
}

/// A worker that stores a result again is about to reference it.
async fn an_artifact_that_is_stored_again_is_not_pruned_as_an_old_one(bench: Bench) {
    let hash = ArtifactHash::of(b"result");
    bench.store.put_artifact(&hash, b"result", bench.now()).await.unwrap();
    bench.clock.forward(10_000);
    bench.store.put_artifact(&hash, b"result", bench.now()).await.unwrap();
    assert_eq!(bench.store.prune_artifacts(bench.now(), 9).await.unwrap().artifacts, 0);
    bench.clock.forward(10_000);
    bench.store.append_artifact(&hash, 6, 0, b"result", bench.now()).await.unwrap();
    assert_eq!(bench.store.prune_artifacts(bench.now(), 9).await.unwrap().artifacts, 0);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), b"result");
}

async fn an_artifact_that_is_asked_for_is_not_pruned_as_an_old_one(bench: Bench) {
    let (hash, unknown) = (ArtifactHash::of(b"result"), ArtifactHash::of(b"unknown"));
    bench.store.put_artifact(&hash, b"result", bench.now()).await.unwrap();
    bench.clock.forward(3_600_000);
    assert!(bench.store.renew_artifact(&hash, bench.now()).await.unwrap().unwrap().complete);
    assert_eq!(bench.store.renew_artifact(&unknown, bench.now()).await.unwrap(), None);
    assert_eq!(bench.store.prune_artifacts(bench.now(), 9).await.unwrap().artifacts, 0);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), b"result");
}

async fn one_transaction_deletes_so_many_bytes(bench: Bench) {
    for bytes in [b"a", b"b", b"c"] {
        bench.store.put_artifact(&ArtifactHash::of(bytes), bytes, bench.now()).await.unwrap();
    }
    Raw::connect(&bench.place).await.execute("UPDATE artifact SET stored_bytes = 40000000").await;
    bench.clock.forward(1);
    for more in [true, true, false] {
        let pruned = bench.store.prune_artifacts(bench.now(), 9).await.unwrap();
        assert_eq!((pruned.artifacts, pruned.more), (1, more));
    }
}

async fn pruning_shrinks_the_file(mut bench: Bench) {
    if bench.kind() != Kind::Sqlite {
        return;
    }
    bench.reopen_with(ArtifactOptions { max_piece_bytes: usize::MAX, ..ArtifactOptions::default() }).await;
    for number in 0..32_u8 {
        let bytes = vec![number; 1 << 20];
        bench.store.put_artifact(&ArtifactHash::of(&bytes), &bytes, bench.now()).await.unwrap();
    }
    let mut raw = Raw::connect(&bench.place).await;
    let mut pages = async || raw.column("SELECT CAST(page_count AS TEXT) FROM pragma_page_count").await[0].clone();
    let full: u64 = pages().await.parse().unwrap();
    bench.clock.forward(1);
    let mut rounds = 0;
    while bench.store.prune_artifacts(bench.now(), 9).await.unwrap().more {
        rounds += 1;
        assert!(rounds < 64, "pruning does not come to its end");
    }
    let left: u64 = pages().await.parse().unwrap();
    assert!(left < full / 4, "{left} of {full} pages are left");
    bench.assert_sound().await;
}
