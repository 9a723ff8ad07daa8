-- The durable core on SQLite. Narrow integer keys inside, text ids outside; times are milliseconds since 1970 from the
-- server's clock; JSON is text. `ready`, `lease` and `timer` are narrow and hold nothing but the present, so that claims
-- and heartbeats never rewrite a wide row.

-- Marks the file as ours (the letters NSHT): a database of another program is refused, not changed.
PRAGMA application_id = 1314080852;

CREATE TABLE campaign (
    id            INTEGER PRIMARY KEY,
    public_id     TEXT    NOT NULL UNIQUE,
    name          TEXT    NOT NULL,
    spec          TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT;

-- Keys of creating requests: the same key and digest is the same request.
CREATE TABLE idempotency (
    key         TEXT    NOT NULL PRIMARY KEY,
    digest      TEXT    NOT NULL,
    campaign_id INTEGER NOT NULL REFERENCES campaign (id)
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
    id             INTEGER PRIMARY KEY,
    public_id      TEXT    NOT NULL UNIQUE,
    campaign_id    INTEGER NOT NULL REFERENCES campaign (id),
    status         TEXT    NOT NULL
                   CHECK (status IN ('running', 'paused', 'cancelling', 'completed', 'failed', 'cancelled')),
    -- Grows with every decision and every change of status: the guard of a compare-and-set.
    revision       INTEGER NOT NULL DEFAULT 0,
    -- The last event of the log.
    last_seq       INTEGER NOT NULL DEFAULT 0,
    -- The last event that asks for a decision, which is any but `step_scheduled`.
    wake_seq       INTEGER NOT NULL DEFAULT 0,
    -- The last event that is folded into the state.
    folded_seq     INTEGER NOT NULL DEFAULT 0,
    digest         TEXT    NOT NULL,
    failure        TEXT,
    created_at_ms  INTEGER NOT NULL,
    finished_at_ms INTEGER
) STRICT;

-- Serves: the runs of a campaign, in the order of its tasks.
CREATE INDEX run_by_campaign ON run (campaign_id);
-- Serves: how many runs of a campaign are in each status.
CREATE INDEX run_by_campaign_and_status ON run (campaign_id, status);
-- Serves: the runs of one status, newest first; the driver's work list, cancelled runs whose last step is gone.
CREATE INDEX run_by_status ON run (status);
-- Serves: the driver's work list, runs whose log is ahead of their state.
CREATE INDEX run_to_drive ON run (id)
    WHERE status IN ('running', 'paused', 'cancelling') AND wake_seq > folded_seq;

-- The folded state, apart from the run: it is large, and only a decision changes it.
CREATE TABLE run_state (
    run_id INTEGER PRIMARY KEY REFERENCES run (id),
    state  TEXT    NOT NULL
) STRICT;

-- The log of a run. Rows are only ever added. The key serves: the events of a run after a position.
CREATE TABLE event (
    run_id INTEGER NOT NULL REFERENCES run (id),
    seq    INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    body   TEXT    NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT;

-- What steps need, as canonical text.
CREATE TABLE route (
    id    INTEGER PRIMARY KEY,
    needs TEXT    NOT NULL UNIQUE
) STRICT;

CREATE TABLE worker (
    id        INTEGER PRIMARY KEY,
    public_id TEXT    NOT NULL UNIQUE,
    name      TEXT    NOT NULL,
    embedded  INTEGER NOT NULL CHECK (embedded IN (0, 1)),
    offers    TEXT    NOT NULL,
    version   TEXT    NOT NULL
) STRICT;

-- When a worker was last heard of, apart from what it offers: heartbeats write it.
CREATE TABLE worker_seen (
    worker_id INTEGER PRIMARY KEY REFERENCES worker (id),
    at_ms     INTEGER NOT NULL
) STRICT;

CREATE TABLE step (
    id               INTEGER PRIMARY KEY,
    public_id        TEXT    NOT NULL UNIQUE,
    run_id           INTEGER NOT NULL REFERENCES run (id),
    key              TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    route_id         INTEGER NOT NULL REFERENCES route (id),
    status           TEXT    NOT NULL
                     CHECK (status IN ('scheduled', 'leased', 'completed', 'failed', 'cancelled')),
    epoch            INTEGER NOT NULL DEFAULT 0,
    tries            INTEGER NOT NULL DEFAULT 0,
    max_tries        INTEGER NOT NULL,
    first_delay_ms   INTEGER NOT NULL,
    max_delay_ms     INTEGER NOT NULL,
    timeout_ms       INTEGER NOT NULL,
    worker_id        INTEGER REFERENCES worker (id),
    -- The event that holds the output.
    output_seq       INTEGER,
    failure          TEXT,
    scheduled_at_ms  INTEGER NOT NULL,
    started_at_ms    INTEGER,
    finished_at_ms   INTEGER,
    -- The last report that was committed: its epoch, and the blake3 hash of what it said. A second copy is recognised.
    reported_epoch   INTEGER,
    reported_digest  BLOB,
    -- Serves: a key that exists is left as it is.
    UNIQUE (run_id, key)
) STRICT;

-- Serves: the steps of a run; the open steps of a run that is paused, resumed, cancelled or over.
CREATE INDEX step_by_run ON step (run_id, status);

-- What a step is given, apart from the step: claims and reports do not rewrite it.
CREATE TABLE step_input (
    step_id INTEGER PRIMARY KEY REFERENCES step (id),
    input   TEXT    NOT NULL
) STRICT;

-- Steps that can begin now, and nothing else. The key serves: the oldest steps of a route.
CREATE TABLE ready (
    route_id INTEGER NOT NULL REFERENCES route (id),
    step_id  INTEGER NOT NULL REFERENCES step (id),
    PRIMARY KEY (route_id, step_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
    step_id       INTEGER PRIMARY KEY REFERENCES step (id),
    epoch         INTEGER NOT NULL,
    worker_id     INTEGER NOT NULL REFERENCES worker (id),
    expires_at_ms INTEGER NOT NULL
) STRICT;

-- Serves: leases that ran out, oldest first.
CREATE INDEX lease_by_expiry ON lease (expires_at_ms);
-- Serves: how many steps a worker holds; the leases of embedded workers.
CREATE INDEX lease_by_worker ON lease (worker_id);

-- Steps that wait for a moment.
CREATE TABLE timer (
    step_id       INTEGER PRIMARY KEY REFERENCES step (id),
    not_before_ms INTEGER NOT NULL
) STRICT;

-- Serves: timers that are due, and the next one.
CREATE INDEX timer_by_moment ON timer (not_before_ms);

-- Blobs by their blake3 hash.
CREATE TABLE artifact (
    hash  TEXT NOT NULL UNIQUE,
    bytes BLOB NOT NULL
) STRICT;

-- Answered model calls. The key serves: was this call answered before?
CREATE TABLE model_call (
    run_id       INTEGER NOT NULL REFERENCES run (id),
    step_key     TEXT    NOT NULL,
    turn         INTEGER NOT NULL,
    request_hash TEXT    NOT NULL,
    summary      TEXT    NOT NULL,
    at_ms        INTEGER NOT NULL,
    PRIMARY KEY (run_id, step_key, turn, request_hash)
) STRICT;
