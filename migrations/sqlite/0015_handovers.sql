-- Campaigns that are checked out to another machine. While a hand-over is open (leaving or out), its campaign's runs are
-- paused and nothing moves them; while it is out, they belong to no server.
CREATE TABLE handover (
    id            INTEGER PRIMARY KEY,
    public_id     TEXT    NOT NULL UNIQUE,
    campaign_id   INTEGER NOT NULL REFERENCES campaign (id),
    state         TEXT    NOT NULL CHECK (state IN ('leaving', 'out', 'finished', 'cancelled')),
    -- Its files are sealed with it, so it cannot be kept as a hash. No answer shows it.
    key           TEXT    NOT NULL,
    -- Public ids of the runs that were running, as a JSON list: they go on elsewhere, and here afterwards.
    runs          TEXT    NOT NULL,
    -- Digest of the file that was brought back.
    digest        TEXT,
    author        TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    ended_at_ms   INTEGER
) STRICT;

-- Serves: a campaign is in one place; is this campaign away?
CREATE UNIQUE INDEX handover_open ON handover (campaign_id) WHERE state IN ('leaving', 'out');
-- Serves: the hand-overs of a campaign, to be deleted with it.
CREATE INDEX handover_by_campaign ON handover (campaign_id);
