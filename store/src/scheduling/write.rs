//! Writes the changes of a working set, with one statement per table.
//!
//! Rows are compared with the loaded ones. So a step that became ready and was claimed in the same transaction never
//! becomes visible to other claims.

use std::collections::HashMap;

use nightshift_protocol::budget::Amount;

use super::rows::{Campaign, DecidedPart, DecidedState, Details, Place, Run, Step};
use super::table::Type::{Bytes, I64, Text};
use super::table::{Rows, Target, Verb, row, write};
use super::working_set::WorkingSet;
use crate::connection::{Backend, Connection};
use crate::failure::Failure;
use crate::number::to_stored;

static CLOCK: Target = Target {
    verb: Verb::Update { set: "vtime = max(vtime, d.floor) + d.cost" },
    table: "campaign_clock",
    columns: &[("campaign_id", I64), ("floor", I64), ("cost", I64)],
};
static CLOCK_ON_POSTGRES: Target = Target {
    verb: Verb::Update { set: "vtime = greatest(vtime, d.floor) + d.cost" },
    table: "campaign_clock",
    columns: &[("campaign_id", I64), ("floor", I64), ("cost", I64)],
};
static BUDGET: Target = Target {
    verb: Verb::UpdateOfTwo { set: "used = d.used, reserved = d.reserved" },
    table: "budget",
    columns: &[("campaign_id", I64), ("resource", Text), ("used", I64), ("reserved", I64)],
};
/// A run with a changed log.
static RUN: Target = Target {
    verb: Verb::Update {
        set: "revision = d.revision, last_seq = d.last_seq, wake_seq = d.wake_seq, folded_seq = d.folded_seq, \
              failure = d.failure",
    },
    table: "run",
    columns: &[
        ("id", I64),
        ("revision", I64),
        ("last_seq", I64),
        ("wake_seq", I64),
        ("folded_seq", I64),
        ("failure", Text),
    ],
};
/// A run with a decision.
static RUN_DECIDED: Target = Target {
    verb: Verb::Update {
        set: "revision = d.revision, last_seq = d.last_seq, wake_seq = d.wake_seq, folded_seq = d.folded_seq, \
              failure = d.failure, digest = d.digest, awaits = d.awaits",
    },
    table: "run",
    columns: &[
        ("id", I64),
        ("revision", I64),
        ("last_seq", I64),
        ("wake_seq", I64),
        ("folded_seq", I64),
        ("failure", Text),
        ("digest", Text),
        ("awaits", Text),
    ],
};
/// A run with another status or end, with or without a decision. SQLite rewrites the entries of every index whose columns an
/// update names, so the other updates do not name these.
static RUN_MOVED: Target = Target {
    verb: Verb::Update {
        set: "status = d.status, revision = d.revision, last_seq = d.last_seq, wake_seq = d.wake_seq, \
              folded_seq = d.folded_seq, failure = d.failure, finished_at_ms = d.finished_at_ms, \
              digest = coalesce(d.digest, run.digest), \
              awaits = CASE WHEN d.digest IS NULL THEN run.awaits ELSE d.awaits END",
    },
    table: "run",
    columns: &[
        ("id", I64),
        ("status", Text),
        ("revision", I64),
        ("last_seq", I64),
        ("wake_seq", I64),
        ("folded_seq", I64),
        ("failure", Text),
        ("finished_at_ms", I64),
        ("digest", Text),
        ("awaits", Text),
    ],
};
static STATE: Target = Target {
    verb: Verb::Insert { conflict: "ON CONFLICT (run_id) DO UPDATE SET state = excluded.state" },
    table: "run_state",
    columns: &[("run_id", I64), ("state", Text)],
};
static PART: Target = Target {
    verb: Verb::Insert {
        conflict: "ON CONFLICT (run_id, field, number) DO UPDATE SET value = excluded.value, revision = excluded.revision",
    },
    table: "run_part",
    columns: &[("run_id", I64), ("field", Text), ("number", I64), ("value", Text), ("revision", I64)],
};
static EVENT: Target = Target {
    verb: Verb::Insert { conflict: "" },
    table: "event",
    columns: &[("run_id", I64), ("seq", I64), ("at_ms", I64), ("kind", Text), ("body", Text)],
};
static ARTIFACT_USE: Target = Target {
    verb: Verb::Insert { conflict: "ON CONFLICT (run_id, hash) DO NOTHING" },
    table: "artifact_use",
    columns: &[("run_id", I64), ("hash", Text)],
};
static STEP: Target = Target {
    verb: Verb::Update {
        set: "status = d.status, epoch = d.epoch, tries = d.tries, worker = d.worker, output_seq = d.output_seq, \
              failure = d.failure, started_at_ms = d.started_at_ms, finished_at_ms = d.finished_at_ms, \
              reported_epoch = d.reported_epoch, reported_digest = d.reported_digest",
    },
    table: "step",
    columns: &[
        ("id", I64),
        ("status", Text),
        ("epoch", I64),
        ("tries", I64),
        ("worker", Text),
        ("output_seq", I64),
        ("failure", Text),
        ("started_at_ms", I64),
        ("finished_at_ms", I64),
        ("reported_epoch", I64),
        ("reported_digest", Bytes),
    ],
};
static NEW_STEP: Target = Target {
    verb: Verb::Insert { conflict: "" },
    table: "step",
    columns: &[
        ("id", I64),
        ("public_id", Text),
        ("run_id", I64),
        ("key", Text),
        ("kind", Text),
        ("route_id", I64),
        ("status", Text),
        ("epoch", I64),
        ("tries", I64),
        ("max_tries", I64),
        ("first_delay_ms", I64),
        ("max_delay_ms", I64),
        ("timeout_ms", I64),
        ("cost_ms", I64),
        ("reserve", Text),
        ("worker", Text),
        ("scheduled_seq", I64),
        ("scheduled_at_ms", I64),
        ("started_at_ms", I64),
        ("finished_at_ms", I64),
    ],
};
static INPUT: Target =
    Target { verb: Verb::Insert { conflict: "" }, table: "step_input", columns: &[("step_id", I64), ("input", Text)] };
static READY: Target = Target {
    verb: Verb::Insert { conflict: "" },
    table: "ready",
    columns: &[("route_id", I64), ("rank", I64), ("step_id", I64), ("campaign_id", I64), ("latest_start_ms", I64)],
};
static RERANK: Target = Target {
    verb: Verb::Update { set: "rank = d.rank, latest_start_ms = d.latest_start_ms" },
    table: "ready",
    columns: &[("step_id", I64), ("rank", I64), ("latest_start_ms", I64)],
};
static LEASE: Target = Target {
    verb: Verb::Insert {
        conflict: "ON CONFLICT (step_id) DO UPDATE SET epoch = excluded.epoch, worker_id = excluded.worker_id, \
                   expires_at_ms = excluded.expires_at_ms, device = excluded.device, exclusive = excluded.exclusive",
    },
    table: "lease",
    columns: &[
        ("step_id", I64),
        ("epoch", I64),
        ("worker_id", I64),
        ("expires_at_ms", I64),
        ("device", I64),
        ("exclusive", I64),
    ],
};
static TIMER: Target = Target {
    verb: Verb::Insert {
        conflict: "ON CONFLICT (step_id) DO UPDATE SET not_before_ms = excluded.not_before_ms, \
                   for_window = excluded.for_window",
    },
    table: "timer",
    columns: &[("step_id", I64), ("not_before_ms", I64), ("for_window", I64)],
};
static BLOCKED: Target = Target {
    verb: Verb::Insert {
        conflict: "ON CONFLICT (step_id) DO UPDATE SET resource = excluded.resource, told = excluded.told",
    },
    table: "blocked",
    columns: &[("step_id", I64), ("campaign_id", I64), ("resource", Text), ("told", I64)],
};
static RESERVATION: Target = Target {
    verb: Verb::Insert { conflict: "ON CONFLICT (step_id, resource) DO UPDATE SET amount = excluded.amount" },
    table: "reservation",
    columns: &[("step_id", I64), ("resource", Text), ("campaign_id", I64), ("amount", I64)],
};
static NO_RESERVATION: Target =
    Target { verb: Verb::DeleteOfTwo, table: "reservation", columns: &[("step_id", I64), ("resource", Text)] };
static NOT_READY: Target = Target { verb: Verb::Delete, table: "ready", columns: &[("step_id", I64)] };
static NO_LEASE: Target = Target { verb: Verb::Delete, table: "lease", columns: &[("step_id", I64)] };
static NO_TIMER: Target = Target { verb: Verb::Delete, table: "timer", columns: &[("step_id", I64)] };
static NOT_BLOCKED: Target = Target { verb: Verb::Delete, table: "blocked", columns: &[("step_id", I64)] };

/// Writes the used amounts and clocks of campaigns and marks them as written.
///
/// On Postgres this locks the clocks, so rare operations call it before they write anything else. The hot path writes
/// them in one statement with everything else.
pub(crate) async fn campaigns(connection: &mut Connection, set: &mut WorkingSet) -> Result<bool, Failure> {
    let rows = of_campaigns(connection.backend(), set);
    let wrote = rows.iter().any(|rows| !rows.is_empty());
    write(connection, rows.into()).await?;
    Ok(wrote)
}

/// Returns the clocks and budgets that changed since they were loaded or written.
fn of_campaigns(backend: Backend, set: &mut WorkingSet) -> [Rows; 2] {
    let clock = match backend {
        Backend::Sqlite => &CLOCK,
        Backend::Postgres => &CLOCK_ON_POSTGRES,
    };
    let (mut clocks, mut budgets) = (Rows::of(clock), Rows::of(&BUDGET));
    let mut changed: Vec<&mut Campaign> = set.campaigns.values_mut().collect();
    // All transactions wait for rows in the order of the keys.
    changed.sort_unstable_by_key(|campaign| campaign.id);
    for campaign in changed {
        if campaign.vtime != campaign.vtime_before {
            let floor = campaign.vtime_before.max(set.virtual_now);
            row!(clocks; campaign.id, floor, campaign.vtime.saturating_sub(floor));
            campaign.vtime_before = campaign.vtime;
        }
        for (line, before) in campaign.budget.iter().zip(&campaign.budget_before) {
            if line != before {
                row!(budgets; campaign.id, line.resource.as_str(), to_stored(line.used), to_stored(line.reserved));
            }
        }
        campaign.budget_before.clone_from(&campaign.budget);
    }
    [clocks, budgets]
}

/// Writes everything that is not written yet. Returns whether there was anything.
pub(crate) async fn all(connection: &mut Connection, mut set: WorkingSet) -> Result<bool, Failure> {
    let of_campaigns = of_campaigns(connection.backend(), &mut set);
    let mut rows = AllRows::new();
    for run in std::mem::take(&mut set.runs).into_values().filter(|run| run.changed) {
        rows.run(run);
    }
    for event in std::mem::take(&mut set.events) {
        row!(rows.event; event.run_id, event.seq, event.at, event.kind, event.body);
    }
    for (run_id, hash) in std::mem::take(&mut set.artifact_uses) {
        row!(rows.artifact_use; run_id, hash);
    }
    let mut steps: Vec<Step> = std::mem::take(&mut set.steps).into_values().collect();
    steps.sort_unstable_by_key(|step| step.id);
    let gives_device = |step: &Step| step.place != step.place_before && has_device_alone(&step.place);
    let gives_devices = steps.iter().any(gives_device);
    for step in steps {
        rows.place(&step);
        rows.reservations(&step);
        rows.step(step);
    }
    let mut wrote = false;
    if gives_devices && connection.backend() == Backend::Postgres && !rows.no_lease.is_empty() {
        // The parts of one statement share a snapshot, so a device that is released and leased again would appear
        // twice.
        write(connection, vec![std::mem::replace(&mut rows.no_lease, Rows::of(&NO_LEASE))]).await?;
        wrote = true;
    }
    let tables: Vec<Rows> = of_campaigns.into_iter().chain(rows.in_order()).collect();
    wrote |= tables.iter().any(|rows| !rows.is_empty());
    write(connection, tables).await?;
    Ok(wrote)
}

fn has_device_alone(place: &Place) -> bool {
    matches!(place, Place::Leased { exclusive: true, .. })
}

macro_rules! all_rows {
    ($($name:ident: $target:ident),* $(,)?) => {
        /// Rows of every table, in the order of writing: first deletions, then referenced rows before referring rows.
        struct AllRows {
            $($name: Rows),*
        }

        impl AllRows {
            fn new() -> Self {
                Self { $($name: Rows::of(&$target)),* }
            }

            fn in_order(self) -> Vec<Rows> {
                vec![$(self.$name),*]
            }
        }
    };
}
all_rows! {
    not_ready: NOT_READY,
    no_lease: NO_LEASE,
    no_timer: NO_TIMER,
    not_blocked: NOT_BLOCKED,
    no_reservation: NO_RESERVATION,
    run: RUN,
    run_decided: RUN_DECIDED,
    run_moved: RUN_MOVED,
    state: STATE,
    part: PART,
    event: EVENT,
    artifact_use: ARTIFACT_USE,
    step: STEP,
    new_step: NEW_STEP,
    input: INPUT,
    ready: READY,
    rerank: RERANK,
    lease: LEASE,
    timer: TIMER,
    blocked: BLOCKED,
    reservation: RESERVATION,
}

impl AllRows {
    fn run(&mut self, run: Run) {
        let Run { id, status, revision, last_seq, wake_seq, folded_seq, failure, finished_at, .. } = run;
        let has_moved = run.stored_standing != (status, finished_at);
        let (decided, state) = run.decided.map(|decided| ((decided.digest, decided.awaits), decided.state)).unzip();
        match decided {
            decided if has_moved => {
                let (digest, awaits) = decided.map_or((None, None), |(digest, awaits)| (Some(digest), awaits));
                row!(self.run_moved; id, status.as_str(), revision, last_seq, wake_seq, folded_seq, failure, finished_at,
                     digest, awaits);
            }
            Some((digest, awaits)) => {
                row!(self.run_decided; id, revision, last_seq, wake_seq, folded_seq, failure, digest, awaits);
            }
            None => row!(self.run; id, revision, last_seq, wake_seq, folded_seq, failure),
        }
        let Some(DecidedState { head, parts }) = state.flatten() else { return };
        row!(self.state; id, head);
        for DecidedPart { field, number, value } in parts {
            row!(self.part; id, field, i64::from(number), value, revision);
        }
    }

    fn step(&mut self, step: Step) {
        if !step.changed {
            return;
        }
        let status = step.status.as_str();
        let (Some(fresh), Some(Details { kind, retry, scheduled_at, .. })) = (step.fresh, step.details) else {
            row!(self.step; step.id, status, step.epoch, step.tries, step.worker, step.output_seq, step.failure,
                 step.started_at, step.finished_at, step.reported_epoch, step.reported_digest);
            return;
        };
        row!(self.input; step.id, fresh.input);
        row!(self.new_step; step.id, step.public_id.as_str(), step.run_id, step.key, kind, step.route_id, status,
             step.epoch, step.tries, i64::from(retry.max_tries), to_stored(retry.first_delay_ms),
             to_stored(retry.max_delay_ms), to_stored(step.timeout_ms), to_stored(step.cost_ms), fresh.reserve,
             step.worker, fresh.scheduled_seq, scheduled_at.0, step.started_at, step.finished_at);
    }

    fn place(&mut self, step: &Step) {
        let (before, now) = (&step.place_before, &step.place);
        if before == now {
            return;
        }
        let same_table = std::mem::discriminant(before) == std::mem::discriminant(now);
        match before {
            // The device may have a new lease, whose row may be written first.
            _ if same_table && has_device_alone(before) => row!(self.no_lease; step.id),
            _ if same_table => {}
            Place::Nowhere => {}
            Place::Ready { .. } => row!(self.not_ready; step.id),
            Place::Leased { .. } => row!(self.no_lease; step.id),
            Place::Timer { .. } => row!(self.no_timer; step.id),
            Place::Blocked { .. } => row!(self.not_blocked; step.id),
        }
        match now {
            Place::Nowhere => {}
            Place::Ready { rank, latest_start } if same_table => row!(self.rerank; step.id, *rank, *latest_start),
            Place::Ready { rank, latest_start } => {
                row!(self.ready; step.route_id, *rank, step.id, step.campaign_id, *latest_start);
            }
            Place::Leased { epoch, worker_id, expires_at, device, exclusive } => {
                row!(self.lease; step.id, *epoch, *worker_id, *expires_at, *device, *exclusive);
            }
            Place::Timer { not_before, for_window } => row!(self.timer; step.id, *not_before, *for_window),
            Place::Blocked { resource, told } => {
                row!(self.blocked; step.id, step.campaign_id, resource.as_str(), *told);
            }
        }
    }

    fn reservations(&mut self, step: &Step) {
        if step.reserved_before == step.reserved {
            return;
        }
        let of = |amounts: &[Amount]| -> HashMap<&'static str, u64> {
            amounts.iter().map(|amount| (amount.resource.as_str(), amount.amount)).collect()
        };
        let (before, now) = (of(&step.reserved_before), of(&step.reserved));
        for resource in before.keys().filter(|resource| !now.contains_key(*resource)) {
            row!(self.no_reservation; step.id, *resource);
        }
        for (resource, amount) in now.iter().filter(|(resource, amount)| before.get(*resource) != Some(amount)) {
            row!(self.reservation; step.id, *resource, step.campaign_id, to_stored(*amount));
        }
    }
}
