"""Folders of tasks that were imported, with programs for the scripted model."""

import json
import shutil
import tomllib
from pathlib import Path

MAX_SCOPE = 64
"""Operators that a subtask may name."""
UNREACHED = 1000.0
"""A subtask's target: its script is played to the end."""
GOAL = "[goal]\nmax_replans = 0\nreplan_after_failed = 200\nreplan_after_stagnant = 200\n"

DIAGNOSIS = {"bound": "compute", "critical_issue": "The script has another program.", "modification": "The next one.",
             "metrics": [], "expected_gain": 1.0, "route": "optimize"}


class Task:
    """A folder that `nightshift import kernelbench` wrote."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.text = (folder / "task.toml").read_text(encoding="utf-8")
        self.spec = tomllib.loads(self.text)
        self.file = self.spec["torch"].get("file") or ""

    @property
    def name(self) -> str:
        """Level and number, as `1/19`; for a file of no level its task's name."""
        level, slash, file = self.file.partition("/")
        return f"{level.removeprefix('level')}/{file.split('_')[0]}" if slash else self.spec["name"]

    @property
    def bytes(self) -> int:
        """Of inputs, weights and outputs."""
        return int(self.spec.get("bytes") or 0)

    def with_programs(self, at: Path, form: str, target: str, programs: list) -> Path:
        """A copy whose script gives these programs one after the other."""
        shutil.copytree(self.folder, at, ignore=shutil.ignore_patterns("replies"))
        lines = [line for line in self.text.splitlines() if not line.startswith(("form =", "target ="))]
        # Keys of the whole come before the first table.
        first = next(i for i, line in enumerate(lines) if line.startswith("name ="))
        lines[first:first] = [f'form = "{form}"', f'target = "{target}"']
        text = "\n".join(lines) + "\n"
        text = text.replace("[goal]\n", GOAL.replace("[goal]\n", f"[goal]\nmax_attempts = {len(programs)}\n"), 1)
        (at / "task.toml").write_text(text, encoding="utf-8")
        replies = at / "replies"
        replies.mkdir()
        (replies / "plan.md").write_text(f"```json\n{json.dumps(self._plan())}\n```\n", encoding="utf-8")
        language = "python" if form == "torch" else "cpp"
        for number, program in enumerate(programs, start=1):
            stem = f"subtask1.attempt{number}"
            (replies / f"{stem}.write_code.md").write_text(f"The next one.\n\n```{language}\n{program}\n```\n", encoding="utf-8")
            (replies / f"{stem}.diagnose.md").write_text(f"```json\n{json.dumps(DIAGNOSIS)}\n```\n", encoding="utf-8")
        return at

    def _plan(self) -> dict:
        def told(tensors: list) -> list:
            return [{"name": tensor["name"], "dtype": tensor["dtype"], "shape": [str(extent) for extent in tensor["shape"]],
                     "layout": "row_major"} for tensor in tensors]

        return {
            "summary": "Programs of a script.", "correctness_risks": ["None that is not meant."],
            "subtasks": [{
                "title": "The programs", "scope": [operator["name"] for operator in self.spec["operators"]][:MAX_SCOPE],
                "fusion_boundary": "As the program has it.",
                "contract": {"inputs": told(self.spec["inputs"]), "outputs": told(self.spec["outputs"])},
                "methods": ["those of the program"], "expected_bottleneck": "compute", "risk": "None.", "target_speedup": UNREACHED,
            }],
        }


def imported(folder: Path) -> list:
    """Every task of a folder, in the order of levels and numbers."""
    found = [Task(path.parent) for path in folder.glob("*/task.toml")]

    def order(task: Task) -> tuple:
        level, _, number = task.name.partition("/")
        return (int(level), int(number)) if level.isdigit() and number.isdigit() else (99, 0)

    return sorted(found, key=order)
