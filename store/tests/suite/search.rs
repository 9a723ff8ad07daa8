//! Tests of full-text search over sources, replies, diagnoses, errors and findings.

use nightshift_engine::store::RetentionStore;
use nightshift_protocol::api::{SearchHit, SearchKind, SearchQuery};
use nightshift_protocol::id::RunId;
use nightshift_store::{AttemptIndex, Document, DocumentKey, IndexedRun, MAX_DOCUMENT_BYTES};

use crate::attempts::indexed;
use crate::bench::Bench;

crate::bench::on_both!(
    a_word_is_found_in_whatever_a_run_left_behind,
    words_phrases_and_beginnings_are_found_as_they_are_asked_for,
    pages_go_from_the_newest_to_the_oldest,
    a_search_tells_how_many_texts_there_are_on_all_its_pages,
    a_text_that_changed_is_found_by_its_new_words_alone,
    text_beyond_the_limit_is_not_found,
    the_texts_of_a_pruned_run_are_gone,
);

fn document(attempt: u32, kind: SearchKind, body: &str) -> Document {
    let key = DocumentKey { attempt, kind, part: 0, digest: body.chars().take(40).collect() };
    Document { key, body: body.to_owned(), at: nightshift_protocol::time::TimestampMs(7) }
}

async fn put(bench: &Bench, run: &RunId, documents: Vec<Document>) {
    bench.store.put_index(vec![IndexedRun { documents, ..indexed(run, vec![]) }]).await.unwrap();
}

async fn find(bench: &Bench, pairs: &[(&str, &str)]) -> Vec<SearchHit> {
    bench.store.search(&SearchQuery::from_pairs(pairs.iter().copied()).unwrap()).await.unwrap().items
}

async fn kinds(bench: &Bench, pairs: &[(&str, &str)]) -> Vec<SearchKind> {
    find(bench, pairs).await.into_iter().map(|hit| hit.kind).collect()
}

async fn a_word_is_found_in_whatever_a_run_left_behind(bench: Bench) {
    let created = bench.create(bench.new_campaign(2)).await;
    let (one, other) = (&created.runs[0], &created.runs[1]);
    let of_one = SearchKind::ALL.map(|kind| document(3, kind, "first line\nthe warp diverges\nlast"));
    put(&bench, one, of_one.to_vec()).await;
    put(&bench, other, vec![document(0, SearchKind::Reply, "no warp here")]).await;
    let hits = find(&bench, &[("q", "Warp")]).await;
    assert_eq!(hits.len(), 6);
    let (newest, oldest) = (&hits[0], &hits[5]);
    assert_eq!((&newest.run, newest.attempt, newest.kind), (other, None, SearchKind::Reply));
    assert_eq!((&oldest.run, oldest.attempt, oldest.kind), (one, Some(3), SearchKind::Source));
    assert_eq!((&oldest.campaign, oldest.task.as_str(), oldest.line, oldest.at.0), (&created.id, "softmax", 2, 7));
    let (from, to) = oldest.matches[0];
    let place = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
    assert_eq!((oldest.excerpt.as_str(), &oldest.excerpt[place]), ("first line\nthe warp diverges\nlast", "warp"));
    assert_eq!(
        kinds(&bench, &[("q", "warp"), ("kind", "error,diagnosis")]).await,
        [SearchKind::Error, SearchKind::Diagnosis]
    );
    assert_eq!(find(&bench, &[("q", "warp"), ("run", other.as_str())]).await.len(), 1);
    assert_eq!(find(&bench, &[("q", "warp"), ("campaign", created.id.as_str())]).await.len(), 6);
    let elsewhere = bench.create(bench.new_campaign(1)).await.id;
    assert!(find(&bench, &[("q", "warp"), ("campaign", elsewhere.as_str())]).await.is_empty());
    let unknown = SearchQuery::from_pairs([("q", "x"), ("run", "run_00000000000000000000000000000000")]).unwrap();
    assert_eq!(bench.store.search(&unknown).await.unwrap_err().code(), "run.not_found");
}

async fn words_phrases_and_beginnings_are_found_as_they_are_asked_for(bench: Bench) {
    let run = bench.run().await;
    let body =
        "__global__ void row_softmax(const float* in) { cp.async.wait(); tile[x] = in[i]*2.5f; } // größer: 100%";
    put(&bench, &run, vec![document(1, SearchKind::Source, body)]).await;
    for text in [
        "softmax",
        "row_softmax",
        "ROW_SOFTMAX in",
        "cp.async",
        "\"void row softmax\"",
        "tile[x]",
        "soft*",
        "row_soft*",
        "größer",
        "2.5f",
        "100%",
        "const float*",
    ] {
        assert_eq!(find(&bench, &[("q", text)]).await.len(), 1, "{text}");
    }
    for text in
        ["soft", "\"softmax row\"", "softmax gemm", "async.cp", "max*", "'; DROP TABLE attempt; --", "NEAR(softmax)"]
    {
        assert!(find(&bench, &[("q", text)]).await.is_empty(), "{text}");
    }
}

async fn pages_go_from_the_newest_to_the_oldest(bench: Bench) {
    let run = bench.run().await;
    let bodies = (1..=7).map(|number| document(number, SearchKind::Source, &format!("text {number}")));
    put(&bench, &run, bodies.collect()).await;
    let mut query = SearchQuery::from_pairs([("q", "text"), ("limit", "3")]).unwrap();
    let mut seen = Vec::new();
    loop {
        let page = bench.store.search(&query).await.unwrap();
        seen.extend(page.items.iter().filter_map(|hit| hit.attempt));
        match page.next {
            Some(next) => query.before = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
    query.before = Some("page two".to_owned());
    assert_eq!(bench.store.search(&query).await.unwrap_err().code(), "request.invalid_query");
}

async fn a_text_that_changed_is_found_by_its_new_words_alone(bench: Bench) {
    let run = bench.run().await;
    put(&bench, &run, vec![document(1, SearchKind::Diagnosis, "memory bound")]).await;
    put(&bench, &run, vec![document(1, SearchKind::Diagnosis, "latency bound")]).await;
    assert!(find(&bench, &[("q", "memory")]).await.is_empty());
    assert_eq!(find(&bench, &[("q", "latency")]).await.len(), 1);
    let known = bench.store.documents_of(&run, None).await.unwrap();
    assert_eq!(known, [document(1, SearchKind::Diagnosis, "latency bound").key]);
    assert_eq!(bench.store.documents_of(&run, Some(1)).await.unwrap(), known);
    assert_eq!(bench.store.documents_of(&run, Some(2)).await.unwrap(), []);
}

async fn text_beyond_the_limit_is_not_found(bench: Bench) {
    let run = bench.run().await;
    let body = format!("begin {}ü end", "x".repeat(MAX_DOCUMENT_BYTES - 7));
    put(&bench, &run, vec![document(1, SearchKind::Reply, &body)]).await;
    assert_eq!(find(&bench, &[("q", "begin")]).await.len(), 1);
    assert!(find(&bench, &[("q", "end")]).await.is_empty());
}

async fn the_texts_of_a_pruned_run_are_gone(bench: Bench) {
    let created = bench.create(bench.new_campaign(1)).await;
    let run = &created.runs[0];
    put(&bench, run, vec![document(1, SearchKind::Source, "a needle")]).await;
    bench.schedule(run, &["a"]).await;
    bench.complete_run(run).await;
    bench.store.prune_campaign(&created.id, 1_000).await.unwrap();
    assert!(find(&bench, &[("q", "needle")]).await.is_empty());
    assert!(bench.store.documents_of(run, None).await.unwrap().is_empty());
    bench.assert_sound().await;
}

async fn a_search_tells_how_many_texts_there_are_on_all_its_pages(bench: Bench) {
    let runs = bench.create(bench.new_campaign(2)).await.runs;
    let texts =
        |count: u32| (1..=count).map(|number| document(number, SearchKind::Source, &format!("a tile {number}")));
    put(&bench, &runs[0], texts(5).collect()).await;
    let gemm = IndexedRun { task: "gemm".to_owned(), documents: texts(2).collect(), ..indexed(&runs[1], vec![]) };
    bench.store.put_index(vec![gemm]).await.unwrap();
    let totals = async |pairs: &[(&str, &str)]| {
        let query = SearchQuery::from_pairs(pairs.iter().copied()).unwrap();
        let page = bench.store.search(&query).await.unwrap();
        (page.total, page.items.len(), page.next)
    };
    let (total, shown, next) = totals(&[("q", "tile"), ("limit", "3")]).await;
    assert_eq!((total, shown), (7, 3));
    let next = next.unwrap();
    assert_eq!(totals(&[("q", "tile"), ("limit", "3"), ("before", &next)]).await.0, 7, "on every page the same");
    assert_eq!(totals(&[("q", "tile"), ("task", "gemm")]).await, (2, 2, None));
    assert_eq!(totals(&[("q", "tile"), ("kind", "reply")]).await, (0, 0, None));
    assert_eq!(totals(&[("q", "tile"), ("task", "gemm"), ("run", runs[0].as_str())]).await.0, 0);
}
