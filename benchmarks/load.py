"""One run of wrk against a running server."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import Running
from benchmarks.wires import Call

SCRIPT = """
local file = io.open("%(body)s", "rb")
wrk.method = "POST"
wrk.body = file:read("*a")
file:close()
for name, value in pairs({%(headers)s}) do wrk.headers[name] = value end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('\\n{"requests": %%d, "microseconds": %%d, "failed": %%d, "p50": %%d, "p99": %%d}\\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True)
class Sample:
    """What one run measured: CPU microseconds of all server processes a request, requests a second, latencies in us."""

    cpu: float
    rate: float
    p50: float
    p99: float


def measure(target: Running, call: Call, *, connections: int, seconds: float) -> Sample:
    """Load the server with keep-alive connections for some seconds.

    Raises RuntimeError when any request failed: a server that answers errors quickly is not fast.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = _script(Path(folder), call)
        url = f"http://127.0.0.1:{target.port}{call.path}"
        before = target.cpu()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(script), url]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        used = target.cpu() - before
    counts = json.loads(said.strip().splitlines()[-1])
    if counts["failed"] or not counts["requests"]:
        raise RuntimeError(f"{target.server.name}: {counts['failed']} of {counts['requests']} requests failed")
    rate = counts["requests"] / counts["microseconds"] * 1e6
    return Sample(used / counts["requests"] * 1e6, rate, counts["p50"], counts["p99"])


def _script(folder: Path, call: Call) -> Path:
    body, script = folder / "body", folder / "post.lua"
    body.write_bytes(call.body)
    headers = ", ".join(f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in call.headers.items())
    script.write_text(SCRIPT % {"body": body, "headers": headers})
    return script
