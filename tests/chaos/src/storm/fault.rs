//! What can go wrong, and in which order it does: drawn from the seed alone.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::Kind;

/// One thing that breaks. Times are how long it stays broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub(super) enum Fault {
    /// `kill -9`, and a new process later.
    KillServer { server: usize, down_ms: u64 },
    /// `kill -9`, and a new process later.
    KillWorker { worker: usize, down_ms: u64 },
    /// The process does nothing, for longer than its leases or its life last, and then goes on.
    StallServer { server: usize, stalled_ms: u64 },
    /// As above.
    StallWorker { worker: usize, stalled_ms: u64 },
    /// All connections to the database are ended.
    EndBackends,
    /// `kill -9` of one backend: Postgres ends all connections and recovers.
    CrashBackend,
    /// Postgres stops as if its machine had lost power.
    CrashPostgres { down_ms: u64 },
    /// Another client takes every connection that Postgres can serve.
    TakeConnections { taken_ms: u64 },
    /// Another client locks a table that every request needs.
    LockTables { locked_ms: u64 },
    /// One server's clock is wrong for a while.
    SkewClock { server: usize, offset_ms: i64, skewed_ms: u64 },
    /// Each server's clock is set to a time of its own, and stays so. Offsets are in milliseconds.
    SetClocks { offsets_ms: Vec<i64> },
    /// Every write into the store fails as on a full disk.
    FullDisk { server: usize, full_ms: u64 },
    /// The file system refuses to let files grow, whatever the process writes.
    WriteLimit { server: usize, limited_ms: u64 },
    /// The server starts anew on a database that may not grow, and starts anew again without that limit.
    FullDatabase { server: usize, full_ms: u64 },
    /// Far more requests at once than there are connections to the database.
    Flood { server: usize, requests: u32 },
    /// Something happens to one message.
    Message { server: usize, of: Message, effect: Effect },
    /// Something happens to one message between a server and the object store.
    Objects { effect: Effect },
    /// The object store answers every request with an error.
    ObjectsDown { down_ms: u64 },
}

/// Which message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    Claim,
    Report,
    Heartbeat,
    Any,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub(super) enum Effect {
    /// It never arrives.
    DropRequest,
    /// It arrives, and its answer does not.
    DropAnswer,
    /// It arrives late.
    DelayRequest { delay_ms: u64 },
    /// Its answer arrives late.
    DelayAnswer { delay_ms: u64 },
    /// It arrives twice, at the same time.
    Duplicate { answer_of_second: bool },
    /// It arrives after one that was sent later.
    Reorder,
    /// The connection breaks in the middle of it.
    CutRequest,
    /// The connection breaks in the middle of its answer.
    CutAnswer,
    /// It never arrives, and is answered with this status.
    Refuse { status: u16 },
    /// Its answer has half of its bytes, and says that these are all.
    ShortenAnswer,
}

impl Fault {
    /// The name under which it is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::KillServer { .. } => "kill_server",
            Self::KillWorker { .. } => "kill_worker",
            Self::StallServer { .. } => "stall_server",
            Self::StallWorker { .. } => "stall_worker",
            Self::EndBackends => "end_backends",
            Self::CrashBackend => "crash_backend",
            Self::CrashPostgres { .. } => "crash_postgres",
            Self::TakeConnections { .. } => "take_connections",
            Self::LockTables { .. } => "lock_tables",
            Self::SkewClock { .. } => "skew_clock",
            Self::SetClocks { .. } => "set_clocks",
            Self::FullDisk { .. } => "full_disk",
            Self::WriteLimit { .. } => "write_limit",
            Self::FullDatabase { .. } => "full_database",
            Self::Flood { .. } => "flood",
            Self::Message { effect, .. } => match effect {
                Effect::DropRequest => "drop_request",
                Effect::DropAnswer => "drop_answer",
                Effect::DelayRequest { .. } => "delay_request",
                Effect::DelayAnswer { .. } => "delay_answer",
                Effect::Duplicate { .. } => "duplicate_request",
                Effect::Reorder => "reorder_requests",
                Effect::CutRequest => "cut_request",
                Effect::CutAnswer => "cut_answer",
                Effect::Refuse { .. } => "refuse_request",
                Effect::ShortenAnswer => "shorten_answer",
            },
            Self::Objects { effect } => match effect {
                Effect::DropRequest => "objects_drop_request",
                Effect::DropAnswer => "objects_drop_answer",
                Effect::DelayRequest { .. } => "objects_delay_request",
                Effect::DelayAnswer { .. } => "objects_delay_answer",
                Effect::Duplicate { .. } => "objects_duplicate_request",
                Effect::Reorder => "objects_reorder_requests",
                Effect::CutRequest => "objects_cut_request",
                Effect::CutAnswer => "objects_cut_answer",
                Effect::Refuse { .. } => "objects_refuse_request",
                Effect::ShortenAnswer => "objects_shorten_answer",
            },
            Self::ObjectsDown { .. } => "objects_down",
        }
    }
}

/// Maximum offset of a clock, in milliseconds, in both directions.
pub(super) const MAX_CLOCK_MS: i64 = 120_000;

/// A fault's name before its numbers are drawn, and its share.
type Weighted = (&'static str, u32);

const EVERYWHERE: [Weighted; 25] = [
    ("kill_server", 6),
    ("kill_worker", 9),
    ("stall_server", 3),
    ("stall_worker", 5),
    ("skew_clock", 7),
    ("set_clocks", 4),
    ("full_disk", 4),
    ("flood", 2),
    ("drop_request", 7),
    ("drop_answer", 9),
    ("delay_request", 6),
    ("delay_answer", 6),
    ("duplicate", 11),
    ("reorder", 6),
    ("cut_request", 4),
    ("cut_answer", 5),
    ("objects_drop_request", 2),
    ("objects_drop_answer", 3),
    ("objects_delay_request", 3),
    ("objects_duplicate", 3),
    ("objects_cut_request", 2),
    ("objects_cut_answer", 3),
    ("objects_refuse", 5),
    ("objects_shorten_answer", 3),
    ("objects_down", 4),
];
const ON_SQLITE: [Weighted; 2] = [("write_limit", 4), ("full_database", 2)];
const ON_POSTGRES: [Weighted; 5] =
    [("end_backends", 5), ("crash_backend", 2), ("crash_postgres", 3), ("take_connections", 3), ("lock_tables", 2)];

/// Faults without end, each with the pause before it.
pub(super) struct Plan {
    random: ChaCha8Rng,
    weights: Vec<Weighted>,
    servers: usize,
    workers: usize,
}

impl Plan {
    pub(super) fn new(seed: u64, kind: Kind, servers: usize, workers: usize) -> Self {
        let own: &[Weighted] = match kind {
            Kind::Sqlite => &ON_SQLITE,
            Kind::Postgres => &ON_POSTGRES,
        };
        let weights = EVERYWHERE.iter().chain(own).copied().collect();
        Self { random: ChaCha8Rng::seed_from_u64(seed), weights, servers, workers }
    }

    /// The next fault, and how long to wait before it in milliseconds.
    pub(super) fn next(&mut self) -> (u64, Fault) {
        let total: u32 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.random_range(0..total);
        let mut chosen = "duplicate";
        for (name, weight) in &self.weights {
            if at < *weight {
                chosen = name;
                break;
            }
            at -= weight;
        }
        (self.random.random_range(10..180), self.draw(chosen))
    }

    fn draw(&mut self, name: &str) -> Fault {
        let random = &mut self.random;
        let server = random.random_range(0..self.servers);
        let worker = random.random_range(0..self.workers);
        let of = [Message::Claim, Message::Report, Message::Report, Message::Heartbeat, Message::Any]
            [random.random_range(0..5)];
        let message = |effect| Fault::Message { server, of, effect };
        match name {
            "kill_server" => Fault::KillServer { server, down_ms: random.random_range(0..800) },
            "kill_worker" => Fault::KillWorker { worker, down_ms: random.random_range(0..1_000) },
            "stall_server" => Fault::StallServer { server, stalled_ms: random.random_range(700..3_000) },
            "stall_worker" => Fault::StallWorker { worker, stalled_ms: random.random_range(1_600..3_500) },
            "end_backends" => Fault::EndBackends,
            "crash_backend" => Fault::CrashBackend,
            "crash_postgres" => Fault::CrashPostgres { down_ms: random.random_range(0..1_500) },
            "take_connections" => Fault::TakeConnections { taken_ms: random.random_range(500..2_500) },
            "lock_tables" => Fault::LockTables { locked_ms: random.random_range(300..2_500) },
            "skew_clock" => Fault::SkewClock {
                server,
                offset_ms: random.random_range(-MAX_CLOCK_MS..MAX_CLOCK_MS),
                skewed_ms: random.random_range(200..4_000),
            },
            "set_clocks" => {
                let offsets_ms = (0..self.servers).map(|_| random.random_range(-MAX_CLOCK_MS..MAX_CLOCK_MS)).collect();
                Fault::SetClocks { offsets_ms }
            }
            "full_disk" => Fault::FullDisk { server, full_ms: random.random_range(200..2_000) },
            "write_limit" => Fault::WriteLimit { server, limited_ms: random.random_range(200..2_000) },
            "full_database" => Fault::FullDatabase { server, full_ms: random.random_range(500..2_000) },
            "flood" => Fault::Flood { server, requests: random.random_range(100..400) },
            "drop_request" => message(Effect::DropRequest),
            "drop_answer" => message(Effect::DropAnswer),
            "delay_request" => message(Effect::DelayRequest { delay_ms: random.random_range(20..2_500) }),
            "delay_answer" => message(Effect::DelayAnswer { delay_ms: random.random_range(20..2_500) }),
            "reorder" => message(Effect::Reorder),
            "cut_request" => message(Effect::CutRequest),
            "cut_answer" => message(Effect::CutAnswer),
            "objects_drop_request" => Fault::Objects { effect: Effect::DropRequest },
            "objects_drop_answer" => Fault::Objects { effect: Effect::DropAnswer },
            "objects_delay_request" => {
                Fault::Objects { effect: Effect::DelayRequest { delay_ms: random.random_range(20..2_500) } }
            }
            "objects_duplicate" => {
                Fault::Objects { effect: Effect::Duplicate { answer_of_second: random.random_bool(0.5) } }
            }
            "objects_cut_request" => Fault::Objects { effect: Effect::CutRequest },
            "objects_cut_answer" => Fault::Objects { effect: Effect::CutAnswer },
            "objects_refuse" => {
                Fault::Objects { effect: Effect::Refuse { status: [500, 503][random.random_range(0..2)] } }
            }
            "objects_shorten_answer" => Fault::Objects { effect: Effect::ShortenAnswer },
            "objects_down" => Fault::ObjectsDown { down_ms: random.random_range(200..3_000) },
            _ => message(Effect::Duplicate { answer_of_second: random.random_bool(0.5) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn faults(seed: u64, kind: Kind) -> Vec<(u64, Fault)> {
        let mut plan = Plan::new(seed, kind, 5, 3);
        (0..1_000).map(|_| plan.next()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_one_others() {
        assert_eq!(faults(7, Kind::Postgres), faults(7, Kind::Postgres));
        assert_ne!(faults(7, Kind::Postgres), faults(8, Kind::Postgres));
    }

    #[test]
    fn a_thousand_faults_hold_every_kind() {
        for (kind, expected) in [(Kind::Sqlite, 27), (Kind::Postgres, 30)] {
            let kinds: BTreeSet<&str> = faults(1, kind).iter().map(|(_, fault)| fault.kind()).collect();
            assert_eq!(kinds.len(), expected, "{kinds:?}");
        }
    }
}
