//! One stream: a position in the journal, and the frames after it. Frames are created on demand, so nothing accumulates
//! for a slow reader.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures::Stream;
use nightshift_protocol::api::{LIVE_HEARTBEAT_MS, LiveEvent, ResyncReason};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::access::Standing;
use crate::live::{Cursor, Filter, Live, Read};
use crate::shared::Shared;

/// Maximum number of events per chunk.
const MAX_EVENTS_PER_PIECE: usize = 64;
/// Maximum number of events per chunk after a pause.
const MAX_EVENTS_AFTER_PAUSE: usize = 1_024;
/// Delay before a browser reconnects, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// Maximum duration of a stream. A reconnecting client has to authenticate again.
const LONGEST: Duration = Duration::from_mins(5);

/// An open stream.
struct Reader {
    shared: Arc<Shared>,
    live: Arc<Live>,
    filter: Filter,
    position: u64,
    news: watch::Receiver<u64>,
    /// The first message.
    first: Option<String>,
    heartbeat: Instant,
    /// Minimum time between two bursts of events. Events in between are batched.
    pause: Duration,
    /// No event is sent before this time.
    rests_until: Option<Instant>,
    /// End of the stream.
    end: Instant,
    /// The reader's credentials. The stream ends with them.
    standing: Option<Standing>,
    over: bool,
}

/// Why an idle stream continues.
enum WakeReason {
    /// New events in the journal.
    News,
    /// A heartbeat is due.
    Heartbeat,
    /// A check of the reader's credentials is due.
    Standing,
    /// The stream has to end.
    End,
}

/// Counts as a listener while it lives.
struct Place(Arc<Live>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Opens a stream at the cursor. Returns none if there are too many.
pub(crate) fn stream(
    shared: Arc<Shared>,
    live: Arc<Live>,
    filter: Filter,
    after: Option<&str>,
    pause: Duration,
    valid_for: Option<Duration>,
    standing: Option<Standing>,
) -> Option<impl Stream<Item = Result<Bytes, Infallible>> + use<>> {
    if !live.enter() {
        return None;
    }
    let place = Place(live.clone());
    let after = after.map(str::to_owned);
    let end = Instant::now() + valid_for.map_or(LONGEST, |valid_for| valid_for.min(LONGEST));
    let begun = async move {
        // Events are recorded from here on.
        live.wait_until_followed().await;
        let reader = Reader { pause, ..Reader::new(shared, live, filter, after.as_deref(), end, standing) };
        futures::stream::unfold((reader, place), async |(mut reader, place)| {
            let piece = reader.next().await?;
            Some((Ok(Bytes::from(piece)), (reader, place)))
        })
    };
    Some(futures::FutureExt::flatten_stream(begun))
}

impl Reader {
    fn new(
        shared: Arc<Shared>,
        live: Arc<Live>,
        filter: Filter,
        after: Option<&str>,
        end: Instant,
        standing: Option<Standing>,
    ) -> Self {
        // Before reading the journal, so that no event in between is missed.
        let news = live.news.subscribe();
        let last = live.last();
        let (position, event) = match live.cursor(after) {
            Cursor::After(position) => match live.read(position, &filter, 0) {
                Read::Found(..) => (position, opened(true)),
                Read::Gone => (last, LiveEvent::Resync { reason: ResyncReason::TooOld }),
            },
            Cursor::Now => (last, opened(false)),
            Cursor::Lost => (last, LiveEvent::Resync { reason: ResyncReason::OtherServer }),
        };
        let mut first = format!("retry: {RETRY_MS}\n");
        frame(&mut first, &live, Some(position), &event);
        Self {
            filter,
            position,
            news,
            first: Some(first),
            heartbeat: next_heartbeat(),
            pause: Duration::ZERO,
            rests_until: None,
            end,
            standing,
            over: false,
            shared,
            live,
        }
    }

    /// Returns the next chunk, or none at the end.
    async fn next(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            self.news.mark_unchanged();
            let live = &self.live;
            if self.shared.shutdown.is_cancelled() {
                self.over = true;
                let mut text = String::new();
                frame(&mut text, live, None, &LiveEvent::Closing);
                return Some(text);
            }
            let read = match self.resting() {
                Some(_) => Read::Found(Vec::new(), self.position),
                None => live.read(self.position, &self.filter, self.most()),
            };
            match read {
                Read::Gone => {
                    self.position = live.last();
                    let mut text = String::new();
                    frame(&mut text, live, Some(self.position), &LiveEvent::Resync { reason: ResyncReason::TooOld });
                    return Some(text);
                }
                Read::Found(events, looked) => {
                    self.position = looked;
                    if !events.is_empty() {
                        self.heartbeat = next_heartbeat();
                        self.rests_until = (!self.pause.is_zero()).then(|| Instant::now() + self.pause);
                        let mut text = String::new();
                        for (position, entry) in events {
                            raw_frame(&mut text, Some(&live.id(position)), entry.name, &entry.data);
                        }
                        return Some(text);
                    }
                }
            }
            match self.wait_for_wake_up().await {
                WakeReason::News => {}
                WakeReason::End => return None,
                WakeReason::Standing => {
                    if let Some(standing) = &mut self.standing
                        && !standing.holds().await
                    {
                        return None;
                    }
                }
                WakeReason::Heartbeat => {
                    self.heartbeat = next_heartbeat();
                    let mut text = String::new();
                    // The id contains the current position, so a stream with few events can be resumed as long as any
                    // other.
                    let heartbeat = LiveEvent::Heartbeat { at: self.shared.clock.now() };
                    frame(&mut text, &self.live, Some(self.position), &heartbeat);
                    return Some(text);
                }
            }
        }
    }

    /// Returns the time before which nothing is sent, if it is in the future.
    fn resting(&self) -> Option<Instant> {
        self.rests_until.filter(|until| Instant::now() < *until)
    }

    /// Returns the maximum number of events of the next chunk.
    fn most(&self) -> usize {
        if self.pause.is_zero() { MAX_EVENTS_PER_PIECE } else { MAX_EVENTS_AFTER_PAUSE }
    }

    async fn wait_for_wake_up(&mut self) -> WakeReason {
        let resting = self.resting();
        let rested = async {
            match resting {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let standing = async {
            match &mut self.standing {
                Some(standing) => standing.until_due().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shared.shutdown.cancelled() => WakeReason::News,
            () = tokio::time::sleep_until(self.end) => WakeReason::End,
            // The sender lives as long as the server.
            _ = self.news.changed(), if resting.is_none() => WakeReason::News,
            () = rested => WakeReason::News,
            () = tokio::time::sleep_until(self.heartbeat) => WakeReason::Heartbeat,
            () = standing => WakeReason::Standing,
        }
    }
}

fn opened(resumed: bool) -> LiveEvent {
    LiveEvent::Opened { resumed, heartbeat_ms: LIVE_HEARTBEAT_MS }
}

fn next_heartbeat() -> Instant {
    Instant::now() + Duration::from_millis(LIVE_HEARTBEAT_MS)
}

fn frame(text: &mut String, live: &Live, position: Option<u64>, event: &LiveEvent) {
    let data = serde_json::to_string(event).unwrap_or_default();
    raw_frame(text, position.map(|position| live.id(position)).as_deref(), event.name(), &data);
}

fn raw_frame(text: &mut String, id: Option<&str>, name: &str, data: &str) {
    // Writing to a string does not fail, and the JSON has no line breaks.
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    let _ = write!(text, "event: {name}\ndata: {data}\n\n");
}
