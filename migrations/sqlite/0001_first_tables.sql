-- The durable core. Narrow integer keys inside, text ids outside; times are milliseconds since 1970 from the server's
-- clock; JSON is text; truth values are 0 and 1. `ready`, `lease`, `timer` and `blocked` are narrow and hold nothing but
-- the present, so that claims and heartbeats never rewrite a wide row. The twin for the other database has the same
-- tables, columns, keys and indexes; a test compares them.
--
-- Tables that every step writes (run_state, event, step, step_input, ready, lease, timer, blocked, reservation) have no
-- foreign keys: looking each reference up again was a quarter of what Postgres did for a step. Their one writer has what
-- they refer to in hand, and locked, when it writes them; the search for contradictions looks for references that lead
-- nowhere.

-- Marks the file as ours (the letters NSHT): a database of another program is refused, not changed.
PRAGMA application_id = 1314080852;

-- A life of a server process. Its leases and runs end with it.
CREATE TABLE server (
    -- Never given twice: runs and workers may still name a life that is forgotten.
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    public_id     TEXT    NOT NULL UNIQUE,
    name          TEXT    NOT NULL,
    version       TEXT    NOT NULL,
    address       TEXT    NOT NULL,
    started_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    -- The virtual time of fairness, as this server last saw it.
    virtual_now   INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE campaign (
    id            INTEGER PRIMARY KEY,
    public_id     TEXT    NOT NULL UNIQUE,
    name          TEXT    NOT NULL,
    spec          TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    -- Daily window and time zone as JSON; none: always.
    schedule      TEXT,
    priority      INTEGER NOT NULL DEFAULT 0,
    weight        INTEGER NOT NULL DEFAULT 1
) STRICT;

-- The virtual time of a campaign, apart from it: every step that becomes ready moves it.
CREATE TABLE campaign_clock (
    campaign_id INTEGER PRIMARY KEY REFERENCES campaign (id),
    vtime       INTEGER NOT NULL
) STRICT;

-- What a campaign may use up: reserved before the work, settled after it. A cap that is none is no limit.
CREATE TABLE budget (
    campaign_id INTEGER NOT NULL REFERENCES campaign (id),
    resource    TEXT    NOT NULL
                CHECK (resource IN ('cost_microusd', 'tokens', 'device_ms', 'attempts', 'wall_ms')),
    cap         INTEGER,
    used        INTEGER NOT NULL DEFAULT 0,
    reserved    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (campaign_id, resource)
) STRICT, WITHOUT ROWID;

-- Keys of requests that create something: the same key and digest is the same request.
CREATE TABLE idempotency (
    key    TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL,
    -- What the first request gave, as JSON.
    answer TEXT NOT NULL,
    at_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Serves: old keys to be forgotten.
CREATE INDEX idempotency_by_age ON idempotency (at_ms);

CREATE TABLE run (
    id             INTEGER PRIMARY KEY,
    public_id      TEXT    NOT NULL UNIQUE,
    campaign_id    INTEGER NOT NULL REFERENCES campaign (id),
    status         TEXT    NOT NULL
                   CHECK (status IN ('running', 'paused', 'cancelling', 'completed', 'failed', 'cancelled')),
    priority       INTEGER NOT NULL DEFAULT 0,
    -- The server life that decides for it, and how often that changed: the fence of its decisions.
    owner_id       INTEGER,
    owner_epoch    INTEGER NOT NULL DEFAULT 0,
    -- Grows with every decision and every change of status: the guard of a compare-and-set.
    revision       INTEGER NOT NULL DEFAULT 0,
    -- The last event of the log.
    last_seq       INTEGER NOT NULL DEFAULT 0,
    -- The last event that asks for a decision.
    wake_seq       INTEGER NOT NULL DEFAULT 0,
    -- The last event that is folded into the state.
    folded_seq     INTEGER NOT NULL DEFAULT 0,
    digest         TEXT    NOT NULL,
    -- Signals that it waits for, as a JSON list; none when it waits for no person.
    awaits         TEXT,
    failure        TEXT,
    created_at_ms  INTEGER NOT NULL,
    finished_at_ms INTEGER,
    -- Whether its log is ahead of its state. Computed, and alone in its index: a decision that follows its event in one
    -- transaction leaves it as it was, so that no index of the row is rewritten.
    to_drive       INTEGER GENERATED ALWAYS AS
                   (CASE WHEN wake_seq > folded_seq AND status IN ('running', 'paused', 'cancelling') THEN 1 ELSE 0 END)
                   STORED
) STRICT;

-- Serves: the runs of a campaign, in the order of its tasks.
CREATE INDEX run_by_campaign ON run (campaign_id);
-- Serves: how many runs of a campaign are in each status.
CREATE INDEX run_by_campaign_and_status ON run (campaign_id, status);
-- Serves: the runs of one status, newest first; the driver's work list, cancelled runs whose last step is gone.
CREATE INDEX run_by_status ON run (status);
-- Serves: the driver's work list, runs whose log is ahead of their state.
CREATE INDEX run_to_drive ON run (id) WHERE to_drive = 1;

-- The folded state, apart from the run: it is large, and only a decision changes it.
CREATE TABLE run_state (
    run_id INTEGER PRIMARY KEY,
    state  TEXT    NOT NULL
) STRICT;

-- The log of a run. Rows are only ever added. The key serves: the events of a run after a position.
CREATE TABLE event (
    run_id INTEGER NOT NULL,
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
    -- The server life that an embedded worker lives in.
    server_id INTEGER,
    embedded  INTEGER NOT NULL CHECK (embedded IN (0, 1)),
    offers    TEXT    NOT NULL,
    version   TEXT    NOT NULL,
    draining  INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1))
) STRICT;

-- When a worker was last heard of, apart from what it offers: heartbeats write it.
CREATE TABLE worker_seen (
    worker_id INTEGER PRIMARY KEY REFERENCES worker (id),
    at_ms     INTEGER NOT NULL
) STRICT;

CREATE TABLE step (
    id               INTEGER PRIMARY KEY,
    public_id        TEXT    NOT NULL UNIQUE,
    run_id           INTEGER NOT NULL,
    key              TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    route_id         INTEGER NOT NULL,
    status           TEXT    NOT NULL
                     CHECK (status IN ('scheduled', 'leased', 'completed', 'failed', 'cancelled')),
    epoch            INTEGER NOT NULL DEFAULT 0,
    tries            INTEGER NOT NULL DEFAULT 0,
    max_tries        INTEGER NOT NULL,
    first_delay_ms   INTEGER NOT NULL,
    max_delay_ms     INTEGER NOT NULL,
    timeout_ms       INTEGER NOT NULL,
    cost_ms          INTEGER NOT NULL,
    -- What is set aside when it becomes ready, as a JSON list; none for nothing.
    reserve          TEXT,
    -- Public id of the worker that carries it out, or did: workers are forgotten, steps are not.
    worker           TEXT,
    -- The event that scheduled it: steps of a run in their order.
    scheduled_seq    INTEGER NOT NULL,
    -- The event that holds the output.
    output_seq       INTEGER,
    failure          TEXT,
    scheduled_at_ms  INTEGER NOT NULL,
    started_at_ms    INTEGER,
    finished_at_ms   INTEGER,
    -- The last report that was committed: its epoch, and the blake3 hash of what it said. A second copy is recognised.
    reported_epoch   INTEGER,
    reported_digest  BLOB,
    -- Serves: a key that exists is left as it is; the steps of a run. No index has the status: it changes with every
    -- claim and report, which would then rewrite every index of the row.
    UNIQUE (run_id, key)
) STRICT;

-- What a step is given, apart from the step: claims and reports do not rewrite it.
CREATE TABLE step_input (
    step_id INTEGER PRIMARY KEY,
    input   TEXT    NOT NULL
) STRICT;

-- Steps that can begin now, and nothing else. The key serves: the first steps of a route.
CREATE TABLE ready (
    route_id        INTEGER NOT NULL,
    rank            INTEGER NOT NULL,
    step_id         INTEGER NOT NULL,
    campaign_id     INTEGER NOT NULL,
    -- After this moment it could not end before its campaign's window closes.
    latest_start_ms INTEGER,
    PRIMARY KEY (route_id, rank, step_id)
) STRICT, WITHOUT ROWID;

-- Serves: a step is ready once; taking a step out of the list.
CREATE UNIQUE INDEX ready_by_step ON ready (step_id);
-- Serves: ready steps for which it has become too late.
CREATE INDEX ready_by_latest_start ON ready (latest_start_ms) WHERE latest_start_ms IS NOT NULL;
-- Serves: the ready steps of a campaign whose window, budget or weight changes.
CREATE INDEX ready_by_campaign ON ready (campaign_id);

CREATE TABLE lease (
    step_id       INTEGER PRIMARY KEY,
    epoch         INTEGER NOT NULL,
    worker_id     INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    -- The device of the worker, and whether the step has it alone.
    device        INTEGER,
    exclusive     INTEGER NOT NULL DEFAULT 0 CHECK (exclusive IN (0, 1))
) STRICT;

-- Serves: leases that ran out, oldest first.
CREATE INDEX lease_by_expiry ON lease (expires_at_ms);
-- Serves: how many steps a worker holds; the leases of embedded workers.
CREATE INDEX lease_by_worker ON lease (worker_id);
-- Serves: on one device, one step at a time that needs it alone.
CREATE UNIQUE INDEX lease_alone_on_device ON lease (worker_id, device) WHERE exclusive = 1;

-- Steps that wait for a moment.
CREATE TABLE timer (
    step_id       INTEGER PRIMARY KEY,
    not_before_ms INTEGER NOT NULL,
    -- Whether it is the opening of its campaign's window: that moves when the window does.
    for_window    INTEGER NOT NULL DEFAULT 0 CHECK (for_window IN (0, 1))
) STRICT;

-- Serves: timers that are due, and the next one.
CREATE INDEX timer_by_moment ON timer (not_before_ms);

-- Steps that wait until their campaign's budget has room.
CREATE TABLE blocked (
    step_id     INTEGER PRIMARY KEY,
    campaign_id INTEGER NOT NULL,
    resource    TEXT    NOT NULL,
    -- Whether the log says that the campaign cannot afford it: that is said once.
    told        INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1))
) STRICT;

-- Serves: the steps of a campaign that wait for its budget, oldest first.
CREATE INDEX blocked_by_campaign ON blocked (campaign_id, step_id);

-- What is set aside for steps. The sum of a campaign's reservations is what its budget says is reserved.
CREATE TABLE reservation (
    step_id     INTEGER NOT NULL,
    resource    TEXT    NOT NULL,
    campaign_id INTEGER NOT NULL,
    amount      INTEGER NOT NULL,
    PRIMARY KEY (step_id, resource)
) STRICT, WITHOUT ROWID;

-- Blobs by their blake3 hash, in chunks, so that none has to be in memory as a whole.
CREATE TABLE artifact (
    id            INTEGER PRIMARY KEY,
    hash          TEXT    NOT NULL UNIQUE,
    size_bytes    INTEGER NOT NULL,
    stored_bytes  INTEGER NOT NULL,
    -- Whether all bytes are there and their hash is right.
    complete      INTEGER NOT NULL CHECK (complete IN (0, 1)),
    created_at_ms INTEGER NOT NULL
) STRICT;

-- Serves: old artifacts, to be deleted when nothing names them.
CREATE INDEX artifact_by_age ON artifact (created_at_ms);

CREATE TABLE artifact_chunk (
    artifact_id  INTEGER NOT NULL REFERENCES artifact (id),
    offset_bytes INTEGER NOT NULL,
    bytes        BLOB NOT NULL,
    PRIMARY KEY (artifact_id, offset_bytes)
) STRICT;

-- Which artifacts the records of a run name.
CREATE TABLE artifact_use (
    run_id INTEGER NOT NULL REFERENCES run (id),
    hash   TEXT    NOT NULL,
    PRIMARY KEY (run_id, hash)
) STRICT, WITHOUT ROWID;

-- Serves: does anything name this artifact?
CREATE INDEX artifact_use_by_hash ON artifact_use (hash);

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

-- API tokens: the hash of the secret, never the secret.
CREATE TABLE token (
    id              INTEGER PRIMARY KEY,
    public_id       TEXT    NOT NULL UNIQUE,
    name            TEXT    NOT NULL,
    role            TEXT    NOT NULL CHECK (role IN ('viewer', 'operator', 'worker', 'admin')),
    secret_hash     TEXT    NOT NULL UNIQUE,
    created_at_ms   INTEGER NOT NULL,
    expires_at_ms   INTEGER,
    revoked_at_ms   INTEGER,
    last_used_at_ms INTEGER
) STRICT;
