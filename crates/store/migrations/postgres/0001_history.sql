-- What Jangar remembers of runs. The same tables as in ../sqlite, but for how words are searched and numbers are given.
-- Times are microseconds since 1970 in UTC, and yes or no is 1 or 0, so that both databases read the same.

CREATE TABLE jangar_runs (
    -- Where a run stands in lists: its second of creation, and a number from its UID within that.
    place BIGINT PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    cluster TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    subject TEXT NOT NULL,
    phase TEXT NOT NULL,
    reason TEXT,
    message TEXT,
    priority BIGINT NOT NULL,
    runtime TEXT,
    parent TEXT,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT,
    archived_at BIGINT NOT NULL,
    labels TEXT NOT NULL,
    -- Words that a search finds the run by, each once. They are split in the program, so that both databases find the same.
    words TEXT NOT NULL,
    search TSVECTOR NOT NULL GENERATED ALWAYS AS (array_to_tsvector(string_to_array(words, ' '))) STORED
);
CREATE INDEX jangar_runs_by_name ON jangar_runs (namespace, name, place);
CREATE INDEX jangar_runs_by_namespace ON jangar_runs (namespace, place);
CREATE INDEX jangar_runs_by_kind ON jangar_runs (kind, phase, place);
CREATE INDEX jangar_runs_by_phase ON jangar_runs (phase, place);
CREATE INDEX jangar_runs_by_subject ON jangar_runs (subject, place);
CREATE INDEX jangar_runs_by_parent ON jangar_runs (parent, place) WHERE parent IS NOT NULL;
CREATE INDEX jangar_runs_by_word ON jangar_runs USING GIN (search);

-- Apart from the run, so that lists do not read past it.
CREATE TABLE jangar_documents (
    run_uid TEXT PRIMARY KEY REFERENCES jangar_runs (uid) ON DELETE CASCADE,
    document TEXT NOT NULL,
    cut BIGINT NOT NULL
);

CREATE TABLE jangar_steps (
    run_uid TEXT NOT NULL REFERENCES jangar_runs (uid) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT,
    phase TEXT NOT NULL,
    reason TEXT,
    message TEXT,
    caused_by TEXT,
    attempt BIGINT,
    started_at BIGINT,
    finished_at BIGINT,
    child TEXT,
    child_uid TEXT,
    PRIMARY KEY (run_uid, position)
);

CREATE TABLE jangar_transitions (
    run_uid TEXT NOT NULL REFERENCES jangar_runs (uid) ON DELETE CASCADE,
    at BIGINT NOT NULL,
    subject TEXT NOT NULL,
    what TEXT NOT NULL,
    became TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (run_uid, at, subject, what, became, reason)
);

CREATE TABLE jangar_approvals (
    run_uid TEXT NOT NULL REFERENCES jangar_runs (uid) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    place BIGINT NOT NULL,
    step TEXT NOT NULL,
    decision TEXT NOT NULL,
    given_by TEXT NOT NULL,
    given_groups TEXT NOT NULL,
    at BIGINT,
    comment TEXT,
    digest TEXT NOT NULL,
    PRIMARY KEY (run_uid, position)
);
CREATE INDEX jangar_approvals_by_place ON jangar_approvals (place, position);

CREATE TABLE jangar_cancel_receipts (
    run_uid TEXT NOT NULL REFERENCES jangar_runs (uid) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    step TEXT NOT NULL,
    resource TEXT,
    asked_at BIGINT,
    gone_at BIGINT,
    result TEXT,
    PRIMARY KEY (run_uid, position)
);

CREATE TABLE jangar_artifacts (
    run_uid TEXT NOT NULL REFERENCES jangar_runs (uid) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    name TEXT NOT NULL,
    path TEXT,
    storage_key TEXT,
    url TEXT,
    PRIMARY KEY (run_uid, position)
);

-- A tail may come before its run: logs are read while the pod is there, the run is archived at its end.
CREATE TABLE jangar_log_tails (
    run_uid TEXT NOT NULL,
    step TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    pod TEXT NOT NULL,
    container TEXT NOT NULL,
    text TEXT NOT NULL,
    cut BIGINT NOT NULL,
    total_bytes BIGINT,
    taken_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (run_uid, step, attempt)
);
CREATE INDEX jangar_log_tails_by_end ON jangar_log_tails (expires_at);

CREATE TABLE jangar_audit (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    actor_groups TEXT NOT NULL,
    source TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX jangar_audit_by_time ON jangar_audit (at);
CREATE INDEX jangar_audit_by_object ON jangar_audit (namespace, name, number);
CREATE INDEX jangar_audit_by_actor ON jangar_audit (actor, number);

CREATE TABLE jangar_idempotency_keys (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    subject TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    digest TEXT NOT NULL,
    run_uid TEXT NOT NULL,
    run_name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (kind, namespace, subject, idempotency_key)
);
CREATE INDEX jangar_idempotency_keys_by_end ON jangar_idempotency_keys (expires_at);

CREATE TABLE jangar_deliveries (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    provider TEXT NOT NULL,
    event TEXT NOT NULL,
    external_id TEXT,
    received_at BIGINT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    error TEXT,
    expires_at BIGINT NOT NULL,
    UNIQUE (source, delivery_id)
);
CREATE INDEX jangar_deliveries_by_end ON jangar_deliveries (expires_at);
