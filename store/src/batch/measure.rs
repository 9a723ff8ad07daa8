use std::sync::Arc;
use std::time::Instant;
use nightshift_engine::store::*;
use nightshift_protocol::id::*;
use nightshift_protocol::machine::Needs;
use super::bench::{advance, claim, completed, ending, order};
use crate::connection::Connection;
use crate::memory::Memory;
use crate::notices::Notices;
use crate::value::values;
use crate::writer::{self, Surroundings, Writer, Source};

async fn one_run(writer: Writer, run: RunId, worker: WorkerId, begun: Arc<tokio::sync::Mutex<Vec<u64>>>) {
    let t = Instant::now();
    let mut first = advance(&run, 0, vec![order("0")]);
    first.folded_seq = 1;
    let _ = Needs::agent();
    let group = vec![Change::Advance(Box::new(first)), Change::Claim(claim(&worker, 1))];
    let mut answers = writer.commit(group).await.unwrap();
    let Some(Changed::Claimed(mut steps)) = answers.pop() else { panic!() };
    let mut seq = 2; let mut rev = 1;
    let mut mine = steps.pop().expect("a step");
    // The claimed step may be of another run: only with as many runs as claims are they the same number.
    for n in 1..=10u32 {
        let report = Change::Report(completed(&mine));
        let run = mine.run.clone();
        let _ = run;
        seq += 1;
        let mut next = if n < 10 { advance(&mine.run, rev, vec![order(&n.to_string())]) } else { ending(&mine.run, rev) };
        next.folded_seq = seq;
        let mut group = vec![report, Change::Advance(Box::new(next))];
        if n < 10 { group.push(Change::Claim(claim(&worker, 1))); }
        let mut answers = writer.commit(group).await.unwrap();
        if n < 10 {
            let Some(Changed::Claimed(mut steps)) = answers.pop() else { panic!() };
            let Some(Changed::Advanced(a)) = answers.pop() else { panic!() };
            assert!(a.is_committed(), "{a:?}");
            seq += 1; rev += 1;
            mine = steps.pop().expect("a step");
        }
    }
    begun.lock().await.push(t.elapsed().as_micros() as u64);
}

async fn measure<S: Source + 'static>(name: &str, sources: Vec<S>, mut setup: Connection, total: usize, inflight: usize) {
    setup.execute("INSERT INTO campaign (id, public_id, name, spec, created_at_ms) VALUES (1, 'cmp_00000000000000000000000000000001', 'n', '{}', 0)", values![]).await.unwrap();
    setup.execute("INSERT INTO campaign_clock (campaign_id, vtime) VALUES (1, 0)", values![]).await.unwrap();
    let mut runs = Vec::new(); 
    setup.begin().await.unwrap();
    for n in 0..total {
        let run = RunId::from_uuid(uuid::Uuid::from_u128(1_000_000 + n as u128));
        setup.execute("INSERT INTO run (public_id, campaign_id, status, last_seq, wake_seq, digest, created_at_ms) VALUES ($1, 1, 'running', 1, 1, '{}', 0)", values![run.as_str()]).await.unwrap();
        runs.push(run);
    }
    let mut workers = vec![];
    for n in 0..inflight {
        let worker = WorkerId::from_uuid(uuid::Uuid::from_u128(50 + n as u128));
        setup.execute("INSERT INTO worker (public_id, name, embedded, offers, version) VALUES ($1, 'w', 0, '{}', '1')", values![worker.as_str()]).await.unwrap();
        workers.push(worker);
    }
    setup.commit().await.unwrap();
    drop(setup);
    let around = Surroundings { memory: Arc::new(Memory::default()), notices: Notices::local(), place: crate::failure::Place::Server("x".into()) };
    let (writer, receiver) = Writer::new();
    let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
    for source in sources { tokio::spawn(writer::run(source, around.clone(), receiver.clone())); }
    let queue = Arc::new(std::sync::Mutex::new(runs));
    let times = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let started = Instant::now();
    let tasks: Vec<_> = workers.into_iter().map(|w| { let (writer, queue, times) = (writer.clone(), queue.clone(), times.clone());
        tokio::spawn(async move { loop { let run = queue.lock().unwrap().pop(); let Some(run) = run else { break }; one_run(writer.clone(), run, w.clone(), times.clone()).await; } }) }).collect();
    for t in tasks { t.await.unwrap(); }
    let e = started.elapsed().as_secs_f64();
    let mut times = times.lock().await.clone(); times.sort_unstable();
    println!("{name} inflight {inflight}: {:.0} steps/s, run p50 {:.2} ms p99 {:.2} ms", (total * 10) as f64 / e, times[times.len()/2] as f64 / 1e3, times[times.len()*99/100] as f64/1e3);
    let v: Vec<u64> = super::STAGES.iter().map(|x| x.swap(0, std::sync::atomic::Ordering::Relaxed)).collect();
    let f = v[0].max(1); let names = ["", "workers+routes", "load", "apply", "campaigns", "claims", "write"];
    print!("   flushes {f}, {:.1} steps each, flush {:.0} us;", (total*10) as f64 / f as f64, e * 1e6 / f as f64);
    for n in 1..7 { print!(" {} {}", names[n], v[n] / f); }
    println!();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measure_sqlite() {
    for (total, inflight) in [(60, 1), (2000, 64), (4000, 256)] {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let opened = crate::sqlite::open::open(folder.path(), &Default::default()).await.unwrap();
        let setup = Connection::SqlitePooled(opened.readers.acquire().await.unwrap());
        drop(setup);
        let mut c = Connection::Sqlite(Box::new(opened.writer));
        let _ = &mut c;
        // setup through a second writer
        let other = { use sqlx::ConnectOptions; sqlx::sqlite::SqliteConnectOptions::new().filename(&opened.database).connect().await.unwrap() };
        let Connection::Sqlite(w) = c else { panic!() };
        measure("sqlite", vec![crate::sqlite::source::Sole::new(*w)], Connection::Sqlite(Box::new(other)), total, inflight).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measure_postgres() {
    for (total, inflight, tasks) in [(60, 1, 1), (1000, 64, 1), (1000, 64, 2), (2000, 256, 1), (2000, 256, 2)] {
        let database = nightshift_testbed::postgres::Cluster::shared().create_database().unwrap();
        let opened = crate::postgres::open::open(&database.url, &Default::default(), 4).await.unwrap();
        let setup = Connection::Postgres(opened.hot.acquire().await.unwrap());
        let sources = (0..tasks).map(|_| crate::postgres::source::Kept::new(opened.hot.clone())).collect();
        measure(&format!("postgres {tasks} tasks"), sources, setup, total, inflight).await;
    }
}
