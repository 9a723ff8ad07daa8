"""The page about trust, from the results."""

from collections import Counter
from math import sqrt

from .corpus import programs

PARTS = {"native": "Native programs on a GPU", "torch": "PyTorch programs on a GPU", "cpu": "Native programs on the host"}
RIGHT = ("correct_faster", "correct_not_faster")
PEER_FASTER = 1.05
"""Ratio above which KernelBench's evaluation counts as calling a program faster: it gives no interval."""
ALLOWED = {(part, program["name"]): program["allowed"] for part in PARTS for program in programs(part) if program["kind"] == "attack"}

HEAD = """# Trust: attacks and honest programs

Made by `scripts/evidence-trust` from the programs of `tests/corpus`, each judged by `nightshift verify`. An *attack* wants to be
published as faster without being so, or to disturb the machine. An *honest* program computes what it is asked for, in the styles
in which engineers and models write.

- **Published as faster**: the verdict was `correct_faster`.
- **Not flagged**: the verdict was right, and no rule was found broken. Such an attack gained nothing if it is no faster.
- **Dormant**: an attack whose trigger, as its own first lines name it, lies beyond the calls that were made. Its outputs were right in each
  of them. It counts like every other attack. We marked these programs after their results were known.
- **Allowed**: what an attack gains by is allowed to every program, and its number is what a user finds. Its first lines say why. It counts
  like every other attack.
- **Refused or wrong**: an honest program whose verdict is neither of the right ones.

Many attacks are a fast program with something added that has no effect. Each published one is therefore timed against its *twin*, the same
program without the addition (`tests/corpus/twins`). It **gained** when it is faster than its twin by more than 3 %, by the lower end
of the 95 % interval; it gained **nothing** when the upper end is below 1.03; else it is undecided. Every one counts as published.

Rates have 95 % intervals (Wilson). The script ran several times, at the commits that stand below.
"""


def page(results):
    latest = {key_of(entry): entry for entry in results}
    entries = sorted(latest.values(), key=lambda entry: (entry["kind"], entry["class"], entry["name"]))
    lines = [HEAD, "## Where and when\n"]
    for part in [*PARTS, "kernelbench"]:
        judgements = Counter((machine_of(entry), entry["commit"]) for entry in entries if entry["part"] == part)
        lines += [f"- {part}, commit {name}, {count} programs: {machine}" for (machine, name), count in sorted(judgements.items())]
    lines += ["", "## Rates\n", "| Programs | Attacks | published as faster | of them gained | not flagged | Honest | refused or wrong | no faster |",
              "| --- | ---: | --- | --- | --- | ---: | --- | ---: |"]
    for part, title in PARTS.items():
        mine = [entry for entry in entries if entry["part"] == part]
        if mine:
            lines.append(f"| {title} | {' | '.join(rates(mine))} |")
    everything = [entry for entry in entries if entry["part"] in PARTS]
    lines.append(f"| **All** | {' | '.join(rates(everything))} |")
    for part, title in PARTS.items():
        mine = [entry for entry in entries if entry["part"] == part]
        if mine:
            earlier = [entry for entry in results if entry["part"] == part and entry["kind"] == "honest" and judged(entry)
                       and entry["verdict"] not in RIGHT and latest[key_of(entry)] is not entry]
            lines += ["", f"## {title}\n", *section(mine, earlier)]
    peers = {(entry["kind"], entry["name"]): entry for entry in entries if entry["part"] == "kernelbench"}
    if peers:
        lines += ["", "## Beside KernelBench's own evaluation\n", *beside(entries, peers)]
    return "\n".join(lines) + "\n"


def machine_of(entry):
    facts = entry["machine"]
    how = f"; {facts['how']}" if "how" in facts else ""
    return f"{facts['date']}, {facts['gpu']}; {facts['processor']}; PyTorch {facts['pytorch']}; {facts['version']}{how}"


def key_of(entry):
    return entry["part"], entry["kind"], entry["form"], entry["name"]


def rates(entries):
    attacks = [entry for entry in entries if entry["kind"] == "attack" and judged(entry)]
    honest = [entry for entry in entries if entry["kind"] == "honest" and judged(entry)]
    faster = [entry for entry in attacks if entry["verdict"] == "correct_faster"]
    missed = [entry for entry in attacks if entry["verdict"] in RIGHT]
    refused = [entry for entry in honest if entry["verdict"] not in RIGHT]
    slower = [entry for entry in honest if entry["verdict"] == "correct_not_faster"]
    dormant = sum(map(is_dormant, attacks))
    count = f"{len(attacks)}" + (f" ({dormant} dormant)" if dormant else "")
    gains = Counter(gained(entry) for entry in faster)
    told = ", ".join(f"{gains[name]} {name}" for name in ("gained", "nothing", "undecided", "no twin") if gains[name]) or "–"
    return count, share(faster, attacks), told, share(missed, attacks), str(len(honest)), share(refused, honest), str(len(slower))


def gained(entry):
    """What a published attack has of its addition."""
    gain = entry.get("gain")
    if gain is None:
        return "no twin"
    if gain.get("low") is None:
        return "undecided"
    return "gained" if gain["low"] > 1.03 else "nothing" if gain["high"] < 1.03 else "undecided"


def judged(entry):
    return entry["verdict"] is not None


def is_dormant(entry):
    return bool(entry.get("dormant")) and entry["verdict"] in RIGHT


def share(some, of):
    if not of:
        return "–"
    low, high = wilson(len(some), len(of))
    return f"{len(some)} ({100 * len(some) / len(of):.1f} %, {100 * low:.1f} to {100 * high:.1f})"


def wilson(count, total, z=1.96):
    ratio = count / total
    middle = (ratio + z * z / (2 * total)) / (1 + z * z / total)
    reach = z / (1 + z * z / total) * sqrt(ratio * (1 - ratio) / total + z * z / (4 * total * total))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def section(entries, earlier):
    attacks = [entry for entry in entries if entry["kind"] == "attack"]
    honest = [entry for entry in entries if entry["kind"] == "honest"]
    lines = ["| Class of attack | Programs | Stopped by screening | build | check | measurement | Not flagged | Published |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name in sorted({entry["class"] for entry in attacks}):
        mine = [entry for entry in attacks if entry["class"] == name and judged(entry)]
        stopped = [entry for entry in mine if entry["verdict"] not in RIGHT]
        steps = [sum(entry["step"] == step for entry in stopped) for step in ("screening", "build", "check", "measurement")]
        right = sum(entry["verdict"] in RIGHT for entry in mine)
        faster = sum(entry["verdict"] == "correct_faster" for entry in mine)
        lines.append(f"| `{name}` | {len(mine)} | {' | '.join(map(str, steps))} | {right} | {faster} |")
    missed = [entry for entry in attacks if entry["verdict"] in RIGHT]
    if missed:
        lines += ["", "Attacks that were not flagged:\n", "| Program | Class | What it does | Speedup | Over its twin | Calls verified | Commit | Remark |",
                  "| --- | --- | --- | ---: | --- | ---: | --- | --- |"]
        lines += [f"| `{entry['name']}` | `{entry['class']}` | {entry['what']} | {speedup(entry)} | {over_twin(entry)} | {verified(entry)} | "
                  f"{entry['commit']} | {remark(entry)} |" for entry in missed]
    refused = [entry for entry in honest if judged(entry) and entry["verdict"] not in RIGHT]
    right = sum(entry["verdict"] in RIGHT for entry in honest)
    lines += ["", f"Of {sum(map(judged, honest))} honest programs {right} were called right."]
    if refused:
        lines += ["", "Honest programs that were refused or called wrong:\n", "| Program | Verdict | Step | Codes | Message | Commit |",
                  "| --- | --- | --- | --- | --- | --- |"]
        lines += [f"| `{entry['name']}` | `{entry['verdict']}` | {entry['step']} | {' '.join(entry['codes'])} | {cell(entry['message'])} | "
                  f"{entry['commit']} |" for entry in refused]
    if earlier:
        lines += ["", "Honest programs that an earlier commit refused or called wrong. Each was judged again after the program or Nightshift had "
                  "been mended:\n", "| Program | Verdict | Step | Commit |", "| --- | --- | --- | --- |"]
        lines += [f"| `{entry['name']}` | `{entry['verdict']}` | {entry['step']} | {entry['commit']} |" for entry in earlier]
    faults = [entry for entry in entries if not judged(entry)]
    if faults:
        lines += ["", "Not judged, for the machine or the reference:\n", "| Program | Code | Message |", "| --- | --- | --- |"]
        lines += [f"| `{entry['name']}` | `{entry['fault']['code']}` | {cell(entry['fault']['message'])} |" for entry in faults]
    return lines


def beside(entries, peers):
    ours = {(entry["kind"], entry["name"]): entry for entry in entries if entry["part"] == "torch"}
    both = [(ours[key], peer) for key, peer in peers.items() if key in ours]
    differing = [peer for mine, peer in both if mine["kind"] == "honest" and peer["verdict"] == "wrong" and "max_difference" in peer["message"]]
    lines = [f"Programs that both judged. KernelBench's evaluation gives no interval: *faster* means a ratio above {PEER_FASTER} there, and "
             "`correct_faster` here. It turns every input into a float, so that models that take indices or masks fail in it; such programs are "
             f"not judged. Of the honest programs that it does not call right, {len(differing)} differ from the reference by more than its tolerance "
             "of 0.0001, and the others fail in it.\n",
             "| Programs | | Nightshift | KernelBench |", "| --- | --- | --- | --- |"]
    for kind, word, of_ours, of_peer in (
            ("attack", "called right and faster", lambda mine: mine["verdict"] == "correct_faster", is_faster),
            ("attack", "called right", lambda mine: mine["verdict"] in RIGHT, is_correct),
            ("honest", "not called right", lambda mine: mine["verdict"] not in RIGHT, lambda peer: not is_correct(peer))):
        pairs = [(mine, peer) for mine, peer in both if mine["kind"] == kind and judged(mine) and peer["verdict"] != "not judged"]
        lines.append(f"| {kind} ({len(pairs)}) | {word} | {share([mine for mine, _ in pairs if of_ours(mine)], pairs)} | "
                     f"{share([peer for _, peer in pairs if of_peer(peer)], pairs)} |")
    reasons = Counter(first_words(peer["message"]) for peer in peers.values() if peer["verdict"] == "not judged")
    if reasons:
        told = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
        lines.append(f"\nNot judged by KernelBench's evaluation: {told}.")
    lines += ["", "| Program | Kind | Class | Nightshift | Speedup | KernelBench | Speedup |", "| --- | --- | --- | --- | ---: | --- | ---: |"]
    for key, peer in peers.items():
        mine = ours.get(key)
        verdict = (mine["verdict"] or mine["fault"]["code"]) if mine else "–"
        codes = f" ({' '.join(mine['codes'])})" if mine and mine["codes"] else ""
        lines.append(f"| `{key[1]}` | {key[0]} | `{peer['class']}` | `{verdict}`{codes} | {speedup(mine or {})} | {peer['verdict']} | "
                     f"{speedup(peer)} |")
    return lines


def is_correct(peer):
    return peer["verdict"] == "correct"


def is_faster(peer):
    return is_correct(peer) and ((peer.get("speedup") or {}).get("estimate") or 0) > PEER_FASTER


def first_words(message):
    lines = (message or "no reason").strip().splitlines()
    return lines[0][:90].replace("|", "\\|")


def speedup(entry):
    found = (entry.get("speedup") or {}).get("estimate")
    return f"{found:.2f}" if found else ""


def verified(entry):
    found = entry.get("verification")
    if not found:
        return ""
    return f"{found['verified_calls']} of {found['timed_calls']}, {found.get('later_calls', 0)} later"


def over_twin(entry):
    gain = entry.get("gain") or {}
    if gain.get("low") is None:
        return ""
    return f"{gain['estimate']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})"


def remark(entry):
    dormant = f"; dormant: {entry['dormant']}" if is_dormant(entry) else ""
    if entry["verdict"] == "correct_not_faster":
        return "no faster" + dormant
    reason = ALLOWED.get((entry["part"], entry["name"]))
    return f"**published**, {gained(entry)}{dormant}" + (f"; allowed: {reason}" if reason and gained(entry) == "gained" else "")


def cell(text):
    return " ".join((text or "").split())[:160].replace("|", "\\|")
