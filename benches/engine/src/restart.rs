//! A server with many open runs, killed with `kill -9`: how long until the next process carries their steps on. Before
//! that, what the server takes while nothing happens: memory, and calls to the store.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use sqlx::{Connection as _, PgConnection};

use crate::child::Process;
use crate::figure::{ms, print};
use crate::place::Place;

/// How long nothing happens before the idle load is counted.
const SETTLE: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Open runs
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Steps that the agents hold when the server is killed; all other runs have a step that is ready
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    slots: u64,
    /// How long the idle load is counted, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..))]
    idle_seconds: u64,
}

#[derive(Debug, Serialize)]
struct RestartFigure {
    system: &'static str,
    version: &'static str,
    store: String,
    durability: String,
    open_runs: u64,
    leased_at_kill: u64,
    first_resumed_ms: f64,
    all_resumed_ms: f64,
    /// Until the new process listens.
    listens_ms: f64,
    resident_bytes: u64,
    /// Calls to the store a second, while nothing happens.
    idle_calls_per_second: f64,
    /// The same in transactions of the database; not known of SQLite.
    idle_transactions_per_second: Option<f64>,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    place_is_fresh(&options.place).await?;
    let description = {
        let store = options.place.open().await?;
        let description = options.place.describe(&store).await?;
        store.close().await?;
        description
    };
    // Everything else here waits for processes, on a thread that may block.
    let (figure, place) = tokio::task::spawn_blocking(move || {
        let measured = measure(&options)?;
        Ok::<_, anyhow::Error>((measured, options))
    })
    .await??;
    let Options { runs, slots, .. } = place;
    let Measured { listens, first, all, resident_bytes, calls_per_second, transactions_per_second } = figure;
    print(&RestartFigure {
        system: "nightshift-restart",
        version: env!("CARGO_PKG_VERSION"),
        store: description.store,
        durability: description.durability,
        open_runs: runs,
        leased_at_kill: slots,
        first_resumed_ms: ms(first),
        all_resumed_ms: ms(all),
        listens_ms: ms(listens),
        resident_bytes,
        idle_calls_per_second: calls_per_second,
        idle_transactions_per_second: transactions_per_second,
    })
}

async fn place_is_fresh(place: &Place) -> anyhow::Result<()> {
    place.prepare().await
}

struct Measured {
    listens: Duration,
    first: Duration,
    all: Duration,
    resident_bytes: u64,
    calls_per_second: f64,
    transactions_per_second: Option<f64>,
}

fn measure(options: &Options) -> anyhow::Result<Measured> {
    let arguments = |more: &[&str], number: u64| {
        let mut arguments = vec!["server-child".to_owned()];
        arguments.extend(options.place.arguments());
        arguments.extend(["--slots".to_owned(), options.slots.to_string()]);
        arguments.extend(more.iter().map(|&text| text.to_owned()));
        arguments.push(number.to_string());
        arguments
    };
    let mut server = Process::start(&arguments(&["--create"], options.runs))?;
    server.until("open")?;
    std::thread::sleep(SETTLE);
    // What piled up is read, so that the next word is new.
    let (calls, transactions, seconds) = idle(&mut server, options)?;
    let resident_bytes = server.resident_bytes()?;
    server.kill()?;

    let began = Instant::now();
    let mut server = Process::start(&arguments(&["--expect"], options.runs))?;
    server.until("listens")?;
    let listens = began.elapsed();
    server.until("first")?;
    let first = began.elapsed();
    server.until("all")?;
    let all = began.elapsed();
    server.kill()?;
    Ok(Measured {
        listens,
        first,
        all,
        resident_bytes,
        calls_per_second: calls / seconds,
        transactions_per_second: transactions.map(|count| count / seconds),
    })
}

/// Calls and transactions while nothing happens, and in how many seconds.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn idle(server: &mut Process, options: &Options) -> anyhow::Result<(f64, Option<f64>, f64)> {
    let now = |server: &mut Process| -> anyhow::Result<(Instant, u64)> {
        // A line comes every second; those that piled up meanwhile come at once.
        let mut before = Instant::now();
        loop {
            let calls: u64 = server.until("calls")?.parse()?;
            let at = Instant::now();
            if at.duration_since(before) > Duration::from_millis(500) {
                return Ok((at, calls));
            }
            before = at;
        }
    };
    let (from, calls_before) = now(server)?;
    let transactions_before = transactions(options)?;
    std::thread::sleep(Duration::from_secs(options.idle_seconds));
    let (to, calls_after) = now(server)?;
    let transactions_after = transactions(options)?;
    let seconds = to.duration_since(from).as_secs_f64();
    let calls = calls_after.saturating_sub(calls_before) as f64;
    let transactions = transactions_before.zip(transactions_after).map(|(from, to)| to.saturating_sub(from) as f64);
    Ok((calls, transactions, seconds))
}

/// Transactions of our database so far, asked for in another one, so that the question is not counted.
fn transactions(options: &Options) -> anyhow::Result<Option<u64>> {
    let Some(url) = &options.place.database_url else { return Ok(None) };
    let mut elsewhere: reqwest::Url = url.parse()?;
    let ours = elsewhere.path().trim_start_matches('/').to_owned();
    elsewhere.set_path("/postgres");
    tokio::runtime::Handle::current().block_on(async {
        let mut connection = PgConnection::connect(elsewhere.as_str()).await?;
        let count: i64 =
            sqlx::query_scalar("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1")
                .bind(&ours)
                .fetch_one(&mut connection)
                .await
                .context("the counters of the database")?;
        connection.close().await?;
        Ok(Some(u64::try_from(count)?))
    })
}
