"""Medians of the rounds, as data and as a table."""

from statistics import median

METRICS = (
    "steps_per_second",
    "workflow_p50_ms",
    "workflow_p99_ms",
    "wal_bytes_per_step",
    "commits_per_step",
)
# What every adapter must print.
FIELDS = ("system", "version", "store", "durability", "in_flight", "workflows", "steps", "seconds", *METRICS)


def medians(lines: list[dict], baseline: str) -> list[dict]:
    """One entry for each system, store and number in flight, in the order of first appearance."""
    groups: dict[tuple, list[dict]] = {}
    for line in lines:
        figure = line["figure"]
        groups.setdefault((figure["system"], figure["store"], figure["in_flight"]), []).append(line)
    entries = []
    for (system, store, in_flight), members in groups.items():
        figures = [member["figure"] for member in members]
        entry = {
            "system": system,
            "version": figures[0]["version"],
            "store": store,
            "durability": figures[0]["durability"],
            "in_flight": in_flight,
            "rounds": len(figures),
            "quiet_rounds": sum(member["quiet"] for member in members),
        }
        for metric in METRICS:
            values = [figure[metric] for figure in figures if figure[metric] is not None]
            entry[metric] = median(values) if values else None
        speeds = [figure["steps_per_second"] for figure in figures]
        entry["steps_per_second_range"] = [min(speeds), max(speeds)]
        entries.append(entry)
    for entry in entries:
        base = [e for e in entries if e["system"] == baseline and e["in_flight"] == entry["in_flight"]]
        entry[f"speed_over_{baseline}"] = entry["steps_per_second"] / base[0]["steps_per_second"] if base else None
    return entries


def table(entries: list[dict], baseline: str) -> str:
    """The medians for a terminal."""
    head = ["system", "store", "in flight", "steps/s", f"x {baseline}", "p50 ms", "p99 ms", "WAL B/step", "commits/step"]
    rows = [head + ["quiet rounds"]]
    for entry in sorted(entries, key=lambda e: (-e["in_flight"], -e["steps_per_second"])):
        rows.append(
            [
                f"{entry['system']} {entry['version']}",
                entry["store"],
                str(entry["in_flight"]),
                _number(entry["steps_per_second"], 0),
                _number(entry[f"speed_over_{baseline}"], 2),
                _number(entry["workflow_p50_ms"], 1),
                _number(entry["workflow_p99_ms"], 1),
                _number(entry["wal_bytes_per_step"], 0),
                _number(entry["commits_per_step"], 2),
                f"{entry['quiet_rounds']} of {entry['rounds']}",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
