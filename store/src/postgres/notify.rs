//! Telling other processes on the same database, and hearing them: NOTIFY outside of every business transaction,
//! bundled, on a connection of its own; LISTEN on another one.

use std::collections::HashSet;
use std::time::Duration;

use nightshift_engine::store::Notice;
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::{ConnectOptions as _, PgConnection};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::notices::Notices;

/// The channel. Every database has its own.
const CHANNEL: &str = "nightshift";
/// How long notices are collected after some were sent: one message for hundreds of commits. The first ones after a pause
/// are sent at once.
const BUNDLE_MS: u64 = 20;
/// Longest message that Postgres takes, in bytes, with some room.
const MAX_MESSAGE_BYTES: usize = 7_000;
/// Notices of one message; more say only that something changed.
const MAX_NOTICES: usize = 128;
/// How long to wait before a broken connection is made anew.
const RECONNECT_MS: u64 = 500;

/// What travels: who says it, and what.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    from: String,
    said: Vec<Said>,
}

/// A notice on its way. Short names: many have to fit one message.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Said {
    Run(nightshift_protocol::id::RunId),
    Ready(String),
    Timer,
    Unknown,
}

impl From<Notice> for Said {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::RunChanged(run) => Self::Run(run),
            Notice::Ready(route) => Self::Ready(route),
            Notice::TimerSet => Self::Timer,
            Notice::Unknown => Self::Unknown,
        }
    }
}

impl From<Said> for Notice {
    fn from(said: Said) -> Self {
        match said {
            Said::Run(run) => Self::RunChanged(run),
            Said::Ready(route) => Self::Ready(route),
            Said::Timer => Self::TimerSet,
            Said::Unknown => Self::Unknown,
        }
    }
}

/// Sends bundles until everybody who could give more is gone.
pub(crate) async fn tell(connect: PgConnectOptions, from: String, mut bundles: mpsc::Receiver<HashSet<Notice>>) {
    // Sending is a commit for Postgres, but nothing of it is worth a wait for the disk, which the hot path needs.
    let connect = connect.options([("synchronous_commit", "off")]);
    let mut connection: Option<PgConnection> = None;
    let mut next_at = Instant::now();
    while let Some(mut bundle) = bundles.recv().await {
        tokio::time::sleep_until(next_at).await;
        while let Ok(more) = bundles.try_recv() {
            bundle.extend(more);
        }
        for payload in payloads(&from, bundle) {
            if let Err(error) = send(&connect, &mut connection, &payload).await {
                // Others look by themselves before long; nothing is lost but their haste.
                tracing::debug!(error = %error, "other servers could not be told of a commit");
                connection = None;
            }
        }
        next_at = Instant::now() + Duration::from_millis(BUNDLE_MS);
    }
}

async fn send(
    connect: &PgConnectOptions,
    connection: &mut Option<PgConnection>,
    payload: &str,
) -> Result<(), sqlx::Error> {
    let connection = match connection {
        Some(connection) => connection,
        empty => empty.insert(connect.connect().await?),
    };
    sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(payload).execute(connection).await?;
    Ok(())
}

fn payloads(from: &str, bundle: HashSet<Notice>) -> Vec<String> {
    let write = |said: Vec<Said>| serde_json::to_string(&Message { from: from.to_owned(), said }).ok();
    let said: Vec<Said> = bundle.into_iter().map(Said::from).collect();
    if said.len() <= MAX_NOTICES
        && let Some(payload) = write(said.clone())
        && payload.len() <= MAX_MESSAGE_BYTES
    {
        return vec![payload];
    }
    write(vec![Said::Unknown]).into_iter().collect()
}

/// Hears what other processes say, for as long as the task lives. After a gap something may have been missed.
pub(crate) async fn hear(connect: PgConnectOptions, from: String, notices: Notices) {
    loop {
        match listen(&connect).await {
            Ok(mut listener) => {
                notices.send_local(Notice::Unknown);
                while let Ok(Some(notification)) = listener.try_recv().await {
                    for notice in heard(&from, notification.payload()) {
                        notices.send_local(notice);
                    }
                }
            }
            Err(error) => tracing::debug!(error = %error, "notices of other servers cannot be heard"),
        }
        notices.send_local(Notice::Unknown);
        tokio::time::sleep(Duration::from_millis(RECONNECT_MS)).await;
    }
}

async fn listen(connect: &PgConnectOptions) -> Result<PgListener, sqlx::Error> {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_lazy_with(connect.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

/// Our own messages come back to us, too: they were told here when they were committed.
fn heard(from: &str, payload: &str) -> Vec<Notice> {
    match serde_json::from_str::<Message>(payload) {
        Ok(message) if message.from == from => Vec::new(),
        Ok(message) => message.said.into_iter().map(Notice::from).collect(),
        // Of a newer release, or of somebody else.
        Err(_) => vec![Notice::Unknown],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_heard_by_others_and_not_by_its_sender() {
        let said = HashSet::from([Notice::TimerSet, Notice::Ready("agent".to_owned())]);
        let payloads = payloads("a", said.clone());
        let [payload] = payloads.as_slice() else { panic!("{payloads:?}") };
        assert!(heard("a", payload).is_empty());
        assert_eq!(heard("b", payload).into_iter().collect::<HashSet<_>>(), said);
    }

    #[test]
    fn what_does_not_fit_one_message_says_that_something_changed() {
        let many = (0..=MAX_NOTICES).map(|number| Notice::Ready(format!("route {number}"))).collect();
        let long = HashSet::from([Notice::Ready("x".repeat(MAX_MESSAGE_BYTES))]);
        for bundle in [many, long] {
            let payloads = payloads("a", bundle);
            let [payload] = payloads.as_slice() else { panic!("{payloads:?}") };
            assert_eq!(heard("b", payload), [Notice::Unknown]);
        }
        assert_eq!(heard("b", "no message of ours"), [Notice::Unknown]);
    }
}
