"""KernelBench's own timing of references, in a process of its own: `python peer.py CHECKOUT JOBS SECONDS`, where JOBS is a file
with a list of {"level", "number", "name", "path"}. Prints one line of JSON for each; begins nothing new after so many seconds."""

import contextlib
import io
import json
import os
import sys
import time

checkout, jobs, limit_s = sys.argv[1:4]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "evidence_kernelbench"))
import stand_ins  # noqa: E402

stand_ins.import_from(checkout)

import torch  # noqa: E402
from kernelbench.timing import measure_ref_program_time  # noqa: E402

began = time.monotonic()
with open(jobs, encoding="utf-8") as file:
    listed = json.load(file)
for job in listed:
    if time.monotonic() - began > float(limit_s):
        sys.exit(3)
    started = time.monotonic()
    entry = {key: job[key] for key in ("level", "number", "name")}
    try:
        with open(job["path"], encoding="utf-8") as file, contextlib.redirect_stdout(io.StringIO()) as said:
            found = measure_ref_program_time(job["name"], file.read(), device=torch.device("cuda:0"))
        entry |= {"times": found} if found else {"fault": said.getvalue()[-300:]}
    except Exception as error:  # noqa: BLE001  the failure is recorded, and the next task is timed
        entry["fault"] = str(error)[:300]
    torch.cuda.empty_cache()
    entry["wall_s"] = round(time.monotonic() - started, 1)
    print(json.dumps(entry), flush=True)
