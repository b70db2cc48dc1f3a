"""Print the id of the question that a job asks somebody: python ask.py JOB Finance."""

import json
import subprocess
import sys

job, who = sys.argv[1:]
listed = subprocess.run(
    ["loom", "approvals", "--job", job, "--json"], check=True, capture_output=True, text=True
).stdout
waiting = [row["id"] for row in map(json.loads, listed.splitlines()) if row["summary"].startswith(who)]
if not waiting:
    sys.exit(f"{job} does not ask {who}")
print(waiting[0])
