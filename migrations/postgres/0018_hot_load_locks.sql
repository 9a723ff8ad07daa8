-- Loads all rows of a flush in one round trip. It replaces hot_load_v1, which servers of the release before call.
--
-- It locks less than hot_load_v1:
--
-- - No campaign: a change of its window or of its wall time locks all its runs first.
-- - No clock of a campaign: the write adds to the clock and locks it then.
-- - Claiming workers only if they may be given a lease.
--
-- Locks are taken in this order: runs, ready rows of ending runs, budgets, ready rows that no other transaction has
-- locked, workers. Each statement sees what was committed before it began, so rows that depend on a lock are read by a
-- later statement.
--
-- A row has its kind and its columns as a JSON list, with bytes as a list of their hexadecimal digits. `body` is the
-- input of a candidate.
CREATE FUNCTION hot_load_v2(
    -- Workers that claim.
    claimers      TEXT[],
    -- Runs with a decision.
    decided       TEXT[],
    -- Reported steps.
    reported      TEXT[],
    -- Keys of steps to schedule, each with its run.
    key_runs      TEXT[],
    keys          TEXT[],
    -- Runs that a decision ends.
    ending        TEXT[],
    -- Runs whose decisions reserve amounts of their campaigns' budgets.
    setting_aside TEXT[],
    -- Routes, with the number of ready steps to load of each that may begin at this moment.
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
    has_candidates  BOOLEAN := FALSE;
BEGIN
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

        RETURN QUERY
        SELECT 6::BIGINT, json_build_array(c.id, c.created_at_ms, c.schedule, c.weight, k.vtime, w.cap, w.used)::TEXT,
               NULL::TEXT
        FROM campaign c JOIN campaign_clock k ON k.campaign_id = c.id
        LEFT JOIN budget w ON w.campaign_id = c.id AND w.resource = 'wall_ms'
        WHERE c.id = ANY (campaign_ids);

        IF cardinality(budgets_of) > 0 THEN
            RETURN QUERY
            SELECT 7::BIGINT, json_build_array(b.campaign_id, b.resource, b.cap, b.used, b.reserved)::TEXT, NULL::TEXT
            FROM budget b WHERE b.campaign_id = ANY (budgets_of) ORDER BY b.campaign_id, b.resource FOR UPDATE OF b;
        END IF;
    END IF;

    IF cardinality(routes) > 0 THEN
        -- One index range per route, because a query over all routes would sort the whole backlog. A locked ready row
        -- and its step are consistent: both are written together, and the step changes only after the row is deleted.
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
        has_candidates := FOUND;
    END IF;

    -- The lock keeps a worker that may be given a lease from being deleted. A claim without candidates gives none.
    IF has_candidates OR cardinality(claimers) > 0 AND cardinality(decided) + cardinality(reported) > 0 THEN
        RETURN QUERY
        SELECT 1::BIGINT, json_build_array(w.public_id, w.id, w.draining)::TEXT, NULL::TEXT
        FROM worker w WHERE w.public_id = ANY (claimers) ORDER BY w.id FOR KEY SHARE OF w;
    ELSIF cardinality(claimers) > 0 THEN
        RETURN QUERY
        SELECT 1::BIGINT, json_build_array(w.public_id, w.id, w.draining)::TEXT, NULL::TEXT
        FROM worker w WHERE w.public_id = ANY (claimers);
    END IF;
END
$$;
