//! Live events: one journal per server, which is filled while a client listens. Each stream reads it at its own speed.
//!
//! The journal records the current state of changed runs, which it learns from notices and from periodic scans of the
//! store. Each event has an increasing position. A newer event about the same object replaces the older one, so the
//! number of objects bounds the journal. A stream is only a position: a slow reader skips outdated events, and the
//! server stores nothing for it.
//!
//! The id of an event names journal and position. If the journal cannot return everything after a position (it was
//! restarted, or dropped events), the stream sends `resync`, and the client reads everything again. No event is lost
//! without that message.

mod journal;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::api::LiveEvent;
use nightshift_protocol::id::CampaignId;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use self::journal::Journal;
pub(crate) use self::journal::Read;
pub(crate) use self::journal::{About, Filter};

/// Maximum number of streams, because each holds a connection.
pub(crate) const MAX_STREAMS: usize = 256;
/// Maximum time that a new stream waits for the journal.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(3);
/// Maximum number of changed campaigns that wait for a look.
const MAX_TOUCHED: usize = 1_000;

/// The journal with its writers and readers.
pub(crate) struct Live {
    /// Distinguishes this journal from those of other servers and processes.
    name: String,
    journal: Mutex<Journal>,
    /// The last position. Readers wait here for new events.
    pub(crate) news: watch::Sender<u64>,
    pub(crate) listeners: watch::Sender<usize>,
    /// Whether the journal is being written.
    pub(crate) follows: watch::Sender<bool>,
    touched: Mutex<HashSet<CampaignId>>,
    pub(crate) touch: Notify,
}

/// Start of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// Right after this position.
    After(u64),
    /// With future events.
    Now,
    /// With future events, although the client asked for earlier ones.
    Lost,
}

impl Live {
    pub(crate) fn new(name: Uuid) -> Self {
        Self {
            name: name.simple().to_string(),
            journal: Mutex::default(),
            news: watch::Sender::new(0),
            listeners: watch::Sender::new(0),
            follows: watch::Sender::new(false),
            touched: Mutex::default(),
            touch: Notify::new(),
        }
    }

    /// Adds a listener, which has to call `leave`. Returns false if there are too many.
    pub(crate) fn enter(&self) -> bool {
        self.listeners.send_if_modified(|listeners| {
            let room = *listeners < MAX_STREAMS;
            if room {
                *listeners += 1;
            }
            room
        })
    }

    pub(crate) fn leave(&self) {
        self.listeners.send_modify(|listeners| *listeners = listeners.saturating_sub(1));
    }

    /// Waits until the journal is written. If the store delays that, the stream begins anyway and later gets `resync`.
    pub(crate) async fn wait_until_followed(&self) {
        let mut follows = self.follows.subscribe();
        // The sender lives as long as `self`.
        let _ = tokio::time::timeout(FOLLOWED_WITHIN, follows.wait_for(|follows| *follows)).await;
    }

    /// Records that limits or shares of this campaign were changed here.
    pub(crate) fn campaign_touched(&self, campaign: &CampaignId) {
        if *self.listeners.borrow() == 0 {
            return;
        }
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        if touched.len() < MAX_TOUCHED {
            touched.insert(campaign.clone());
        }
        drop(touched);
        self.touch.notify_one();
    }

    /// Returns the start of a stream for a client that names this event.
    pub(crate) fn cursor(&self, after: Option<&str>) -> Cursor {
        let Some(after) = after.filter(|text| !text.is_empty()) else { return Cursor::Now };
        match after.split_once('-') {
            Some((name, position)) if name == self.name => position.parse().map_or(Cursor::Lost, Cursor::After),
            _ => Cursor::Lost,
        }
    }

    /// Returns the id of the event at this position.
    pub(crate) fn id(&self, position: u64) -> String {
        format!("{}-{position}", self.name)
    }

    pub(crate) fn last(&self) -> u64 {
        self.journal().last()
    }

    pub(crate) fn read(&self, after: u64, filter: &Filter, limit: usize) -> Read {
        self.journal().after(after, filter, limit)
    }

    pub(crate) fn add(&self, about: About, event: &LiveEvent) {
        let position = self.journal().add(about, event);
        self.news.send_replace(position);
    }

    /// Drops all events and restarts the journal.
    pub(crate) fn restart(&self) {
        let position = self.journal().restart();
        self.news.send_replace(position);
    }

    pub(crate) fn take_touched(&self) -> HashSet<CampaignId> {
        std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_of_another_journal_is_lost() {
        let (here, there) = (Live::new(Uuid::from_u128(1)), Live::new(Uuid::from_u128(2)));
        assert_eq!(here.cursor(Some(&here.id(7))), Cursor::After(7));
        assert_eq!(there.cursor(Some(&here.id(7))), Cursor::Lost);
        for text in ["-", "x", "7", &format!("{}-x", here.name), &format!("{}-", here.name)] {
            assert_eq!(here.cursor(Some(text)), Cursor::Lost, "{text}");
        }
        assert_eq!(here.cursor(None), Cursor::Now);
        assert_eq!(here.cursor(Some("")), Cursor::Now);
    }

    #[test]
    fn a_place_is_free_again_when_its_listener_is_gone() {
        let live = Live::new(Uuid::from_u128(1));
        for _ in 0..MAX_STREAMS {
            assert!(live.enter());
        }
        assert!(!live.enter());
        live.leave();
        assert!(live.enter());
    }
}
