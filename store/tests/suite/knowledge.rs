//! Tests of notes and their search, lessons, retrievals, later scores.

use nightshift_engine::store::{
    BoundFrom, KnowledgeStore, LessonQuery, LessonRecord, NoteRecord, RetentionStore, ScoreRecord,
};
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use serde_json::json;
use uuid::Uuid;

use crate::bench::Bench;

crate::bench::on_both!(
    a_note_is_found_by_any_form_of_its_words,
    words_of_a_title_or_tag_weigh_more_than_those_of_a_text,
    notes_are_replaced_source_by_source,
    nothing_in_a_search_means_anything_but_words,
    lessons_of_the_same_bound_and_device_come_first,
    an_attempt_teaches_once,
    the_first_retrieval_of_a_step_stays,
    an_attempt_has_the_latest_score_of_each_formula,
    data_of_a_run_is_pruned_with_it_and_lessons_stay,
);

fn note(id: &str, title: &str, body: &str, operators: &[&str]) -> NoteRecord {
    NoteRecord {
        id: id.to_owned(),
        source: "ours".to_owned(),
        title: title.to_owned(),
        body: body.to_owned(),
        bounds: vec!["memory".to_owned()],
        operators: operators.iter().map(|tag| (*tag).to_owned()).collect(),
        architectures: Vec::new(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

async fn found(bench: &Bench, text: &str) -> Vec<String> {
    let notes = bench.store.search_notes(&words(text), 10).await.unwrap();
    notes.into_iter().map(|note| note.id).collect()
}

async fn a_note_is_found_by_any_form_of_its_words(bench: Bench) {
    let tiles = note("a/tiles", "Tiling", "Copies with cp.async hide the latency of loading tiles.", &["matmul"]);
    let banks = note("a/banks", "Banks", "Padding a row removes conflicts; sm_90 has 32 banks.", &[]);
    bench.store.replace_notes("ours", vec![tiles.clone(), banks], bench.now()).await.unwrap();
    assert_eq!(bench.store.search_notes(&words("copying"), 10).await.unwrap(), [tiles], "whole, tags and all");
    for text in ["tile", "TILES", "loads", "async", "matmul", "nothing-here loaded"] {
        assert_eq!(found(&bench, text).await, ["a/tiles"], "{text}");
    }
    assert_eq!(found(&bench, "conflict").await, ["a/banks"]);
    assert_eq!(found(&bench, "sm_90").await, ["a/banks"]);
    let mut both = found(&bench, "memory").await;
    both.sort();
    assert_eq!(both, ["a/banks", "a/tiles"]);
    assert!(found(&bench, "softmax").await.is_empty());
    assert_eq!(bench.store.search_notes(&words("memory"), 1).await.unwrap().len(), 1);
}

async fn words_of_a_title_or_tag_weigh_more_than_those_of_a_text(bench: Bench) {
    let filler = "Much is said about other things in this text, and much more about still others.";
    let text = note("a/text", "Something else", &format!("{filler} A reduction is one. {filler}"), &[]);
    let title = note("b/title", "A reduction by shuffles", filler, &[]);
    let other = note("c/other", "Unrelated", filler, &[]);
    bench.store.replace_notes("ours", vec![text, title, other], bench.now()).await.unwrap();
    assert_eq!(found(&bench, "reduction").await, ["b/title", "a/text"]);
}

async fn notes_are_replaced_source_by_source(bench: Bench) {
    let (first, second) = (note("a/1", "one", "apple", &[]), note("a/2", "two", "pear", &[]));
    let changed = bench.store.replace_notes("ours", vec![first.clone(), second.clone()], bench.now()).await.unwrap();
    assert_eq!(changed, 2);
    assert_eq!(bench.store.replace_notes("ours", vec![first.clone(), second], bench.now()).await.unwrap(), 0);
    let theirs = note("theirs/1", "three", "apple", &[]);
    bench.store.replace_notes("theirs", vec![theirs], bench.now()).await.unwrap();
    let rewritten = NoteRecord { body: "plum".to_owned(), ..first };
    bench.store.replace_notes("ours", vec![rewritten], bench.now()).await.unwrap();
    assert_eq!(found(&bench, "apple").await, ["theirs/1"]);
    assert_eq!(found(&bench, "plum").await, ["a/1"]);
    assert!(found(&bench, "pear").await.is_empty());
    bench.store.replace_notes("theirs", Vec::new(), bench.now()).await.unwrap();
    assert!(found(&bench, "apple").await.is_empty());
}

async fn nothing_in_a_search_means_anything_but_words(bench: Bench) {
    bench.store.replace_notes("ours", vec![note("a", "pipe", "quote", &[])], bench.now()).await.unwrap();
    for text in ["\" OR \"", "' | '", "NEAR(pipe", "title:pipe", "& ! <->", "a*", "", "\0"] {
        let query = vec![text.to_owned()];
        assert!(bench.store.search_notes(&query, 10).await.is_ok(), "{text}");
    }
    assert_eq!(found(&bench, "pipe\" AND \"x").await, ["a"]);
    let many: Vec<String> = (0..5_000).map(|n| format!("word{n}")).collect();
    assert!(bench.store.search_notes(&many, 10).await.unwrap().is_empty());
}

fn run_id(number: u128) -> RunId {
    RunId::from_uuid(Uuid::from_u128(number))
}

fn lesson(number: u128, class: &str, bound: &str, device: &str) -> LessonRecord {
    LessonRecord {
        run: run_id(number),
        attempt: 2,
        task: "row_softmax".to_owned(),
        operator_class: class.to_owned(),
        bound: bound.to_owned(),
        bound_from: if number.is_multiple_of(2) { BoundFrom::Plan } else { BoundFrom::Diagnosis },
        device: device.to_owned(),
        change: format!("change {number}"),
        gain_ppm: 1_300_000,
        certain: true,
        at: TimestampMs(i64::try_from(number).unwrap()),
    }
}

async fn lessons_of_the_same_bound_and_device_come_first(bench: Bench) {
    let all = [
        lesson(1, "matmul", "memory", "here"),
        lesson(2, "matmul", "compute", "here"),
        lesson(3, "matmul", "memory", "there"),
        lesson(4, "softmax", "memory", "here"),
        lesson(5, "matmul", "memory", "here"),
    ];
    for lesson in &all {
        bench.store.record_lesson(lesson.clone()).await.unwrap();
    }
    let query = LessonQuery {
        operator_classes: vec!["matmul".to_owned(), "conv".to_owned()],
        bound: Some("memory".to_owned()),
        device: Some("here".to_owned()),
        except_run: None,
        limit: 10,
    };
    let found = bench.store.find_lessons(query.clone()).await.unwrap();
    let [first, second, third, _, fifth] = all;
    assert_eq!(found, [fifth.clone(), first, third, second]);
    let fewer = LessonQuery { except_run: Some(run_id(5)), limit: 1, ..query.clone() };
    assert_eq!(bench.store.find_lessons(fewer).await.unwrap()[0].run, run_id(1));
    let none = LessonQuery { operator_classes: Vec::new(), ..query };
    assert!(bench.store.find_lessons(none).await.unwrap().is_empty());
}

async fn an_attempt_teaches_once(bench: Bench) {
    let first = lesson(1, "matmul", "memory", "here");
    bench.store.record_lesson(first.clone()).await.unwrap();
    bench.store.record_lesson(LessonRecord { gain_ppm: 1, ..first.clone() }).await.unwrap();
    let query = LessonQuery { operator_classes: vec!["matmul".to_owned()], limit: 10, ..LessonQuery::default() };
    assert_eq!(bench.store.find_lessons(query).await.unwrap(), [first]);
}

async fn with_run(bench: &Bench) -> RunId {
    bench.create(bench.new_campaign(1)).await.runs.remove(0)
}

async fn the_first_retrieval_of_a_step_stays(bench: Bench) {
    let run = with_run(&bench).await;
    assert_eq!(bench.store.find_retrieval(&run, "plan").await.unwrap(), None);
    let first = json!({ "notes": ["a"] });
    let pinned = bench.store.pin_retrieval(&run, "plan", first.clone(), bench.now()).await.unwrap();
    assert_eq!(pinned, first);
    let later = bench.store.pin_retrieval(&run, "plan", json!({ "notes": [] }), bench.now()).await.unwrap();
    assert_eq!(later, first, "the prompt of the step stays what it was");
    assert_eq!(bench.store.find_retrieval(&run, "plan").await.unwrap(), Some(first));
    assert_eq!(bench.store.find_retrieval(&run, "replan").await.unwrap(), None);
    for key in ["subtask1/attempt1/write_code", "subtask1/attempt12/write_code", "subtask2/attempt1/diagnose"] {
        bench.store.pin_retrieval(&run, key, json!({ "key": key }), bench.now()).await.unwrap();
    }
    let keys = async |attempt: Option<u32>, after: Option<&str>, limit: u32| {
        let found = bench.store.list_retrievals(&run, attempt, after, limit).await.unwrap();
        found.into_iter().map(|record| record.step_key).collect::<Vec<_>>()
    };
    assert_eq!(keys(Some(1), None, 9).await, ["subtask1/attempt1/write_code", "subtask2/attempt1/diagnose"]);
    assert_eq!(keys(None, None, 2).await, ["plan", "subtask1/attempt1/write_code"]);
    let after = Some("subtask1/attempt1/write_code");
    assert_eq!(keys(None, after, 9).await, ["subtask1/attempt12/write_code", "subtask2/attempt1/diagnose"]);
    let one = bench.store.list_retrievals(&run, Some(12), None, 9).await.unwrap().remove(0);
    assert_eq!((one.items, one.at), (json!({ "key": "subtask1/attempt12/write_code" }), bench.now()));
    let error = bench.store.pin_retrieval(&run_id(99), "plan", json!({}), bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "run.not_found");
}

fn score(run: &RunId, attempt: u32, formula: &str, reward: f64) -> ScoreRecord {
    ScoreRecord {
        run: run.clone(),
        attempt,
        formula: formula.to_owned(),
        score: json!({ "reward": reward }),
        at: TimestampMs(5),
    }
}

async fn an_attempt_has_the_latest_score_of_each_formula(bench: Bench) {
    let run = with_run(&bench).await;
    assert!(bench.store.list_scores(&run).await.unwrap().is_empty());
    let old = vec![score(&run, 2, "b.1", 0.5), score(&run, 1, "b.1", 0.1), score(&run, 1, "a.1", 0.2)];
    bench.store.put_scores(old).await.unwrap();
    bench.store.put_scores(vec![score(&run, 1, "b.1", 0.1 + 0.2)]).await.unwrap();
    let expected = [score(&run, 1, "a.1", 0.2), score(&run, 1, "b.1", 0.1 + 0.2), score(&run, 2, "b.1", 0.5)];
    assert_eq!(bench.store.list_scores(&run).await.unwrap(), expected);
    let error = bench.store.put_scores(vec![score(&run_id(99), 1, "a.1", 0.0)]).await.unwrap_err();
    assert_eq!(error.code(), "run.not_found");
}

async fn data_of_a_run_is_pruned_with_it_and_lessons_stay(bench: Bench) {
    let created = bench.create(bench.new_campaign(1)).await;
    let run = &created.runs[0];
    bench.store.pin_retrieval(run, "plan", json!({}), bench.now()).await.unwrap();
    bench.store.put_scores(vec![score(run, 1, "a.1", 0.2)]).await.unwrap();
    bench
        .store
        .record_lesson(LessonRecord { run: run.clone(), ..lesson(7, "matmul", "memory", "here") })
        .await
        .unwrap();
    bench.schedule(run, &["a"]).await;
    bench.complete_run(run).await;
    assert_eq!(bench.store.prune_campaign(&created.id, 1_000).await.unwrap().campaigns, 1);
    assert_eq!(bench.store.find_retrieval(run, "plan").await.unwrap_err().code(), "run.not_found");
    let query = LessonQuery { operator_classes: vec!["matmul".to_owned()], limit: 10, ..LessonQuery::default() };
    assert_eq!(bench.store.find_lessons(query).await.unwrap().len(), 1, "lessons are for later runs");
    bench.assert_sound().await;
}
