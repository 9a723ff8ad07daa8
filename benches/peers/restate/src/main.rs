//! Restate: a fresh server started by this process, a service of the Rust SDK in this process, calls through the
//! server's HTTP ingress.

mod ingress;
mod server;
mod service;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use peer_workload::{DriveError, Figure, Load, System, Timing, drive};
use restate_sdk::ingress::{Client, ClientBuildError, ClientError};
use restate_sdk::prelude::{Endpoint, HttpServer};
use tokio::net::TcpListener;

use crate::ingress::LoopbackHttp;
use crate::server::{Server, ServerError};
use crate::service::{Bench, BenchIngressClient};

/// Runs the workload on Restate and prints one line of JSON.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    load: Load,
    /// The restate-server program
    #[arg(long)]
    server: PathBuf,
    /// An empty folder of its own for this run: the server keeps its state there
    #[arg(long)]
    dir: PathBuf,
}

/// What can go wrong here.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("listening for the service: {0}")]
    Listen(std::io::Error),
    #[error("the address of the ingress: {0}")]
    Address(#[from] http::uri::InvalidUri),
    #[error("the client of the ingress: {0}")]
    Client(#[from] ClientBuildError),
    #[error("Restate: {0}")]
    Drive(#[from] DriveError<ClientError>),
    #[error("writing the result: {0}")]
    Print(std::io::Error),
}

#[tokio::main]
async fn main() -> Result<(), BenchError> {
    let options = Options::parse();
    let load = options.load;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(BenchError::Listen)?;
    let service = listener.local_addr().map_err(BenchError::Listen)?;
    tokio::spawn(HttpServer::new(Endpoint::builder().bind(Bench).build()).serve(listener));

    let mut server = Server::start(&options.server, &options.dir).await?;
    let measured = measure(&mut server, service, load).await;
    server.stop().await?;
    let timing = measured?;

    let system = System {
        name: "restate",
        version: format!("{}, Rust SDK 0.13.0", server.version()),
        store: "Restate server (RocksDB), calls over HTTP".to_owned(),
        durability: server.durability().to_owned(),
    };
    Figure::new(system, load, &timing, None).print().map_err(BenchError::Print)
}

async fn measure(server: &mut Server, service: std::net::SocketAddr, load: Load) -> Result<Timing, BenchError> {
    let http = LoopbackHttp::new(load.in_flight);
    server.register(&http, service).await?;
    let client = Arc::new(Client::new(server.ingress().parse()?, http)?);
    run(&client, load, load.warm_up).await?;
    Ok(run(&client, load, load.workflows.get()).await?)
}

async fn run(
    client: &Arc<Client<LoopbackHttp>>,
    load: Load,
    workflows: u64,
) -> Result<Timing, DriveError<ClientError>> {
    let client = Arc::clone(client);
    drive(load.in_flight, workflows, move |input| {
        let bench = BenchIngressClient::from_client((*client).clone());
        async move { bench.add_ten(input).call().await?.into_body() }
    })
    .await
}
