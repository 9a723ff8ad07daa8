"""The programs of the corpus, by what stands in their first lines."""

import re
from pathlib import Path

CORPUS = Path(__file__).resolve().parent.parent.parent / "tests" / "corpus"
FOLDERS = {"native": "cuda", "cpu": "cpu", "torch": "torch", "kernelbench": "torch"}


def programs(part):
    """The programs of one part: attacks and honest ones."""
    found = []
    for kind, folder in (("attack", "attacks"), ("honest", "honest")):
        form = FOLDERS[part]
        for path in sorted((CORPUS / folder / form).iterdir()):
            text = path.read_bytes().decode("utf-8-sig", errors="replace")
            head = text[:2000]
            said = dict(re.findall(r"^(?://|#) (task|class|style|what|twin|dormant|allowed): (.*?)\s*$", head, re.MULTILINE))
            twin = CORPUS / "twins" / form / said["twin"] if "twin" in said else None
            found.append({"path": path, "twin": twin, "name": path.name, "kind": kind, "form": form, "task": said["task"],
                          "class": said.get("class") or said.get("style"), "what": said["what"],
                          "dormant": said.get("dormant"), "allowed": said.get("allowed"), "extension": "load_inline" in text or "cpp_extension" in text})
    return found
