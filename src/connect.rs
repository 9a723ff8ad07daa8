//! Chooses the server of a command: the named one, the running local one, or a new one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::Health;

use crate::compose::{self, Local, Start, Unfinished};
use crate::context::Context;
use crate::failure::{Failure, INTERRUPTED, Result};
use crate::server_file;

/// Time limit for the health check of a local server.
const LOCAL_ANSWER: Duration = Duration::from_secs(3);
/// Maximum number of tries to open a database that another command uses briefly.
const LOCK_TRIES: u32 = 20;
/// Time between two such tries.
const PAUSE: Duration = Duration::from_millis(150);

/// Another process has opened the database.
const LOCKED: &str = "store.locked";

/// What a command wants to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Purpose {
    /// Read or request something: a new server carries out no runs.
    Ask,
    /// Use the server that carries out runs: none is started. One that is being started again is waited for, local or named.
    Join {
        /// How long no server may answer.
        wait: Duration,
    },
    /// Carry out runs, with a local worker if no server is running.
    Drive {
        /// Where a server of its own listens.
        bind: SocketAddr,
        /// What a server of its own does with unfinished campaigns that it finds.
        unfinished: Unfinished,
    },
}

/// What the local server says, if there is one.
enum Answer {
    /// It is there.
    Well(Box<Session>),
    /// The server answers, but cannot use its database.
    Unwell(Failure),
    /// No server answers, or another program does.
    Nothing,
}

/// A server to talk to.
pub(crate) struct Session {
    /// How to talk to it.
    pub(crate) client: Client,
    /// What it said about itself.
    pub(crate) health: Health,
    /// The server of this process, when it is one.
    pub(crate) own: Option<Local>,
}

impl Session {
    /// Finds or starts the server.
    pub(crate) async fn open(context: &Context, purpose: Purpose) -> Result<Self> {
        let config = context.config();
        if let Some(url) = &config.server.url {
            let client = Client::new(url, config.server.token.clone())?;
            let wait = if let Purpose::Join { wait } = purpose { wait } else { Duration::ZERO };
            return Self::named(context, client, wait).await;
        }
        if let Purpose::Join { wait } = purpose {
            return Self::join(context, wait).await;
        }
        let mut tries = 0;
        loop {
            let trouble = match Self::running(context).await? {
                Answer::Well(found) => return Ok(*found),
                Answer::Unwell(trouble) => Some(trouble),
                Answer::Nothing => None,
            };
            tries += 1;
            match Self::start(context, purpose.clone()).await {
                // Another command may hold the lock briefly, or has not written `server.json` yet.
                Err(failure) if failure.error.code == LOCKED && tries < LOCK_TRIES => {
                    if pause(context).await {
                        return Err(failure);
                    }
                }
                // The error of the running server explains more than the lock.
                Err(failure) if failure.error.code == LOCKED => return Err(trouble.unwrap_or(failure)),
                other => return other,
            }
        }
    }

    /// Waits until a named server answers. Errors that do not pass are returned at once.
    async fn named(context: &Context, client: Client, wait: Duration) -> Result<Self> {
        let until = Instant::now() + wait;
        loop {
            let error = match client.health().await {
                Ok(health) => return Ok(Self { client, health, own: None }),
                Err(error) => error,
            };
            if !error.is_transient() || Instant::now() >= until || pause(context).await {
                return Err(error.into());
            }
        }
    }

    /// Waits until the local server answers.
    async fn join(context: &Context, wait: Duration) -> Result<Self> {
        let until = Instant::now() + wait;
        loop {
            let trouble = match Self::running(context).await? {
                Answer::Well(found) => return Ok(*found),
                Answer::Unwell(trouble) => trouble,
                Answer::Nothing => no_driver(),
            };
            if Instant::now() >= until || pause(context).await {
                return Err(trouble);
            }
        }
    }

    /// Returns a client of the running local server, if it answers.
    pub(crate) async fn running_client(context: &Context) -> Option<Client> {
        match Self::running(context).await {
            Ok(Answer::Well(found)) => Some(found.client),
            Ok(Answer::Unwell(_) | Answer::Nothing) | Err(_) => None,
        }
    }

    /// Returns the running local server, if it answers.
    async fn running(context: &Context) -> Result<Answer> {
        let Some(server) = server_file::read(&context.config().data_dir) else { return Ok(Answer::Nothing) };
        let client = Client::new(&server.address, Some(server.token))?;
        // Only the second call sends the token, because after a crash the port may belong to another server.
        let answer = async {
            let health = client.health().await?;
            client.workers().await?;
            Ok::<_, ClientError>(health)
        };
        Ok(match tokio::time::timeout(LOCAL_ANSWER, answer).await {
            Ok(Ok(health)) => Answer::Well(Box::new(Self { client, health, own: None })),
            Ok(Err(error)) if error.code().starts_with("store.") => Answer::Unwell(error.into()),
            Ok(Err(_)) | Err(_) => Answer::Nothing,
        })
    }

    async fn start(context: &Context, purpose: Purpose) -> Result<Self> {
        let start = match purpose {
            Purpose::Ask | Purpose::Join { .. } => Start::asking(),
            Purpose::Drive { bind, unfinished } => Start { unfinished, ..Start::driving(bind) },
        };
        let local = compose::start(context, start).await?;
        let client = local.client()?;
        let health = client.health().await?;
        Ok(Self { client, health, own: Some(local) })
    }

    /// Returns whether this server carries out runs.
    pub(crate) fn drives(&self) -> bool {
        self.health.drives
    }

    /// Waits until the worker of this process fails; without a worker, waits forever.
    pub(crate) async fn own_failed(&self) -> Failure {
        match &self.own {
            Some(local) => local.failed().await,
            None => std::future::pending().await,
        }
    }

    /// The address of the pages.
    pub(crate) fn address(&self) -> String {
        self.client.address()
    }

    /// Ends a server of its own, everything stored.
    pub(crate) async fn close(self) -> Result<()> {
        match self.own {
            Some(local) => local.shutdown().await,
            None => Ok(()),
        }
    }

    /// Runs a future with the server, and ends the server in any case.
    pub(crate) async fn with<T>(
        context: &Context,
        purpose: Purpose,
        work: impl AsyncFnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let session = Self::open(context, purpose.clone()).await?;
        let done = tokio::select! {
            done = work(&session) => done,
            () = asking_was_interrupted(context, &purpose) => {
                Err(Failure::new(INTERRUPTED, "stopped before the answer was there"))
            }
        };
        let closed = session.close().await;
        let value = done?;
        closed?;
        Ok(value)
    }
}

/// Starts a server. Another command that has opened the database for one question is waited for, and another server is not.
pub(crate) async fn start_server(context: &Context, start: Start) -> Result<Local> {
    let mut tries = 0;
    loop {
        tries += 1;
        let failure = match compose::start(context, start.clone()).await {
            Err(failure) if failure.error.code == LOCKED && tries < LOCK_TRIES => failure,
            other => return other,
        };
        if Session::running_client(context).await.is_some() || pause(context).await {
            return Err(failure);
        }
    }
}

/// Waits a moment before the next try. Returns whether the command was interrupted meanwhile.
async fn pause(context: &Context) -> bool {
    tokio::select! {
        () = tokio::time::sleep(PAUSE) => false,
        () = context.interrupt.cancelled() => true,
    }
}

fn no_driver() -> Failure {
    Failure::new("server.does_not_drive", "no server carries out runs, so that no session goes on")
        .hint("start `nightshift serve` or `nightshift run`, or name a server with --server")
}

/// Ends read-only commands at the first signal. Commands that carry out runs handle signals themselves.
async fn asking_was_interrupted(context: &Context, purpose: &Purpose) {
    match purpose {
        Purpose::Ask | Purpose::Join { .. } => context.interrupt.cancelled().await,
        Purpose::Drive { .. } => std::future::pending().await,
    }
}
