-- Everything that a transaction of the hot path has to know, in one round trip. Each statement in here sees what was
-- committed before it began, as each statement of its own would: what depends on a lock is read by a later one.
--
-- Locks are taken in the order that holds everywhere: workers, runs, what is ready of runs that end, campaigns, budgets,
-- clocks, and at last ready rows that nobody else has, without waiting for any.
--
-- A row that is given back says of which kind it is and has its columns as a JSON list, bytes as a list of their
-- hexadecimal digits; `body` is a long text beside them. The other database has no such function: a statement is no
-- round trip there.
CREATE FUNCTION hot_load(
    -- Workers that claim.
    claimers      TEXT[],
    -- Runs that are decided for.
    decided       TEXT[],
    -- Steps that are reported.
    reported      TEXT[],
    -- Keys of steps to be scheduled, each with its run.
    key_runs      TEXT[],
    keys          TEXT[],
    -- Runs that are decided to be over.
    ending        TEXT[],
    -- Runs of whose campaigns' budgets something is to be set aside.
    setting_aside TEXT[],
    -- Routes, and how many ready steps of each are wanted that may begin at this moment.
    routes        BIGINT[],
    counts        BIGINT[],
    moment        BIGINT
) RETURNS TABLE (kind BIGINT, cells TEXT, body TEXT) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    rows_found      TEXT[];
    run_ids         BIGINT[];
    campaign_ids    BIGINT[];
    budgets_of      BIGINT[];
    budgets_of_more BIGINT[];
    ending_ids      BIGINT[];
BEGIN
    IF cardinality(claimers) > 0 THEN
        -- No foreign key keeps a worker from being forgotten while it is given a lease: this lock does.
        RETURN QUERY
        SELECT 1::BIGINT, json_build_array(w.public_id, w.id, w.draining)::TEXT, NULL::TEXT
        FROM worker w WHERE w.public_id = ANY (claimers) ORDER BY w.id FOR KEY SHARE OF w;
    END IF;

    IF cardinality(decided) + cardinality(reported) > 0 THEN
        SELECT array_agg(f.id), array_agg(DISTINCT f.campaign_id), array_agg(f.found),
               array_agg(f.campaign_id) FILTER (WHERE f.public_id = ANY (setting_aside)),
               array_agg(f.id) FILTER (WHERE f.public_id = ANY (ending))
        INTO run_ids, campaign_ids, rows_found, budgets_of, ending_ids
        FROM (SELECT r.id, r.public_id, r.campaign_id,
                     json_build_array(r.id, r.public_id, r.campaign_id, r.status, r.priority, o.public_id,
                                      r.owner_epoch, r.revision, r.last_seq, r.wake_seq, r.folded_seq, r.failure,
                                      r.finished_at_ms)::TEXT AS found
              FROM run r LEFT JOIN server o ON o.id = r.owner_id
              WHERE r.id = ANY (ARRAY(SELECT d.id FROM run d WHERE d.public_id = ANY (decided)
                                      UNION SELECT e.run_id FROM step e WHERE e.public_id = ANY (reported)))
              ORDER BY r.id FOR NO KEY UPDATE OF r) f;
        RETURN QUERY SELECT 2::BIGINT, f.found, NULL::TEXT FROM unnest(rows_found) AS f (found);

        IF cardinality(reported) > 0 THEN
            SELECT array_agg(f.found), array_agg(f.campaign_id) FILTER (WHERE f.counted)
            INTO rows_found, budgets_of_more
            FROM (SELECT r.campaign_id, s.reserve IS NOT NULL OR v.set_aside IS NOT NULL AS counted,
                         json_build_array(s.id, s.public_id, s.run_id, s.key, s.route_id, s.status, s.epoch, s.tries,
                                          s.timeout_ms, s.cost_ms, s.reserve, s.worker, s.failure, s.started_at_ms,
                                          s.reported_epoch,
                                          CASE WHEN s.reported_digest IS NOT NULL
                                               THEN json_build_array(encode(s.reported_digest, 'hex')) END,
                                          v.set_aside, l.epoch, l.worker_id, l.expires_at_ms, l.device,
                                          l.exclusive)::TEXT AS found
                  FROM step s JOIN run r ON r.id = s.run_id LEFT JOIN lease l ON l.step_id = s.id
                  CROSS JOIN LATERAL (SELECT string_agg(a.resource || '=' || a.amount, ',') AS set_aside
                                      FROM reservation a WHERE a.step_id = s.id) v
                  WHERE s.public_id = ANY (reported)) f;
            RETURN QUERY SELECT 3::BIGINT, f.found, NULL::TEXT FROM unnest(rows_found) AS f (found);
            budgets_of := budgets_of || budgets_of_more;
        END IF;

        IF cardinality(keys) > 0 THEN
            RETURN QUERY
            SELECT 4::BIGINT, json_build_array(s.run_id, s.key)::TEXT, NULL::TEXT
            FROM unnest(key_runs, keys) AS d (run, key)
            JOIN run r ON r.public_id = d.run JOIN step s ON s.run_id = r.id AND s.key = d.key;
        END IF;

        IF cardinality(ending_ids) > 0 THEN
            PERFORM 1 FROM ready y JOIN step s ON s.id = y.step_id
            WHERE s.run_id = ANY (ending_ids) AND s.status = 'scheduled'
            ORDER BY y.route_id, y.rank, y.step_id FOR UPDATE OF y;
            RETURN QUERY
            SELECT 5::BIGINT,
                   json_build_array(s.id, s.public_id, s.run_id, s.key, s.route_id, s.status, s.epoch, s.tries,
                                    s.timeout_ms, s.cost_ms, s.reserve, s.worker, s.failure, s.started_at_ms,
                                    s.reported_epoch,
                                    CASE WHEN s.reported_digest IS NOT NULL
                                         THEN json_build_array(encode(s.reported_digest, 'hex')) END,
                                    (SELECT string_agg(a.resource || '=' || a.amount, ',')
                                     FROM reservation a WHERE a.step_id = s.id),
                                    l.epoch, l.worker_id, l.expires_at_ms, l.device, l.exclusive, y.rank,
                                    y.latest_start_ms, t.not_before_ms, b.resource, b.told, n.needs,
                                    t.for_window)::TEXT,
                   NULL::TEXT
            FROM step s JOIN route n ON n.id = s.route_id LEFT JOIN lease l ON l.step_id = s.id
            LEFT JOIN ready y ON y.step_id = s.id LEFT JOIN timer t ON t.step_id = s.id
            LEFT JOIN blocked b ON b.step_id = s.id
            WHERE s.run_id = ANY (ending_ids) AND s.status IN ('scheduled', 'leased') ORDER BY s.id;
            SELECT array_agg(DISTINCT r.campaign_id) INTO budgets_of_more
            FROM step s JOIN run r ON r.id = s.run_id
            WHERE s.run_id = ANY (ending_ids) AND s.status IN ('scheduled', 'leased')
              AND (s.reserve IS NOT NULL OR EXISTS (SELECT 1 FROM reservation a WHERE a.step_id = s.id));
            budgets_of := budgets_of || budgets_of_more;
        END IF;

        -- The campaign is kept from changing its window meanwhile.
        RETURN QUERY
        SELECT 6::BIGINT, json_build_array(c.id, c.created_at_ms, c.schedule, c.weight, 0, w.cap, w.used)::TEXT,
               NULL::TEXT
        FROM campaign c LEFT JOIN budget w ON w.campaign_id = c.id AND w.resource = 'wall_ms'
        WHERE c.id = ANY (campaign_ids) ORDER BY c.id FOR SHARE OF c;

        IF cardinality(budgets_of) > 0 THEN
            RETURN QUERY
            SELECT 7::BIGINT, json_build_array(b.campaign_id, b.resource, b.cap, b.used, b.reserved)::TEXT, NULL::TEXT
            FROM budget b WHERE b.campaign_id = ANY (budgets_of) ORDER BY b.campaign_id, b.resource FOR UPDATE OF b;
        END IF;

        -- Whatever becomes ready moves them on.
        RETURN QUERY
        SELECT 8::BIGINT, json_build_array(k.campaign_id, k.vtime)::TEXT, NULL::TEXT
        FROM campaign_clock k WHERE k.campaign_id = ANY (campaign_ids) ORDER BY k.campaign_id FOR NO KEY UPDATE OF k;
    END IF;

    IF cardinality(routes) > 0 THEN
        -- One index range per route: over all routes at once the whole backlog would be sorted. A ready row that is
        -- locked and its step are of one moment: whatever makes a step ready writes both, and nothing changes the step
        -- before the ready row is gone.
        RETURN QUERY
        SELECT 9::BIGINT,
               json_build_array(s.id, s.public_id, s.run_id, s.key, s.route_id, s.status, s.epoch, s.tries,
                                s.timeout_ms, s.cost_ms, s.reserve, s.worker, s.failure, s.started_at_ms,
                                s.reported_epoch,
                                CASE WHEN s.reported_digest IS NOT NULL
                                     THEN json_build_array(encode(s.reported_digest, 'hex')) END,
                                (SELECT string_agg(a.resource || '=' || a.amount, ',')
                                 FROM reservation a WHERE a.step_id = s.id),
                                q.rank, q.latest_start_ms, q.campaign_id, r.public_id, s.kind, s.max_tries,
                                s.first_delay_ms, s.max_delay_ms, s.scheduled_at_ms)::TEXT,
               i.input
        FROM unnest(routes, counts) AS u (route_id, wanted)
        CROSS JOIN LATERAL (SELECT y.step_id, y.rank, y.latest_start_ms, y.campaign_id FROM ready y
                            WHERE y.route_id = u.route_id
                              AND (y.latest_start_ms IS NULL OR y.latest_start_ms >= moment)
                            ORDER BY y.rank, y.step_id LIMIT u.wanted FOR UPDATE SKIP LOCKED) q
        JOIN step s ON s.id = q.step_id JOIN run r ON r.id = s.run_id LEFT JOIN step_input i ON i.step_id = s.id;
    END IF;
END
$$;
