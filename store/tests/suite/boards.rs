//! Tests of the boards of tasks and models, and of results of campaigns, from the index of attempts.

use nightshift_protocol::api::AttemptFilter;
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::task::Target as NeededTarget;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::{AttemptIndex, IndexedAttempt, IndexedRun};

use crate::attempts::{attempt, indexed, some_runs, timed};
use crate::bench::Bench;

crate::bench::on_both!(
    the_board_of_a_task_shows_the_best_confirmed_attempt_and_how_it_came_about,
    the_results_of_a_campaign_are_those_of_all_its_attempts,
    only_an_attempt_that_was_accepted_as_the_best_is_kept,
    many_results_are_thinned_and_say_of_how_many,
    the_board_of_a_model_counts_runs_and_what_they_reached,
    totals_of_many_campaigns_are_returned_at_once,
);

async fn the_board_of_a_task_shows_the_best_confirmed_attempt_and_how_it_came_about(bench: Bench) {
    let runs = bench.create(bench.new_campaign(2)).await.runs;
    let at = |at: i64, attempt: IndexedAttempt| IndexedAttempt { finished_at: Some(TimestampMs(at)), ..attempt };
    let first = vec![
        attempt(1, AttemptOutcome::NoCode),
        at(10, timed(2, 1.25, true)),
        at(20, timed(3, 9.0, false)),
        IndexedAttempt { is_best: true, ..at(40, timed(4, 1.5, true)) },
        at(45, timed(5, 4.0, true)),
    ];
    let wrong = IndexedAttempt { outcome: AttemptOutcome::RuntimeFailed, ..timed(2, 50.0, true) };
    let best = IndexedAttempt { is_best: true, ..at(50, timed(3, 3.0, true)) };
    let second = vec![at(30, timed(1, 2.0, true)), at(35, wrong), best];
    bench.store.put_index(vec![indexed(&runs[0], first), indexed(&runs[1], second)]).await.unwrap();
    let boards = bench.store.task_boards(&AttemptFilter::default()).await.unwrap();
    assert_eq!(boards.len(), 1, "an attempt of no device belongs to where its run was timed");
    let board = &boards[0];
    assert_eq!((board.task.as_str(), board.device.as_deref()), ("softmax", Some("NVIDIA H200")));
    assert_eq!((board.runs, board.attempts, board.campaigns), (2, 8, 1));
    let best = board.best.as_ref().unwrap();
    assert_eq!(
        (&best.run, best.number),
        (&runs[1], 3),
        "neither what was measured once, nor what was wrong, nor what its run refused"
    );
    assert_eq!(best.speedup_over_fastest.map(|speedup| speedup.estimate), Some(1.5));
    let history: Vec<(i64, f64, Option<f64>)> =
        board.history.iter().map(|best| (best.at.0, best.speedup, best.speedup_over_fastest)).collect();
    assert_eq!(history, [(10, 1.25, Some(0.625)), (30, 2.0, Some(1.0)), (50, 3.0, Some(1.5))]);
    let of_first = AttemptFilter { run: Some(runs[0].clone()), ..AttemptFilter::default() };
    assert_eq!(bench.store.task_boards(&of_first).await.unwrap()[0].best.as_ref().unwrap().number, 4);
}

async fn the_results_of_a_campaign_are_those_of_all_its_attempts(bench: Bench) {
    let created = bench.create(bench.new_campaign(3)).await;
    let elsewhere = bench.create(bench.new_campaign(1)).await.runs;
    let runs = &created.runs;
    let wrong = IndexedAttempt { outcome: AttemptOutcome::RuntimeFailed, ..timed(3, 50.0, true) };
    let pending = IndexedAttempt { finished_at: None, ..attempt(5, AttemptOutcome::Pending) };
    let best = IndexedAttempt { is_best: true, ..timed(4, 2.0, true) };
    let first = vec![timed(1, 1.5, true), timed(2, 2.25, false), wrong, best, pending];
    let second = vec![attempt(1, AttemptOutcome::CompileFailed)];
    let other = vec![IndexedAttempt { is_best: true, ..timed(1, 99.0, true) }];
    let written = vec![indexed(&runs[0], first), indexed(&runs[1], second), indexed(&elsewhere[0], other)];
    bench.store.put_index(written).await.unwrap();
    let results = bench.store.campaign_results(&created.id, 3, 1..=u64::MAX).await.unwrap();
    assert_eq!((results.attempts, results.kept, results.discarded), (6, 2, 1));
    assert_eq!((results.failed, results.pending, results.timed, results.timed_runs), (2, 1, 3, 1));
    let outcomes: Vec<(&str, u64)> = results.outcomes.iter().map(|facet| (facet.value.as_str(), facet.count)).collect();
    assert_eq!(outcomes, [("correct_faster", 3), ("compile_failed", 1), ("pending", 1), ("runtime_failed", 1)]);
    assert_eq!(results.speedups, [1.5, 2.0, 2.25], "of right ones alone");
    assert_eq!((results.speedups_over_fastest, results.timed_over_fastest), (vec![0.75, 1.0, 1.125], 3));
    let marks: Vec<(u64, u32, bool)> = results.marks.iter().map(|mark| (mark.place, mark.number, mark.kept)).collect();
    assert_eq!(marks, [(1, 1, true), (2, 2, false), (3, 3, false), (4, 4, true), (5, 5, false), (6, 1, false)]);
    let third = &results.marks[2];
    assert_eq!((third.speedup, third.speedup_over_fastest), (None, None), "a wrong program has no speedup");
    assert_eq!((results.marks[3].speedup, results.marks[3].speedup_over_fastest), (Some(2.0), Some(1.0)));
    let line = &results.lines[0];
    assert_eq!((results.lines.len(), &line.run, line.grew), (1, &runs[0], 2));
    let bests: Vec<(u32, f64, Option<f64>)> =
        line.bests.iter().map(|best| (best.number, best.speedup, best.speedup_over_fastest)).collect();
    assert_eq!((bests, line.until), (vec![(1, 1.5, Some(0.75)), (4, 2.0, Some(1.0))], TimestampMs(2_004)));
    let curve: Vec<(f64, f64)> = results.fast_p.iter().map(|place| (place.p, place.share)).collect();
    assert_eq!(curve, [(0.0, 1.0 / 3.0), (2.0, 0.0)], "one of three runs has a right program");
    let curve: Vec<(f64, f64)> = results.fast_p_over_fastest.iter().map(|place| (place.p, place.share)).collect();
    assert_eq!(curve, [(0.0, 1.0 / 3.0), (1.0, 0.0)]);
    assert_eq!((results.models.len(), results.models[0].runs, results.models[0].attempts), (1, 2, 6));
    let device = &results.devices[0];
    assert_eq!((device.device.as_str(), device.runs, device.attempts), ("NVIDIA H200", 1, 4));
    assert_eq!((device.device_ms, results.untimed_device_ms), (1_200, 600), "of those that were never timed apart");
    assert_eq!(
        (device.best_speedup, device.best_speedup_over_fastest, device.first_at, device.last_at),
        (Some(2.0), Some(1.0), TimestampMs(1_001), TimestampMs(2_004))
    );
    let none =
        bench.store.campaign_results(&bench.create(bench.new_campaign(1)).await.id, 1, 1..=u64::MAX).await.unwrap();
    assert_eq!((none.attempts, none.marks.len(), none.fast_p.len()), (0, 0, 1));
}

async fn only_an_attempt_that_was_accepted_as_the_best_is_kept(bench: Bench) {
    let created = bench.create(bench.new_campaign(1)).await;
    let best = IndexedAttempt { is_best: true, ..timed(3, 2.0, true) };
    let attempts = vec![timed(1, 1.5, true), timed(2, 9.0, false), best, timed(4, 1.75, true), timed(5, 2.5, true)];
    bench.store.put_index(vec![indexed(&created.runs[0], attempts)]).await.unwrap();
    let results = bench.store.campaign_results(&created.id, 1, 1..=u64::MAX).await.unwrap();
    assert_eq!((results.kept, results.discarded, results.timed), (2, 3, 5));
    let kept: Vec<bool> = results.marks.iter().map(|mark| mark.kept).collect();
    assert_eq!(kept, [true, false, true, false, false], "neither the unconfirmed one nor one above the best");
    let bests: Vec<(u32, f64)> = results.lines[0].bests.iter().map(|best| (best.number, best.speedup)).collect();
    assert_eq!(bests, [(1, 1.5), (3, 2.0)]);
}

async fn many_results_are_thinned_and_say_of_how_many(bench: Bench) {
    let created = bench.create(bench.new_campaign(14)).await;
    // In each run every tenth attempt is the best so far.
    let of_run = |run: &RunId| {
        let speedup = |number: u32| if number.is_multiple_of(10) { 1.0 + f64::from(number) / 8.0 } else { 0.5 };
        let attempts =
            (1..=200).map(|number| IndexedAttempt { is_best: number == 200, ..timed(number, speedup(number), true) });
        indexed(run, attempts.collect())
    };
    bench.store.put_index(created.runs.iter().map(of_run).collect()).await.unwrap();
    let results = bench.store.campaign_results(&created.id, 14, 1..=u64::MAX).await.unwrap();
    assert_eq!((results.attempts, results.timed, results.timed_runs), (2_800, 2_800, 14));
    assert_eq!((results.marks.len(), results.speedups.len(), results.lines.len()), (600, 600, 8));
    // The first attempt is the best so far, too.
    assert_eq!((results.kept, results.discarded), (14 * 21, 14 * 179));
    assert_eq!(results.marks.iter().filter(|mark| mark.kept).count(), 294, "all that were the best of their time");
    assert!(results.marks.is_sorted_by_key(|mark| mark.place));
    let part = bench.store.campaign_results(&created.id, 14, 201..=220).await.unwrap();
    let places: Vec<u64> = part.marks.iter().map(|mark| mark.place).collect();
    assert_eq!((places, part.marks_of), ((201..=220).collect::<Vec<u64>>(), 20), "all of a part that is small enough");
    assert_eq!((part.attempts, results.marks_of), (2_800, 2_800));
    assert_eq!((part.marks[0].number, part.marks[0].kept, part.marks[9].kept), (1, true, true));
    assert_eq!((results.speedups[0], results.speedups[599]), (0.5, 26.0));
}

async fn the_board_of_a_model_counts_runs_and_what_they_reached(bench: Bench) {
    some_runs(&bench).await;
    let boards = bench.store.model_boards(&AttemptFilter::default()).await.unwrap();
    let names: Vec<(&str, &str, u64)> =
        boards.iter().map(|board| (board.model.as_str(), board.strategy.as_str(), board.attempts)).collect();
    assert_eq!(names, [("lab/a", "stitch", 6), ("lab/a", "beam", 1), ("lab/b", "stitch", 1)]);
    let board = &boards[0];
    assert_eq!((board.runs, board.finished, board.correct_share), (2, 5, Some(0.6)));
    assert_eq!(board.median_best_speedup, Some(2.0), "the other run has no best one");
    assert_eq!(board.fast_p, [0.5, 0.5, 0.0, 0.0], "what is twice as fast is not more than that");
    assert_eq!(board.median_best_speedup_over_fastest, Some(1.0));
    assert_eq!(board.fast_p_over_fastest, [0.0; 4]);
    assert_eq!((board.tokens, board.unpriced_attempts), (600, 1));
    assert!((board.cost_usd - 0.0125).abs() < 1e-9);
    assert_eq!((boards[1].median_best_speedup, boards[1].correct_share), (None, Some(0.0)));
    assert_eq!(boards[1].median_best_speedup_over_fastest, None);
    // Neither an unconfirmed attempt nor one that its run refused is the best. The fastest baseline of the second run is unknown.
    let runs = bench.create(bench.new_campaign(2)).await.runs;
    let of_c = |attempt: IndexedAttempt| IndexedAttempt { model: "lab/c".to_owned(), ..attempt };
    let best = |attempt: IndexedAttempt| IndexedAttempt { is_best: true, ..of_c(attempt) };
    let attempts = vec![best(timed(1, 1.0, true)), of_c(timed(2, 9.0, false)), of_c(timed(3, 1.5, true))];
    let unknown = vec![IndexedAttempt { speedup_over_fastest: None, ..best(timed(1, 4.0, true)) }];
    bench.store.put_index(vec![indexed(&runs[0], attempts), indexed(&runs[1], unknown)]).await.unwrap();
    let boards = bench.store.model_boards(&AttemptFilter::default()).await.unwrap();
    let board = boards.iter().find(|board| board.model == "lab/c").unwrap();
    assert_eq!((board.median_best_speedup, board.fast_p.as_slice()), (Some(2.5), &[0.5; 4][..]));
    assert_eq!(
        (board.median_best_speedup_over_fastest, board.fast_p_over_fastest.as_slice()),
        (Some(0.5), &[0.0; 4][..])
    );
}

async fn totals_of_many_campaigns_are_returned_at_once(bench: Bench) {
    let first = bench.create(bench.new_campaign(2)).await;
    let second = bench.create(bench.new_campaign(1)).await;
    let third = bench.create(bench.new_campaign(1)).await;
    let best = |speedup: f64| IndexedAttempt { is_best: true, ..timed(1, speedup, true) };
    let unpriced = IndexedAttempt { cost_microusd: None, ..timed(2, 7.0, true) };
    let unknown = IndexedAttempt { speedup_over_fastest: None, ..best(3.0) };
    let on_cpu = IndexedRun { target: NeededTarget::Cpu, ..indexed(&first.runs[1], vec![unknown]) };
    let written = vec![
        indexed(&first.runs[0], vec![best(2.0), unpriced]),
        on_cpu,
        indexed(&second.runs[0], vec![attempt(1, AttemptOutcome::NoCode)]),
    ];
    bench.store.put_index(written).await.unwrap();
    let asked = [second.id.clone(), first.id.clone(), third.id];
    let told = bench.store.campaign_bests(&asked).await.unwrap();
    let of = |id: &CampaignId| told.iter().find(|one| one.campaign == *id).unwrap();
    assert_eq!(told.len(), 2, "of the third nothing is known");
    let one = of(&first.id);
    assert_eq!(
        (one.speedup, one.unpriced_attempts),
        (Some(3.0), 1),
        "the best of a run, not the fastest of its attempts"
    );
    assert_eq!((one.speedup_over_fastest, one.geometric_mean.unwrap().powi(2).round()), (Some(1.0), 6.0));
    assert!((one.geometric_mean_over_fastest.unwrap() - 1.0).abs() < 1e-9);
    assert_eq!((one.solved, one.solved_over_fastest), (2, 1), "each mean is over so many runs");
    assert_eq!((of(&second.id).geometric_mean, of(&second.id).geometric_mean_over_fastest), (None, None));
    assert_eq!(one.targets, [NeededTarget::Cpu, NeededTarget::Cuda]);
    assert_eq!((one.cost_microusd, of(&second.id).cost_microusd), (5_000, 2_500), "of those with a price");
    assert_eq!((of(&second.id).speedup, of(&second.id).unpriced_attempts), (None, 0));
}
