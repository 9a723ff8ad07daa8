//! Accepts and serves connections within limits. It closes connections of clients that send the head of a request too
//! slowly. Connections beyond the limit wait.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use crate::rate_limits::Peer;

/// A connection with timeouts: an operation without progress fails.
type Patient = Pin<Box<TimeoutStream<TcpStream>>>;

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of connections. Further ones wait in the listener's queue.
    pub(crate) connections: usize,
    /// Timeout of the head of a request, including the first one of a connection.
    pub(crate) head: Duration,
    /// Maximum time without progress of a client that has a pending answer.
    pub(crate) standstill: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // More than all held long polls together, and below the usual limit of open files on servers.
        Self { connections: 4_096, head: Duration::from_secs(30), standstill: Duration::from_secs(30) }
    }
}

/// Pause after an error of the machine rather than of one client, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Serves until the shutdown begins and open requests are answered. Dropping it ends every connection.
pub(crate) async fn serve(listener: TcpListener, router: Router, limits: Limits, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let (stream, peer, place) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            // Removes ended connections from the set. Their outcome is logged elsewhere.
            Some(_ended) = connections.join_next(), if !connections.is_empty() => continue,
            taken = take(&listener, &places) => taken,
        };
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.head);
        let stream = patient(stream, limits.standstill);
        let routed = TowerToHyperService::new(router.clone());
        let service = service_fn(move |mut request| {
            request.extensions_mut().insert(peer);
            routed.call(request)
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let watched = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(error = %error, "a connection ended early");
            }
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

fn patient(stream: TcpStream, standstill: Duration) -> Patient {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(standstill));
    Box::pin(stream)
}

/// Accepts the next connection, with its semaphore permit.
async fn take(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, Peer, Option<tokio::sync::OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let place = places.clone().acquire_owned().await.ok();
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                if failing {
                    tracing::info!("connections are accepted again");
                }
                // Small answers must not wait for more bytes.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(error = %error, "TCP_NODELAY could not be set");
                }
                return (stream, Peer(address.ip()), place);
            }
            Err(error) if is_of_one_client(&error) => {}
            Err(error) => {
                if !failing {
                    tracing::error!(error = %error, "a connection could not be accepted; retrying");
                }
                failing = true;
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    /// Timeout of tests.
    const PATIENCE: Duration = Duration::from_mins(1);
    /// Limits that end no connection within a test.
    const FAR: Limits = Limits { connections: 1, head: Duration::from_mins(5), standstill: Duration::from_mins(5) };

    async fn start(limits: Limits) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let router = Router::new().route("/", get(|| async { "here" }));
        (addr, shutdown.clone(), tokio::spawn(serve(listener, router, limits, shutdown)))
    }

    async fn read_to_end(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut text)).await.unwrap().unwrap();
        String::from_utf8(text).unwrap()
    }

    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        read_to_end(stream).await
    }

    #[tokio::test]
    async fn a_client_that_never_ends_the_head_of_its_request_is_sent_away() {
        let (addr, _shutdown, _task) = start(Limits { head: Duration::from_secs(1), ..Limits::default() }).await;
        for begun in ["", "GET / HTTP/1.1\r\nhost: x\r\nx-slow"] {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            assert!(!read_to_end(&mut stream).await.contains("200 OK"), "{begun:?}");
        }
        assert!(ask(&mut TcpStream::connect(addr).await.unwrap()).await.ends_with("here"));
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_waits_for_a_place() {
        let (addr, _shutdown, _task) = start(FAR).await;
        let mut first = TcpStream::connect(addr).await.unwrap();
        first.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut second = TcpStream::connect(addr).await.unwrap();
        second.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut byte = [0];
        assert!(timeout(Duration::from_millis(100), second.read(&mut byte)).await.is_err(), "it was not served");
        drop(first);
        assert!(read_to_end(&mut second).await.ends_with("here"));
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_of_a_long_answer_is_sent_away() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let endless = || async {
            let pieces = futures::stream::repeat_with(|| Ok::<_, io::Error>(vec![0_u8; 64 * 1024]));
            axum::body::Body::from_stream(pieces)
        };
        let router = Router::new().route("/endless", get(endless)).route("/", get(|| async { "here" }));
        let limits = Limits { connections: 1, standstill: Duration::from_millis(100), ..Limits::default() };
        let _task = tokio::spawn(serve(listener, router, limits, CancellationToken::new()));
        let mut idle = TcpStream::connect(addr).await.unwrap();
        idle.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        // It stays open, reads nothing, and holds the only place until the server closes it.
        assert!(ask(&mut TcpStream::connect(addr).await.unwrap()).await.ends_with("here"));
        drop(idle);
    }

    #[tokio::test]
    async fn the_end_waits_for_no_idle_connection() {
        let (addr, shutdown, task) = start(FAR).await;
        let mut idle = TcpStream::connect(addr).await.unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut byte = [0];
        timeout(PATIENCE, idle.read_exact(&mut byte)).await.unwrap().unwrap();
        shutdown.cancel();
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
}
