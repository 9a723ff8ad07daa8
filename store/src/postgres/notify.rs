//! Exchanges notices with other processes on the same database.
//!
//! NOTIFY runs outside of every business transaction, in batches, on a connection of its own. LISTEN has another one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use nightshift_engine::store::{ChangedRun, Notice};
use nightshift_protocol::id::{RunId, ServerId};
use nightshift_protocol::time::TimestampMs;
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::{ConnectOptions as _, PgConnection};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::notices::Notices;

/// The channel. Every database has its own.
const CHANNEL: &str = "nightshift";
/// Time to collect notices after a message was sent, so that one message covers hundreds of commits. The first notices
/// after a pause are sent at once.
const BUNDLE_MS: u64 = 20;
/// Maximum length of a message, in bytes, a little below the limit of Postgres.
const MAX_MESSAGE_BYTES: usize = 7_000;
/// Maximum number of notices per message.
const MAX_NOTICES: usize = 100;
/// Maximum number of messages per batch. A larger batch only says that something changed.
const MAX_MESSAGES: usize = 16;
/// Delay before a reconnect, in milliseconds.
const RECONNECT_MS: u64 = 500;

/// A message with its sender.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    from: String,
    said: Vec<CompactNotice>,
    /// Which of the said runs a server owned, by their place in `said`. Earlier releases ignore it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    owners: Vec<(ServerId, Vec<usize>)>,
    /// Which of the said runs wait for no decision, by their place in `said`. Earlier releases neither send nor read it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    decided: Vec<usize>,
    /// When the first of the timers is due. Earlier releases neither send nor read it: their timers may be due at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    timer_at_ms: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A notice in a message. Short names, because many have to fit.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum CompactNotice {
    Run(RunId),
    Ready(String),
    Timer,
    Unknown,
}

impl Message {
    fn new(from: &str, notices: &[Notice]) -> Self {
        let mut owned: HashMap<ServerId, Vec<usize>> = HashMap::new();
        let (mut said, mut decided) = (Vec::new(), Vec::new());
        let mut timer_at: Option<TimestampMs> = None;
        for notice in notices {
            let compact = match notice {
                Notice::RunChanged(run) => {
                    if let Some(owner) = &run.owner {
                        owned.entry(owner.clone()).or_default().push(said.len());
                    }
                    if !run.to_drive {
                        decided.push(said.len());
                    }
                    CompactNotice::Run(run.id.clone())
                }
                Notice::Ready(route) => CompactNotice::Ready(route.clone()),
                Notice::TimerSet(at) => {
                    let is_first = timer_at.is_none();
                    timer_at = timer_at.into_iter().chain([*at]).min();
                    if !is_first {
                        continue;
                    }
                    CompactNotice::Timer
                }
                Notice::Unknown => CompactNotice::Unknown,
            };
            said.push(compact);
        }
        let timer_at_ms = timer_at.map_or(0, |at| at.0);
        Self { from: from.to_owned(), said, owners: owned.into_iter().collect(), decided, timer_at_ms }
    }

    /// Returns the notices of another process.
    fn notices(self) -> Vec<Notice> {
        let mut owner_of: HashMap<usize, ServerId> = HashMap::new();
        for (owner, places) in self.owners {
            owner_of.extend(places.into_iter().map(|place| (place, owner.clone())));
        }
        let decided: HashSet<usize> = self.decided.into_iter().collect();
        let notice = |(place, said)| match said {
            CompactNotice::Run(id) => {
                let to_drive = !decided.contains(&place);
                Notice::RunChanged(ChangedRun { id, owner: owner_of.remove(&place), to_drive })
            }
            CompactNotice::Ready(route) => Notice::Ready(route),
            CompactNotice::Timer => Notice::TimerSet(TimestampMs(self.timer_at_ms)),
            CompactNotice::Unknown => Notice::Unknown,
        };
        self.said.into_iter().enumerate().map(notice).collect()
    }
}

/// Sends batches until all senders are dropped.
pub(crate) async fn send_batches(
    connect: PgConnectOptions,
    from: String,
    mut bundles: mpsc::Receiver<HashSet<Notice>>,
) {
    // For Postgres a NOTIFY is a commit, but it needs no wait for the disk, which the hot path needs.
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
                // Other servers poll anyway, so a lost message only delays them.
                tracing::debug!(error = %error, "notices could not be sent to other servers");
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
    let write = |notices: &[Notice]| serde_json::to_string(&Message::new(from, notices)).ok();
    let notices: Vec<Notice> = bundle.into_iter().collect();
    let mut left: Vec<&[Notice]> = notices.chunks(MAX_NOTICES).collect();
    let mut payloads = Vec::new();
    while let Some(chunk) = left.pop() {
        match write(chunk).filter(|payload| payload.len() <= MAX_MESSAGE_BYTES) {
            Some(payload) => payloads.push(payload),
            None => left.extend(<[_; 2]>::from(chunk.split_at(chunk.len() / 2))),
        }
        // A notice that fits into no message is halved until here.
        if payloads.len() + left.len() > MAX_MESSAGES {
            return write(&[Notice::Unknown]).into_iter().collect();
        }
    }
    payloads
}

/// Receives messages of other processes while the task lives. After a reconnect, messages may have been lost.
pub(crate) async fn receive(connect: PgConnectOptions, from: String, notices: Notices) {
    loop {
        match listen(&connect).await {
            Ok(mut listener) => {
                notices.send_local(Notice::Unknown);
                while let Ok(Some(notification)) = listener.try_recv().await {
                    for notice in parse(&from, notification.payload()) {
                        notices.send_local(notice);
                    }
                }
            }
            Err(error) => tracing::debug!(error = %error, "notices of other servers cannot be received"),
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

/// Parses a message. Our own messages return too and are skipped, because they were broadcast at the commit.
fn parse(from: &str, payload: &str) -> Vec<Notice> {
    match serde_json::from_str::<Message>(payload) {
        Ok(message) if message.from == from => Vec::new(),
        Ok(message) => message.notices(),
        // A message of a newer release or of another program.
        Err(_) => vec![Notice::Unknown],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reaches_others_and_not_its_sender() {
        let run = |number, owner: Option<u128>, to_drive| {
            let owner = owner.map(|owner| ServerId::from_uuid(uuid::Uuid::from_u128(owner)));
            let id = RunId::from_uuid(uuid::Uuid::from_u128(number));
            Notice::RunChanged(ChangedRun { id, owner, to_drive })
        };
        let runs = [run(1, Some(7), true), run(2, Some(7), false), run(3, None, false), run(3, None, true)];
        let others = [Notice::TimerSet(TimestampMs(5)), Notice::Ready("agent".to_owned())];
        let said: HashSet<Notice> = runs.into_iter().chain(others).collect();
        let payloads = payloads("a", said.clone());
        let [payload] = payloads.as_slice() else { panic!("{payloads:?}") };
        assert!(parse("a", payload).is_empty());
        assert_eq!(parse("b", payload).into_iter().collect::<HashSet<_>>(), said);
    }

    #[test]
    fn messages_of_the_release_without_owners_are_understood() {
        let id = RunId::from_uuid(uuid::Uuid::from_u128(1));
        let told = parse("b", &format!(r#"{{"from":"a","said":[{{"run":"{id}"}},"timer"]}}"#));
        let run = Notice::RunChanged(ChangedRun::undecided(id, None));
        assert_eq!(told, [run, Notice::TimerSet(TimestampMs(0))], "it may be due at once");
    }

    #[test]
    fn the_first_of_several_timers_is_sent_in_a_form_that_earlier_releases_read() {
        let timers = [7, 5, 9].map(|at| Notice::TimerSet(TimestampMs(at)));
        let payloads = payloads("a", HashSet::from(timers));
        assert_eq!(payloads, [r#"{"from":"a","said":["timer"],"timer_at_ms":5}"#]);
        assert_eq!(parse("b", &payloads[0]), [Notice::TimerSet(TimestampMs(5))]);
    }

    #[test]
    fn a_large_batch_is_sent_in_several_messages() {
        let run = |number: usize| {
            let id = |number| uuid::Uuid::from_u128(u128::try_from(number).unwrap_or_default());
            let owner = Some(ServerId::from_uuid(id(number % 3)));
            let id = RunId::from_uuid(id(number));
            Notice::RunChanged(ChangedRun { id, owner, to_drive: number.is_multiple_of(2) })
        };
        let runs: HashSet<Notice> = (0..MAX_NOTICES * MAX_MESSAGES).map(run).collect();
        let routes: HashSet<Notice> = (0..50).map(|n| Notice::Ready(format!("{n}{}", "x".repeat(999)))).collect();
        for told in [runs, routes] {
            let payloads = payloads("a", told.clone());
            assert!(payloads.iter().all(|payload| payload.len() <= MAX_MESSAGE_BYTES));
            assert!((2..=MAX_MESSAGES).contains(&payloads.len()));
            assert_eq!(payloads.iter().flat_map(|payload| parse("b", payload)).collect::<HashSet<_>>(), told);
        }
    }

    #[test]
    fn a_batch_beyond_all_messages_becomes_an_unknown_notice() {
        let many = (0..=MAX_NOTICES * MAX_MESSAGES).map(|number| Notice::Ready(format!("route {number}"))).collect();
        let long = HashSet::from([Notice::Ready("x".repeat(MAX_MESSAGE_BYTES))]);
        for bundle in [many, long] {
            let payloads = payloads("a", bundle);
            let [payload] = payloads.as_slice() else { panic!("{payloads:?}") };
            assert_eq!(parse("b", payload), [Notice::Unknown]);
        }
        assert_eq!(parse("b", "no message of ours"), [Notice::Unknown]);
    }
}
