//! Tests of the index of attempts: lists with exact counts, cursors and points, and their changes over time.

use nightshift_engine::store::{RetentionStore, RunStore, TeamStore};
use nightshift_protocol::api::{
    AttemptFilter, AttemptPage, AttemptQuery, AttemptSort, PointValue, PointsQuery, SortOrder, Tag, Target,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{AttemptOutcome, Bound, Stage};
use nightshift_protocol::id::RunId;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::task::Target as NeededTarget;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::{AttemptIndex, IndexedAttempt, IndexedRun};

use crate::bench::Bench;
use crate::place::Kind;

crate::bench::on_both!(
    a_row_comes_back_as_it_was_written,
    pages_give_every_attempt_once_in_every_order,
    a_total_counts_what_fits_and_nothing_else,
    a_tag_finds_the_attempts_that_have_it_in_every_list,
    a_facet_counts_what_another_choice_would_find,
    a_cursor_belongs_to_its_order,
    a_run_is_written_over_by_what_is_later_and_never_by_what_is_earlier,
    a_run_that_the_index_does_not_know_is_behind,
    points_lead_to_their_attempts,
    a_pruned_run_is_gone_from_every_list,
    an_index_of_many_runs_is_read_as_a_whole,
);

pub(crate) fn attempt(number: u32, outcome: AttemptOutcome) -> IndexedAttempt {
    IndexedAttempt {
        number,
        stage: if number == 1 { Stage::Draft } else { Stage::Optimize },
        parent: number.checked_sub(1).filter(|parent| *parent > 0),
        outcome,
        is_best: false,
        is_confirmed: false,
        speedup: None,
        speedup_over_fastest: None,
        candidate_median_ns: None,
        reward: None,
        rubric_total: None,
        bound: None,
        issue: None,
        tokens: 100,
        cost_microusd: Some(2_500),
        model: "lab/a".to_owned(),
        device: None,
        device_ms: 300,
        source: None,
        created_at: TimestampMs(1_000 + i64::from(number)),
        finished_at: Some(TimestampMs(2_000 + i64::from(number))),
    }
}

/// Returns an attempt whose fastest baseline is twice as fast as the reference.
pub(crate) fn timed(number: u32, speedup: f64, confirmed: bool) -> IndexedAttempt {
    let interval = |estimate: f64, half: f64| Interval { estimate, low: estimate - half, high: estimate + half };
    IndexedAttempt {
        is_confirmed: confirmed,
        speedup: Some(interval(speedup, 0.125)),
        speedup_over_fastest: Some(interval(speedup / 2.0, 0.0625)),
        candidate_median_ns: Some(1_234.5),
        reward: Some(speedup / 2.0),
        device: Some("NVIDIA H200".to_owned()),
        ..attempt(number, AttemptOutcome::CorrectFaster)
    }
}

pub(crate) fn indexed(run: &RunId, attempts: Vec<IndexedAttempt>) -> IndexedRun {
    IndexedRun {
        run: run.clone(),
        seq: 1,
        form: 1,
        task: "softmax".to_owned(),
        target: NeededTarget::Cuda,
        strategy: "stitch".to_owned(),
        attempts,
        documents: Vec::new(),
    }
}

async fn list(bench: &Bench, pairs: &[(&str, &str)]) -> AttemptPage {
    let query = AttemptQuery::from_pairs(pairs.iter().copied()).unwrap();
    bench.store.list_attempts(&query).await.unwrap()
}

async fn numbers(bench: &Bench, pairs: &[(&str, &str)]) -> Vec<u32> {
    list(bench, pairs).await.items.iter().map(|row| row.number).collect()
}

async fn a_row_comes_back_as_it_was_written(bench: Bench) {
    let created = bench.create(bench.new_campaign(1)).await;
    let source = ArtifactHash::of(b"source");
    let written = IndexedAttempt {
        is_best: true,
        rubric_total: Some(17),
        bound: Some(Bound::Memory),
        issue: Some("loads are not coalesced\0".to_owned()),
        source: Some(source.clone()),
        ..timed(3, 2.375, true)
    };
    bench.store.put_index(vec![indexed(&created.runs[0], vec![written])]).await.unwrap();
    let page = list(&bench, &[]).await;
    assert_eq!((page.total, page.next.as_deref(), page.facets), (1, None, None));
    let row = &page.items[0];
    assert_eq!((&row.run, &row.campaign, row.number), (&created.runs[0], &created.id, 3));
    assert_eq!((row.task.as_str(), row.target, row.strategy.as_str()), ("softmax", NeededTarget::Cuda, "stitch"));
    assert_eq!((row.stage, row.parent, row.outcome), (Stage::Optimize, Some(2), AttemptOutcome::CorrectFaster));
    assert_eq!(row.speedup, Some(Interval { estimate: 2.375, low: 2.25, high: 2.5 }));
    assert_eq!(row.speedup_over_fastest, Some(Interval { estimate: 1.1875, low: 1.125, high: 1.25 }));
    assert_eq!((row.candidate_median_ns, row.reward, row.cost_usd), (Some(1_234.5), Some(1.1875), Some(0.0025)));
    assert_eq!((row.rubric_total, row.bound, row.tokens), (Some(17), Some(Bound::Memory), 100));
    assert_eq!(row.issue.as_deref(), Some("loads are not coalesced\u{fffd}"));
    assert_eq!((row.model.as_str(), row.device.as_deref()), ("lab/a", Some("NVIDIA H200")));
    assert_eq!((row.source.as_ref(), row.best, row.confirmed), (Some(&source), true, true));
    assert_eq!((row.created_at, row.finished_at), (TimestampMs(1_003), Some(TimestampMs(2_003))));
}

/// Creates three runs with varied attempts, among them equal times and speedups.
pub(crate) async fn some_runs(bench: &Bench) -> Vec<RunId> {
    let runs = bench.create(bench.new_campaign(3)).await.runs;
    let unknown = IndexedAttempt { cost_microusd: None, finished_at: None, ..attempt(4, AttemptOutcome::Pending) };
    let first = vec![
        attempt(1, AttemptOutcome::CompileFailed),
        timed(2, 1.5, false),
        IndexedAttempt { is_best: true, ..timed(3, 2.0, true) },
        unknown,
    ];
    let second = vec![
        attempt(1, AttemptOutcome::Crashed),
        IndexedAttempt { model: "lab/b".to_owned(), ..timed(2, 2.0, true) },
        // Its fastest baseline is unknown.
        IndexedAttempt { speedup_over_fastest: None, ..timed(3, 0.5, false) },
    ];
    let third = IndexedRun {
        task: "gemm".to_owned(),
        strategy: "beam".to_owned(),
        ..indexed(&runs[2], vec![attempt(1, AttemptOutcome::Incorrect)])
    };
    let indexed = vec![indexed(&runs[0], first), indexed(&runs[1], second), third];
    bench.store.put_index(indexed).await.unwrap();
    runs
}

async fn pages_give_every_attempt_once_in_every_order(bench: Bench) {
    some_runs(&bench).await;
    for sort in AttemptSort::ALL {
        let mut orders = Vec::new();
        for order in SortOrder::ALL {
            let mut query = AttemptQuery { sort, order, limit: Some(3), ..AttemptQuery::default() };
            let mut seen = Vec::new();
            loop {
                let page = bench.store.list_attempts(&query).await.unwrap();
                assert_eq!(page.total, 8, "on whichever page");
                seen.extend(page.items);
                match page.next {
                    Some(next) => query.before = Some(next),
                    None => break,
                }
            }
            let whole = AttemptQuery { sort, order, limit: Some(100), ..AttemptQuery::default() };
            assert_eq!(seen, bench.store.list_attempts(&whole).await.unwrap().items, "{sort:?} {order:?}");
            orders.push(seen);
        }
        assert_eq!((orders[0].len(), orders[1].len()), (8, 8));
        let value = |row: &nightshift_protocol::api::AttemptRow| match sort {
            AttemptSort::Created => Some(f64::from(i32::try_from(row.created_at.0).unwrap())),
            AttemptSort::Finished => row.finished_at.map(|at| f64::from(i32::try_from(at.0).unwrap())),
            AttemptSort::Speedup => row.speedup.map(|speedup| speedup.estimate),
            AttemptSort::SpeedupOverFastest => row.speedup_over_fastest.map(|speedup| speedup.estimate),
            AttemptSort::Reward => row.reward,
            AttemptSort::Cost => row.cost_usd,
            AttemptSort::Tokens => Some(f64::from(u32::try_from(row.tokens).unwrap())),
        };
        let known = |rows: &[nightshift_protocol::api::AttemptRow]| rows.iter().map_while(value).collect::<Vec<f64>>();
        let (rising, falling) = (known(&orders[0]), known(&orders[1]));
        assert!(rising.is_sorted() && falling.iter().rev().is_sorted(), "{sort:?}: {rising:?} {falling:?}");
        let count = orders[0].iter().filter(|row| value(row).is_some()).count();
        assert_eq!((rising.len(), falling.len()), (count, count), "{sort:?}: what has no value comes last in both");
    }
}

async fn a_total_counts_what_fits_and_nothing_else(bench: Bench) {
    let runs = some_runs(&bench).await;
    let campaign = bench.store.load_run(&runs[0]).await.unwrap().campaign.to_string();
    let other = bench.create(bench.new_campaign(1)).await.id.to_string();
    let short = runs[1].short().to_owned();
    let cases: [(&[(&str, &str)], u64); 26] = [
        (&[("campaign", &campaign)], 8),
        (&[("campaign", &other)], 0),
        (&[("run", runs[1].as_str())], 3),
        (&[("task", "gemm")], 1),
        (&[("task", "nothing")], 0),
        (&[("model", "lab/b")], 1),
        (&[("strategy", "beam")], 1),
        (&[("device", "NVIDIA H200")], 4),
        (&[("outcome", "crashed,incorrect")], 2),
        (&[("stage", "draft")], 3),
        (&[("correct", "true")], 4),
        (&[("correct", "false")], 4),
        (&[("confirmed", "true")], 2),
        (&[("min_speedup", "1.5")], 3),
        (&[("max_speedup", "1.5")], 2),
        (&[("min_speedup", "1.500001")], 2),
        (&[("min_speedup_over_fastest", "0.75")], 3),
        (&[("min_speedup_over_fastest", "0.750001")], 2),
        (&[("max_speedup_over_fastest", "0.75")], 1),
        (&[("min_speedup", "0.5"), ("max_speedup_over_fastest", "0.75")], 1),
        (&[("min_reward", "0.25"), ("max_reward", "0.75")], 2),
        (&[("q", "SOFT h200")], 4),
        (&[("q", "beam")], 1),
        (&[("q", &short)], 3),
        (&[("q", "soft gemm")], 0),
        (&[("task", "softmax"), ("correct", "true"), ("confirmed", "false"), ("min_speedup", "1")], 1),
    ];
    for (pairs, total) in cases {
        let page = list(&bench, pairs).await;
        assert_eq!((page.total, page.items.len()), (total, usize::try_from(total).unwrap()), "{pairs:?}");
    }
}

async fn a_facet_counts_what_another_choice_would_find(bench: Bench) {
    some_runs(&bench).await;
    let page = list(&bench, &[("outcome", "crashed"), ("task", "softmax"), ("facets", "true")]).await;
    let facets = page.facets.unwrap();
    let pairs = |facets: &[nightshift_protocol::api::Facet]| -> Vec<(String, u64)> {
        facets.iter().map(|facet| (facet.value.clone(), facet.count)).collect()
    };
    assert_eq!(page.total, 1);
    assert_eq!(
        pairs(&facets.outcome),
        [("correct_faster", 4), ("compile_failed", 1), ("crashed", 1), ("pending", 1)]
            .map(|(value, count)| (value.to_owned(), count))
    );
    assert_eq!(pairs(&facets.stage), [("draft".to_owned(), 1)]);
    assert_eq!(pairs(&facets.model), [("lab/a".to_owned(), 1)]);
    let by_model = list(&bench, &[("model", "lab/b"), ("facets", "true")]).await.facets.unwrap();
    assert_eq!(pairs(&by_model.model), [("lab/a".to_owned(), 7), ("lab/b".to_owned(), 1)]);
    assert_eq!(pairs(&by_model.outcome), [("correct_faster".to_owned(), 1)]);
}

async fn a_cursor_belongs_to_its_order(bench: Bench) {
    some_runs(&bench).await;
    let next = list(&bench, &[("limit", "1"), ("sort", "cost")]).await.next.unwrap();
    assert_eq!(list(&bench, &[("limit", "1"), ("sort", "cost"), ("before", &next)]).await.items.len(), 1);
    for pairs in [[("before", next.as_str()), ("sort", "tokens")], [("before", "x"), ("sort", "cost")]] {
        let query = AttemptQuery::from_pairs(pairs).unwrap();
        let error = bench.store.list_attempts(&query).await.unwrap_err();
        assert_eq!(error.code(), "request.invalid_query", "{pairs:?}");
    }
}

async fn a_run_is_written_over_by_what_is_later_and_never_by_what_is_earlier(bench: Bench) {
    let run = bench.run().await;
    let at = |seq: u64, form: u32, tokens: u64| IndexedRun {
        seq,
        form,
        ..indexed(&run, vec![IndexedAttempt { tokens, ..attempt(1, AttemptOutcome::Pending) }])
    };
    let tokens = async || list(&bench, &[]).await.items[0].tokens;
    bench.store.put_index(vec![at(5, 1, 1)]).await.unwrap();
    bench.store.put_index(vec![at(4, 1, 2)]).await.unwrap();
    assert_eq!(tokens().await, 1, "an earlier event");
    bench.store.put_index(vec![at(5, 1, 3)]).await.unwrap();
    assert_eq!(tokens().await, 3, "the same event, written again");
    bench.store.put_index(vec![at(2, 2, 4)]).await.unwrap();
    assert_eq!(tokens().await, 4, "another form");
    bench.store.put_index(vec![at(9, 1, 5)]).await.unwrap();
    assert_eq!(tokens().await, 4, "an earlier form");
    let longer = IndexedRun {
        seq: 10,
        form: 2,
        ..indexed(&run, vec![attempt(1, AttemptOutcome::Crashed), attempt(2, AttemptOutcome::Pending)])
    };
    bench.store.put_index(vec![longer]).await.unwrap();
    assert_eq!(numbers(&bench, &[("order", "asc")]).await, [1, 2]);
    bench.store.put_index(vec![indexed(&RunId::from_uuid(uuid::Uuid::nil()), vec![])]).await.unwrap();
    assert_eq!(list(&bench, &[]).await.total, 2, "a run that does not exist is left out");
}

async fn a_run_that_the_index_does_not_know_is_behind(bench: Bench) {
    let runs = bench.create(bench.new_campaign(2)).await.runs;
    let behind = async |form| bench.store.runs_behind(form, 0, 10).await.unwrap();
    assert!(behind(1).await.is_empty(), "nothing was decided yet");
    bench.schedule(&runs[1], &["a"]).await;
    bench.schedule(&runs[0], &["a"]).await;
    assert_eq!(behind(1).await, runs);
    assert_eq!(bench.store.runs_behind(1, 0, 1).await.unwrap(), runs[..1]);
    let seq = bench.store.load_run(&runs[0]).await.unwrap().folded_seq;
    bench.store.put_index(vec![IndexedRun { seq, ..indexed(&runs[0], vec![]) }]).await.unwrap();
    assert_eq!(behind(1).await, runs[1..]);
    assert_eq!(behind(2).await, runs, "another form is behind as a whole");
    bench.complete_run(&runs[0]).await;
    let from = bench.store.oldest_unfinished_run().await.unwrap();
    assert_eq!(bench.store.runs_behind(2, from, 10).await.unwrap(), runs[1..], "the first one is over");
    bench.complete_run(&runs[1]).await;
    let from = bench.store.oldest_unfinished_run().await.unwrap();
    assert!(bench.store.runs_behind(2, from, 10).await.unwrap().is_empty());
    let next = bench.run().await;
    bench.schedule(&next, &["a"]).await;
    assert_eq!(bench.store.runs_behind(2, from, 10).await.unwrap(), [next]);
}

async fn points_lead_to_their_attempts(bench: Bench) {
    some_runs(&bench).await;
    let query = PointsQuery { value: PointValue::Speedup, ..PointsQuery::default() };
    let points = bench.store.attempt_points(&query).await.unwrap();
    assert_eq!((points.total(), points.len()), (8, 8));
    let mut speedups: Vec<f32> = points.iter().filter_map(|point| point.value).collect();
    speedups.sort_by(f32::total_cmp);
    assert_eq!(speedups, [0.5, 1.5, 2.0, 2.0]);
    for point in points.iter() {
        let row = bench.store.attempt_at(point.run_key, point.number.into()).await.unwrap();
        assert_eq!((row.outcome, row.stage, row.best), (point.outcome, point.stage, point.best));
        assert!(row.created_at.since_ms(point.created_at) < 100, "to a tenth of a second");
    }
    assert_eq!(bench.store.attempt_at(4_000_000_000, 1).await.unwrap_err().code(), "attempt.not_found");
    let filter = AttemptFilter::from_pairs([("task", "gemm")]).unwrap();
    let fastest = PointsQuery { value: PointValue::SpeedupOverFastest, ..PointsQuery::default() };
    let points = bench.store.attempt_points(&fastest).await.unwrap();
    let mut speedups: Vec<f32> = points.iter().filter_map(|point| point.value).collect();
    speedups.sort_by(f32::total_cmp);
    assert_eq!(speedups, [0.75, 1.0, 1.0], "of one attempt the fastest baseline is not known");
    let cost = PointsQuery { filter, value: PointValue::Cost };
    let points = bench.store.attempt_points(&cost).await.unwrap();
    assert_eq!(points.iter().map(|point| point.value).collect::<Vec<_>>(), [Some(0.0025)]);
}

async fn a_pruned_run_is_gone_from_every_list(bench: Bench) {
    let created = bench.create(bench.new_campaign(1)).await;
    let kept = bench.run().await;
    let run = &created.runs[0];
    bench.schedule(run, &["a"]).await;
    bench.complete_run(run).await;
    let both = vec![indexed(run, vec![timed(1, 2.0, true)]), indexed(&kept, vec![timed(1, 1.0, true)])];
    bench.store.put_index(both).await.unwrap();
    assert_eq!(list(&bench, &[]).await.total, 2);
    // Another process on the same database, with its columns loaded.
    let other = if bench.kind() == Kind::Postgres { Some(bench.place.open().await) } else { None };
    if let Some(other) = &other {
        assert_eq!(other.list_attempts(&AttemptQuery::default()).await.unwrap().total, 2);
    }
    assert_eq!(bench.store.prune_campaign(&created.id, 1_000).await.unwrap().campaigns, 1);
    assert_eq!(list(&bench, &[]).await.items.iter().map(|row| &row.run).collect::<Vec<_>>(), [&kept]);
    if let Some(other) = &other {
        assert_eq!(other.list_attempts(&AttemptQuery::default()).await.unwrap().total, 1);
        bench.store.put_index(vec![indexed(&kept, vec![timed(1, 1.0, true), timed(2, 1.0, true)])]).await.unwrap();
        assert_eq!(other.list_attempts(&AttemptQuery::default()).await.unwrap().total, 2, "what one writes all see");
    }
    bench.store.put_index(vec![indexed(run, vec![timed(1, 2.0, true)])]).await.unwrap();
    assert!(!list(&bench, &[]).await.items.iter().any(|row| row.run == *run), "written too late");
    bench.assert_sound().await;
}

async fn an_index_of_many_runs_is_read_as_a_whole(mut bench: Bench) {
    // More runs than one read returns, all of one change, and some of a later one.
    let runs = bench.create(bench.new_campaign(600)).await.runs;
    let all = runs.iter().map(|run| indexed(run, vec![attempt(1, AttemptOutcome::Crashed)])).collect();
    bench.store.put_index(all).await.unwrap();
    assert_eq!(list(&bench, &[("limit", "1")]).await.total, 600);
    let again = indexed(&runs[300], vec![attempt(1, AttemptOutcome::Crashed), attempt(2, AttemptOutcome::Crashed)]);
    bench.store.put_index(vec![again]).await.unwrap();
    assert_eq!(list(&bench, &[("limit", "1")]).await.total, 601);
    bench.reopen().await;
    assert_eq!(list(&bench, &[("limit", "1")]).await.total, 601);
}

async fn a_tag_finds_the_attempts_that_have_it_in_every_list(bench: Bench) {
    let runs = bench.create(bench.new_campaign(2)).await.runs;
    let three = |run: &RunId| indexed(run, (1..=3).map(|number| timed(number, 1.5, true)).collect());
    bench.store.put_index(runs.iter().map(three).collect()).await.unwrap();
    let tag =
        |target: Target, tag: &str| Tag { target, tag: tag.to_owned(), author: "ada".to_owned(), at: TimestampMs(1) };
    let of = |place: usize, number: u32| Target::Attempt(runs[place].clone(), number);
    let tags = vec![
        tag(of(0, 2), "good"),
        tag(of(1, 3), "good"),
        tag(of(0, 1), "odd"),
        tag(Target::Run(runs[1].clone()), "odd"),
    ];
    bench.store.change_tags(tags, Vec::new(), 50).await.unwrap();
    assert_eq!(numbers(&bench, &[("tag", "good")]).await.len(), 2);
    assert_eq!(numbers(&bench, &[("tag", "good"), ("run", runs[0].as_str())]).await, [2]);
    assert_eq!(numbers(&bench, &[("tag", "odd")]).await, [1], "a tag of a run is none of its attempts");
    assert_eq!(list(&bench, &[("tag", "none")]).await.total, 0);
    let filter = AttemptFilter::from_pairs([("tag", "good")]).unwrap();
    let points = PointsQuery { filter: filter.clone(), value: PointValue::Speedup };
    assert_eq!(bench.store.attempt_points(&points).await.unwrap().iter().count(), 2);
    assert_eq!(bench.store.task_boards(&filter).await.unwrap()[0].attempts, 2);
    assert_eq!(bench.store.model_boards(&filter).await.unwrap()[0].attempts, 2);
    bench.store.change_tags(Vec::new(), vec![(of(0, 2), "good".to_owned())], 50).await.unwrap();
    assert_eq!(numbers(&bench, &[("tag", "good")]).await, [3], "what is taken away is gone at once");
}
