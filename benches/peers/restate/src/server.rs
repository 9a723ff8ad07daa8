//! A Restate server of our own: one node, fresh folder, loopback only, telemetry off, everything else as shipped.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use restate_sdk::ingress::RequestExecutor as _;
use tokio::process::{Child, Command};

use crate::ingress::{ExchangeError, LoopbackHttp};

/// How long a fresh server may take until it answers and takes a service.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// What can go wrong with the server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{} is not empty: give this run a folder of its own", .0.display())]
    NotEmpty(PathBuf),
    #[error("{} does not say `{key}`: is it restate-server 1.7?", program.display())]
    Silent { program: PathBuf, key: &'static str },
    #[error("the server has fsync of its write-ahead log off: {0}")]
    NotDurable(String),
    #[error("the server ended by itself ({status}): see {}", log.display())]
    Ended { status: std::process::ExitStatus, log: PathBuf },
    #[error("the server was not ready within {} s ({last}): see {}", READY_WITHIN.as_secs(), log.display())]
    NotReady { last: String, log: PathBuf },
    #[error("asking the server: {0}")]
    Request(#[from] http::Error),
    #[error("asking the server: {0}")]
    Exchange(#[from] ExchangeError),
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    admin: SocketAddr,
    ingress: SocketAddr,
    version: String,
    durability: String,
    log: PathBuf,
}

impl Server {
    /// Starts the server in this empty folder and waits until it answers.
    pub(crate) async fn start(program: &Path, dir: &Path) -> Result<Self, ServerError> {
        let io = |what: &str| {
            let what = format!("{what} in {}", dir.display());
            move |source| ServerError::Io { what, source }
        };
        std::fs::create_dir_all(dir).map_err(io("making the folder"))?;
        if std::fs::read_dir(dir).map_err(io("reading the folder"))?.next().is_some() {
            return Err(ServerError::NotEmpty(dir.to_owned()));
        }
        let [node, admin, ingress] = free_ports().map_err(io("finding free ports"))?;
        let config = dir.join("restate.toml");
        std::fs::write(&config, settings(dir, node, admin, ingress)).map_err(io("writing the settings"))?;

        let version = ask(program, &["--version"]).await?;
        let version =
            version.split_whitespace().last().ok_or(ServerError::Silent { program: program.into(), key: "version" })?;
        let effective = ask(program, &["--dump-config", "--config-file", &config.to_string_lossy()]).await?;
        let durability = durability(program, &effective)?;

        let log = dir.join("server.log");
        let out = File::create(&log).map_err(io("making the log"))?;
        let err = out.try_clone().map_err(io("making the log"))?;
        let child = Command::new(program)
            .args(["--no-logo", "--config-file"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .kill_on_drop(true)
            .spawn()
            .map_err(io("starting the server"))?;
        Ok(Self { child, admin, ingress, version: version.to_owned(), durability, log })
    }

    /// Makes the service at this address known to the server, as soon as the server is ready for it.
    pub(crate) async fn register(&mut self, http: &LoopbackHttp, service: SocketAddr) -> Result<(), ServerError> {
        let body = Bytes::from(serde_json::json!({ "uri": format!("http://{service}") }).to_string());
        let deployments = format!("http://{}/deployments", self.admin);
        self.until_ready(http, Method::POST, &deployments, body).await?;
        let health = format!("{}/restate/health", self.ingress());
        self.until_ready(http, Method::GET, &health, Bytes::new()).await
    }

    /// Repeats a request until it succeeds.
    async fn until_ready(
        &mut self,
        http: &LoopbackHttp,
        method: Method,
        uri: &str,
        body: Bytes,
    ) -> Result<(), ServerError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let request = Request::builder()
                .method(method.clone())
                .uri(uri)
                .header("content-type", "application/json")
                .body(body.clone())?;
            let last = match http.execute(request).await {
                Ok(answer) if answer.status().is_success() => return Ok(()),
                Ok(answer) => format!("{}: {}", answer.status(), String::from_utf8_lossy(answer.body())),
                Err(error) => error.to_string(),
            };
            if let Some(status) = self.child.try_wait().map_err(lost)? {
                return Err(ServerError::Ended { status, log: self.log.clone() });
            }
            if Instant::now() > deadline {
                return Err(ServerError::NotReady { last, log: self.log.clone() });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends the server at once: its folder is thrown away.
    pub(crate) async fn stop(&mut self) -> Result<(), ServerError> {
        self.child.kill().await.map_err(lost)
    }

    /// Where calls go in.
    pub(crate) fn ingress(&self) -> String {
        format!("http://{}", self.ingress)
    }

    /// The server's own version.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The durability settings as the server reports them.
    pub(crate) fn durability(&self) -> &str {
        &self.durability
    }
}

fn lost(source: std::io::Error) -> ServerError {
    ServerError::Io { what: "watching the server".to_owned(), source }
}

/// Returns three free ports, all held until all are known.
fn free_ports() -> std::io::Result<[SocketAddr; 3]> {
    let [a, b, c] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0"));
    Ok([a?.local_addr()?, b?.local_addr()?, c?.local_addr()?])
}

fn settings(dir: &Path, node: SocketAddr, admin: SocketAddr, ingress: SocketAddr) -> String {
    format!(
        r#"base-dir = {dir}
listen-mode = "tcp"
bind-address = "{node}"
advertised-address = "http://{node}"
disable-telemetry = true
log-filter = "warn"
log-disable-ansi-codes = true

[admin]
bind-address = "{admin}"
disable-web-ui = true

[ingress]
bind-address = "{ingress}"
"#,
        dir = serde_json::Value::from(dir.to_string_lossy()),
    )
}

/// Runs the program for what it prints.
async fn ask(program: &Path, arguments: &[&str]) -> Result<String, ServerError> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .await
        .map_err(|source| ServerError::Io { what: format!("running {}", program.display()), source })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads back whether the log server syncs its write-ahead log, from the settings in force.
fn durability(program: &Path, effective: &str) -> Result<String, ServerError> {
    const KEY: &str = "rocksdb-disable-wal-fsync";
    let section = effective.split("[log-server]").nth(1).unwrap_or_default();
    let line = section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .find(|line| line.starts_with(KEY))
        .ok_or(ServerError::Silent { program: program.into(), key: KEY })?;
    if line.ends_with("= false") {
        Ok(format!("log server {line}"))
    } else {
        Err(ServerError::NotDurable(line.to_owned()))
    }
}
