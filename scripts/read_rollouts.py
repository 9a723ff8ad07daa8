#!/usr/bin/env python3
"""Reads what `nightshift export rollouts` wrote as trainers do, and compares its two kinds of files.

    python3 scripts/read_rollouts.py DIR

Needs pyarrow and pandas; uses datasets when it is installed. Ends with 1 when anything differs.
"""

import json
import pathlib
import sys

import pandas
import pyarrow.parquet

try:
    import datasets
except ImportError:
    datasets = None


def plain(value):
    """Lists and numbers of numpy as those of Python; what is not there as None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and value != value:
        return None
    return value


def main(folder):
    """Reads every file; gives the number of rows."""
    total = 0
    splits = {}
    for file in sorted(folder.rglob("*.parquet")):
        rows = pyarrow.parquet.read_table(file).to_pylist()
        lines = [json.loads(line) for line in file.with_suffix(".jsonl").read_text().splitlines()]
        assert rows == lines, f"{file}: Parquet and JSON differ"
        frame = pandas.read_parquet(file)
        assert [plain(row)["prompt"] for row in frame.to_dict("records")] == [row["prompt"] for row in rows], file
        layout, skill, split = file.parts[-3], file.parts[-2], file.stem
        for row in rows:
            facts = row["extra_info"] if layout == "verl" else row
            assert facts["split"] == split and facts["skill"] == skill, file
            assert row["prompt"][0]["role"] == "system" and row["prompt"][-1]["role"] == "user", file
            assert splits.setdefault(facts["task_name"], split) == split, f"{facts['task_name']} is in two splits"
            if layout == "verl":
                assert row["reward_model"] == {"style": "rule", "ground_truth": facts["task_id"]}, file
            else:
                assert [message["role"] for message in row["completion"]] == ["assistant"], file
        read = ["pyarrow", "pandas"]
        if datasets is not None and rows:
            for kind, path in (("parquet", file), ("json", file.with_suffix(".jsonl"))):
                loaded = datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=None)
                assert len(loaded) == len(rows), f"{path}: datasets finds {len(loaded)} rows"
                assert loaded[0]["prompt"] == rows[0]["prompt"], path
            read.append(f"datasets {datasets.__version__}")
        print(f"{file.relative_to(folder)}: {len(rows)} rows ({', '.join(read)})")
        total += len(rows)
    assert total > 0, "there are no rows"
    print(f"{total} rows, {len(splits)} tasks, none in two splits")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
