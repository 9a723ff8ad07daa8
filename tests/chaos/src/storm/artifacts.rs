//! Clients that store artifacts and read them, and keep account of those that were acknowledged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_client::Client;
use nightshift_protocol::artifact::ArtifactHash;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::violation::Violation;

/// Pause between two actions.
const TICK: Duration = Duration::from_millis(150);
/// Actions at the same time.
const AT_ONCE: usize = 4;
/// Maximum duration of an action: one that meets a broken object store is given up.
const MAX_ACTION: Duration = Duration::from_secs(30);
/// Sizes in bytes: above the largest piece that stays in the database.
const SIZES: std::ops::Range<usize> = 5_000..40_000;

/// An artifact of the storm: its number says its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Artifact {
    seed: u64,
    number: u64,
}

impl Artifact {
    /// Returns the bytes.
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed ^ self.number.rotate_left(32));
        let mut bytes = vec![0; random.random_range(SIZES)];
        random.fill_bytes(&mut bytes);
        bytes
    }
}

/// What was acknowledged.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) stored: Vec<Artifact>,
    /// Uploads of artifacts that were stored already.
    pub(super) stored_again: u32,
    /// Reads that returned the bytes.
    pub(super) read: u32,
    pub(super) violations: Vec<Violation>,
}

/// The clients.
pub(super) struct Artifacts {
    client: Client,
    seed: u64,
    book: Mutex<Book>,
    stop: CancellationToken,
}

/// What a client does.
#[derive(Debug, Clone, Copy)]
enum Action {
    Store(Artifact),
    StoreAgain(Artifact),
    Read(Artifact),
}

impl Artifacts {
    pub(super) fn new(client: Client, seed: u64) -> Self {
        Self { client, seed, book: Mutex::default(), stop: CancellationToken::new() }
    }

    /// Nothing more is stored or read.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// The account.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs random actions until it is stopped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed.wrapping_add(2));
        let mut acting = JoinSet::new();
        let mut number = 0;
        while !self.stop.is_cancelled() {
            while acting.try_join_next().is_some() {}
            if acting.len() < AT_ONCE {
                number += 1;
                let action = self.choose(&mut random, number);
                let this = self.clone();
                acting.spawn(async move {
                    // The next action does not wait for one that is given up.
                    let _ = tokio::time::timeout(MAX_ACTION, this.act(action)).await;
                });
            }
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
        while acting.join_next().await.is_some() {}
    }

    fn choose(&self, random: &mut ChaCha8Rng, number: u64) -> Action {
        let (dice, place) = (random.random_range(0..100), random.random::<u64>());
        let book = self.book();
        let count = u64::try_from(book.stored.len()).unwrap_or(u64::MAX);
        let known = place.checked_rem(count).and_then(|at| book.stored.get(usize::try_from(at).ok()?));
        match (known, dice) {
            (Some(known), 0..=14) => Action::StoreAgain(*known),
            (Some(known), 15..=54) => Action::Read(*known),
            _ => Action::Store(Artifact { seed: self.seed, number }),
        }
    }

    async fn act(&self, action: Action) {
        match action {
            Action::Store(artifact) => {
                if self.client.put_artifact(&artifact.bytes()).await.is_ok() {
                    self.book().stored.push(artifact);
                }
            }
            Action::StoreAgain(artifact) => {
                if self.client.put_artifact(&artifact.bytes()).await.is_ok() {
                    self.book().stored_again += 1;
                }
            }
            Action::Read(artifact) => {
                let bytes = artifact.bytes();
                let told = match self.client.get_artifact(&ArtifactHash::of(&bytes)).await {
                    Ok(read) if read == bytes => {
                        self.book().read += 1;
                        return;
                    }
                    Ok(_) => "other bytes than were stored".to_owned(),
                    Err(error) if error.is_transient() => return,
                    Err(error) => format!("{} {error}", error.code()),
                };
                let told = format!("the artifact {} was acknowledged, and a read gets {told}", artifact.number);
                self.book().violations.push(Violation::new("what was acknowledged is kept", told));
            }
        }
    }
}
