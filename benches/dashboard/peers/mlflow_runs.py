"""Fills a SQLite file with one MLflow experiment: `mlflow_runs.py FILE RUNS SEED`.

The first hundred runs are written through the client; the others are copies of their rows, with ids and times of their own.
"""

import random
import sqlite3
import sys
import uuid

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

WRITTEN = 100
MINUTE_MS = 60_000
TILES = (32, 64, 128, 256)


def write(client: MlflowClient, experiment: str, chance: random.Random, number: int) -> None:
    at_ms = 1_700_000_000_000 + number * 1_000
    run = client.create_run(experiment, start_time=at_ms, run_name=f"attempt-{number}")
    values = {
        "tile_m": chance.choice(TILES),
        "tile_n": chance.choice(TILES),
        "stages": chance.randint(1, 8),
        "warps": chance.randint(1, 16),
        "layout": chance.choice(("row", "column", "swizzled")),
        "unroll_share": round(chance.uniform(0, 1), 6),
        "prefetch_share": round(chance.uniform(0, 1), 6),
        "tolerance": 10 ** chance.uniform(-6, 0),
    }
    client.log_batch(
        run.info.run_id,
        metrics=[Metric("speedup", chance.uniform(0, 10), at_ms, 0), Metric("ms", chance.uniform(0.01, 5), at_ms, 0)],
        params=[Param(name, str(value)) for name, value in values.items()],
        tags=[RunTag("agent", chance.choice(("planner", "coder", "verifier")))],
    )
    client.set_terminated(run.info.run_id, end_time=at_ms + 500)


def copy(file: str, times: int) -> None:
    """Copies every run so many times, with everything that belongs to it."""
    with sqlite3.connect(file) as database:
        kept = [row[0] for row in database.execute("SELECT run_uuid FROM runs")]
        columns = {
            table: [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            for table in ("runs", "params", "metrics", "latest_metrics", "tags")
        }
        for number in range(1, times + 1):
            for old in kept:
                new = uuid.uuid4().hex
                for table, names in columns.items():
                    shown = ", ".join(
                        "?" if name == "run_uuid"
                        else f"{name} + {number * MINUTE_MS}" if table == "runs" and name in ("start_time", "end_time")
                        else name
                        for name in names
                    )
                    database.execute(
                        f"INSERT INTO {table} ({', '.join(names)}) SELECT {shown} FROM {table} WHERE run_uuid = ?", (new, old)
                    )


def main() -> None:
    file, runs, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    client = MlflowClient(f"sqlite:///{file}")
    experiment = client.create_experiment("night", artifact_location="mlflow-artifacts:/night")
    for number in range(WRITTEN):
        write(client, experiment, chance, number)
    copy(file, runs // WRITTEN - 1)


main()
