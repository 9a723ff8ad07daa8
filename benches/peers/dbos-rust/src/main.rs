//! DBOS for Rust: workflows and steps inside this process, checkpoints in Postgres.

mod cost;

use dbos::{Config, DBOS, WorkflowRef};
use peer_workload::{DriveError, Figure, Load, PostgresCost, STEPS_PER_WORKFLOW, System, Timing, drive};

use clap::Parser;

/// Runs the workload on DBOS for Rust and prints one line of JSON.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    load: Load,
    /// A database of its own for this run: DBOS lays its schema there
    #[arg(long)]
    database_url: String,
    /// Connections in the pool of DBOS
    #[arg(long, default_value_t = 20)]
    connections: u32,
}

/// What can go wrong here.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error("DBOS: {0}")]
    Dbos(#[from] dbos::Error),
    #[error("DBOS: {0}")]
    Drive(#[from] DriveError<dbos::Error>),
    #[error("reading the database's counters: {0}")]
    Counters(#[from] sqlx::Error),
    #[error("other connections to the database stay open: give this run a database of its own")]
    BackendsRemain,
    #[error("the database's counters ran backwards: give this run a server of its own")]
    CountersFell,
    #[error("writing the result: {0}")]
    Print(#[from] std::io::Error),
}

#[tokio::main]
async fn main() -> Result<(), BenchError> {
    let options = Options::parse();
    let load = options.load;
    let engine = DBOS::new(Config {
        app_version: Some("1".to_owned()),
        max_connections: options.connections,
        ..Config::new("peer-bench", &options.database_url)
    });
    let add_ten = engine.register_workflow("add-ten", |mut n: u64| async move {
        for _ in 0..STEPS_PER_WORKFLOW {
            n = dbos::step("add-one", || async move { dbos::Result::Ok(n + 1) }).await?;
        }
        dbos::Result::Ok(n)
    })?;

    // The first launch lays the schema. A backend hands in its share of the statistics at the latest when it ends, so
    // both readings are taken while the engine is down: the cost is exact but for the few commits of the launch.
    engine.launch().await?;
    engine.shutdown().await;
    let before = cost::read(&options.database_url).await?;
    engine.launch().await?;
    run(&add_ten, load, load.warm_up).await?;
    let timing = run(&add_ten, load, load.workflows.get()).await?;
    engine.shutdown().await;
    let after = cost::read(&options.database_url).await?;

    let between = |from: u64, to: u64| to.checked_sub(from).ok_or(BenchError::CountersFell);
    let spent = PostgresCost {
        wal_bytes: between(before.wal_bytes, after.wal_bytes)?,
        commits: between(before.commits, after.commits)?,
        steps: (load.warm_up + load.workflows.get()) * STEPS_PER_WORKFLOW,
    };
    let system = System {
        name: "dbos-rust",
        version: "0.5.0".to_owned(),
        store: format!("Postgres {}, pool of {}", after.version, options.connections),
        durability: after.durability,
    };
    Figure::new(system, load, &timing, Some(spent)).print()?;
    Ok(())
}

async fn run(workflow: &WorkflowRef<u64, u64>, load: Load, workflows: u64) -> Result<Timing, DriveError<dbos::Error>> {
    let workflow = workflow.clone();
    drive(load.in_flight, workflows, move |input| {
        let workflow = workflow.clone();
        async move { workflow.run(input).await }
    })
    .await
}
