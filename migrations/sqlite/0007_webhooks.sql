-- Addresses that are told what happens, and what they are told: a row is written before anything is sent, and stays until
-- its webhook or its time is over.
CREATE TABLE webhook (
    id            INTEGER PRIMARY KEY,
    public_id     TEXT    NOT NULL UNIQUE,
    url           TEXT    NOT NULL,
    -- It signs, so it cannot be kept as a hash. No answer shows it.
    secret        TEXT    NOT NULL,
    events        TEXT    NOT NULL,
    -- Public id: a campaign may be deleted.
    campaign      TEXT,
    allow_private INTEGER NOT NULL CHECK (allow_private IN (0, 1)),
    author        TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE webhook_delivery (
    id               INTEGER PRIMARY KEY,
    public_id        TEXT    NOT NULL UNIQUE,
    webhook_id       INTEGER NOT NULL REFERENCES webhook (id),
    -- What it is about: the same thing is told once.
    subject          TEXT    NOT NULL,
    message          TEXT    NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN ('pending', 'delivered', 'given_up')),
    tries            INTEGER NOT NULL DEFAULT 0,
    -- Not before this moment; a server that tries it moves this ahead, so that no other one does.
    next_at_ms       INTEGER NOT NULL,
    problem          TEXT,
    created_at_ms    INTEGER NOT NULL,
    UNIQUE (webhook_id, subject)
) STRICT;

-- Serves: deliveries that are due.
CREATE INDEX webhook_delivery_due ON webhook_delivery (next_at_ms) WHERE status = 'pending';
-- Serves: old deliveries, to be deleted.
CREATE INDEX webhook_delivery_by_age ON webhook_delivery (created_at_ms);
