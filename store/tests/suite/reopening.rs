//! Tests of the content of a reopened store.

use nightshift_engine::store::{RunStore, ServerStore};

use crate::bench::Bench;

crate::bench::on_both!(acknowledged_changes_survive_reopening, the_virtual_time_goes_on_after_reopening);

async fn acknowledged_changes_survive_reopening(mut bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let before = (bench.store.load_run(&run).await.unwrap(), bench.events(&run).await, bench.step(&run, "a").await);
    bench.reopen().await;
    let after = (bench.store.load_run(&run).await.unwrap(), bench.events(&run).await, bench.step(&run, "a").await);
    assert_eq!(before, after);
    bench.assert_sound().await;
}

/// Otherwise, new campaigns after a restart would come before all others.
async fn the_virtual_time_goes_on_after_reopening(mut bench: Bench) {
    let old = bench.run().await;
    bench.schedule(&old, &["a", "b", "c", "d"]).await;
    let (server, worker) = (bench.server().await, bench.worker().await);
    assert_eq!(bench.claim(&worker, 3).await.len(), 3);
    bench.store.pulse(&server, bench.now(), bench.now().plus_ms(1)).await.unwrap();
    bench.reopen().await;
    let new = bench.run().await;
    bench.schedule(&new, &["first", "second"]).await;
    let keys: Vec<_> = bench.claim(&worker, 9).await.into_iter().map(|step| step.key).collect();
    // A new campaign begins at the current virtual time: the place of `c`, which was leased last.
    assert_eq!(keys, ["first", "d", "second"]);
}
