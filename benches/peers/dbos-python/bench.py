"""DBOS for Python: workflows on threads of this process, checkpoints in Postgres."""

import argparse
import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import psycopg
from dbos import DBOS, DBOSConfig

STEPS_PER_WORKFLOW = 10
BACKENDS_END_WITHIN_S = 10.0

COUNTERS = """
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
       (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
       split_part(current_setting('server_version'), ' ', 1),
       (SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
         WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes'))
"""
OTHERS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@DBOS.step()
def add_one(n: int) -> int:
    return n + 1


@DBOS.workflow()
def add_ten(n: int) -> int:
    for _ in range(STEPS_PER_WORKFLOW):
        n = add_one(n)
    return n


def read_counters(database_url: str):
    """WAL bytes, commits, version and durability, once every other connection to the database has ended."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        deadline = time.monotonic() + BACKENDS_END_WITHIN_S
        while connection.execute(OTHERS).fetchone()[0] > 0:
            if time.monotonic() > deadline:
                raise SystemExit("other connections to the database stay open: give this run a database of its own")
            time.sleep(0.02)
        return connection.execute(COUNTERS).fetchone()


def timed(n: int) -> float:
    start = time.perf_counter()
    answer = add_ten(n)
    elapsed = time.perf_counter() - start
    if answer != n + STEPS_PER_WORKFLOW:
        raise SystemExit(f"workflow {n} answered {answer} instead of {n + STEPS_PER_WORKFLOW}")
    return elapsed


def drive(in_flight: int, workflows: int) -> tuple[float, list[float]]:
    with ThreadPoolExecutor(max_workers=in_flight) as lanes:
        begin = time.perf_counter()
        each = list(lanes.map(timed, range(workflows)))
        return time.perf_counter() - begin, sorted(each)


def percentile_ms(each: list[float], percent: int) -> float:
    rank = max(math.ceil(len(each) * percent / 100), 1)
    return each[rank - 1] * 1000


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def main() -> None:
    options = argparse.ArgumentParser(description="Runs the workload on DBOS for Python and prints one line of JSON.")
    options.add_argument("--in-flight", type=positive, default=64, help="threads, each with one workflow at a time")
    options.add_argument("--workflows", type=positive, default=500, help="workflows in the timed part")
    options.add_argument("--warm-up", type=int, default=20, help="workflows before the timed part")
    options.add_argument("--database-url", required=True, help="a database of its own for this run")
    options.add_argument("--connections", type=positive, default=20, help="connections in the pool of DBOS")
    given = options.parse_args()

    def launch() -> None:
        config: DBOSConfig = {
            "name": "peer-bench",
            "system_database_url": given.database_url,
            "sys_db_pool_size": given.connections,
            "application_version": "1",
            "enable_otlp": False,
            "log_level": "ERROR",
        }
        DBOS(config=config)
        DBOS.launch()

    # The first launch lays the schema. A backend hands in its share of the statistics at the latest when it ends, so
    # both readings are taken while the engine is down: the cost is exact but for the few commits of the launch.
    launch()
    DBOS.destroy()
    wal_before, commits_before, _, _ = read_counters(given.database_url)
    launch()
    if given.warm_up > 0:
        drive(given.in_flight, given.warm_up)
    seconds, each = drive(given.in_flight, given.workflows)
    DBOS.destroy()
    wal_after, commits_after, server, durability = read_counters(given.database_url)

    steps = given.workflows * STEPS_PER_WORKFLOW
    counted = (given.workflows + given.warm_up) * STEPS_PER_WORKFLOW
    print(
        json.dumps(
            {
                "system": "dbos-python",
                "version": version("dbos"),
                "store": f"Postgres {server}, pool of {given.connections}",
                "durability": durability,
                "in_flight": given.in_flight,
                "workflows": given.workflows,
                "steps": steps,
                "seconds": seconds,
                "steps_per_second": steps / seconds,
                "workflow_p50_ms": percentile_ms(each, 50),
                "workflow_p99_ms": percentile_ms(each, 99),
                "wal_bytes_per_step": (wal_after - wal_before) / counted,
                "commits_per_step": (commits_after - commits_before) / counted,
            }
        )
    )


if __name__ == "__main__":
    main()
