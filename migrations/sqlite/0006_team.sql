-- What people who look at campaigns leave there: sessions of their browsers, notes, tags, pins, views and links.

-- A browser that is signed in: the hash of what its cookie holds, and what that stands for. One of `token` and `share` is
-- there for what the store knows; for a token of the configuration there is a proof, which only holds together with the
-- cookie.
CREATE TABLE session (
    secret_hash   TEXT    NOT NULL PRIMARY KEY,
    token         TEXT,
    share         TEXT,
    proof         TEXT,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT;

-- Serves: sessions that are over, to be deleted.
CREATE INDEX session_by_end ON session (expires_at_ms);

-- Notes of people. `target` is a campaign, a run or an attempt in the form of the API; the keys beside it serve pruning.
CREATE TABLE remark (
    id            INTEGER PRIMARY KEY,
    public_id     TEXT    NOT NULL UNIQUE,
    target        TEXT    NOT NULL,
    campaign_id   INTEGER NOT NULL REFERENCES campaign (id),
    run_id        INTEGER REFERENCES run (id),
    body          TEXT    NOT NULL,
    author        TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    edited_at_ms  INTEGER
) STRICT;

-- Serves: the notes of a campaign, a run or an attempt, oldest first.
CREATE INDEX remark_by_target ON remark (target, id);
-- Serves: the notes of a run or a campaign, to be deleted with it.
CREATE INDEX remark_by_run ON remark (run_id);
CREATE INDEX remark_by_campaign ON remark (campaign_id);

CREATE TABLE tag (
    id          INTEGER PRIMARY KEY,
    target      TEXT    NOT NULL,
    tag         TEXT    NOT NULL,
    campaign_id INTEGER NOT NULL REFERENCES campaign (id),
    run_id      INTEGER REFERENCES run (id),
    author      TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL,
    UNIQUE (target, tag)
) STRICT;

-- Serves: what has this tag?
CREATE INDEX tag_by_name ON tag (tag, target);
-- Serves: the tags of a run or a campaign, to be deleted with it.
CREATE INDEX tag_by_run ON tag (run_id);
CREATE INDEX tag_by_campaign ON tag (campaign_id);

-- What a team keeps at hand, for example the attempt that others are compared with.
CREATE TABLE pin (
    id          INTEGER PRIMARY KEY,
    target      TEXT    NOT NULL UNIQUE,
    campaign_id INTEGER NOT NULL REFERENCES campaign (id),
    run_id      INTEGER REFERENCES run (id),
    label       TEXT    NOT NULL,
    author      TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL
) STRICT;

-- Serves: the pins of a campaign; those of a run or a campaign, to be deleted with it.
CREATE INDEX pin_by_run ON pin (run_id);
CREATE INDEX pin_by_campaign ON pin (campaign_id);

-- Pages with their filters, under a name.
CREATE TABLE saved_view (
    id            INTEGER PRIMARY KEY,
    public_id     TEXT    NOT NULL UNIQUE,
    name          TEXT    NOT NULL,
    page          TEXT    NOT NULL,
    query         TEXT    NOT NULL,
    owner         TEXT    NOT NULL,
    shared        INTEGER NOT NULL CHECK (shared IN (0, 1)),
    created_at_ms INTEGER NOT NULL,
    edited_at_ms  INTEGER
) STRICT;

-- Serves: the views of somebody, and those that are shared.
CREATE INDEX saved_view_by_owner ON saved_view (owner);
CREATE INDEX saved_view_shared ON saved_view (shared);

-- Links that let anybody read one campaign or one run.
CREATE TABLE share (
    id            INTEGER PRIMARY KEY,
    public_id     TEXT    NOT NULL UNIQUE,
    secret_hash   TEXT    NOT NULL UNIQUE,
    label         TEXT    NOT NULL,
    target        TEXT    NOT NULL,
    campaign_id   INTEGER NOT NULL REFERENCES campaign (id),
    run_id        INTEGER REFERENCES run (id),
    author        TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    revoked_at_ms INTEGER
) STRICT;

-- Serves: the links to a run or a campaign, to be deleted with it.
CREATE INDEX share_by_run ON share (run_id);
CREATE INDEX share_by_campaign ON share (campaign_id);
