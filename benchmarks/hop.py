"""What one hop to a model's own process costs: CPU of both ends for a tiny request, and time for large tensors.

`python -m benchmarks.hop`: microseconds of CPU of the client and of the instance, on a thread and on an event loop; and how long
1 MiB and 10 MiB take there and back, beside the least that the way takes: a copy into shared memory, a byte on a socket, a copy by
the other process, and a byte back. That peer runs in the same run, alternating with what is measured.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.report import table
from prefork.payload import Kind, Payload
from prefork.remote import Card, Charge, RemoteInstance
from prefork.repository.config import ModelConfig
from prefork.supervisor.spawn import spawn

MODEL = """
class Echo:
    def predict(self, X, names):
        return X

class AsyncEcho:
    async def predict(self, X, names):
        return X
"""

TINY = 20_000
LARGE = 60
MIB = 1 << 20
TICK = os.sysconf("SC_CLK_TCK")


class Instance:
    """A process with that class, and a client of it."""

    def __init__(self, class_: str, folder: str) -> None:
        path = f"{folder}/{class_}.sock"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(128)
        self._control, theirs = socket.socketpair()
        self.pid = spawn(
            (sys.executable, "-P", "-m", "prefork.remote"),
            {**os.environ, "OMP_NUM_THREADS": "1"},
            {1: 1, 2: 2, 3: theirs.fileno(), 4: self._listener.fileno()},
        )
        theirs.close()
        config = ModelConfig(name="echo", class_=f"echo:{class_}")
        self._say(msgspec.json.encode(Charge(config=config, folder=folder, listeners=(4,), parent=os.getpid())))
        self._lines = self._control.makefile("rb")
        self.remote = RemoteInstance(lambda _level: path, self._ready())
        self._say(b'{"do":"serve"}')

    def cpu(self) -> float:
        """Seconds of CPU that it has had; the kernel counts in ticks."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def close(self) -> None:
        """End it."""
        self._say(b'{"do":"close"}')
        os.waitpid(self.pid, 0)
        self.remote.close()
        self._lines.close()
        self._control.close()
        self._listener.close()

    def _ready(self) -> Card:
        for line in self._lines:
            event = msgspec.json.decode(line)
            if event["event"] == "ready":
                return msgspec.convert(event["card"], Card)
        raise RuntimeError("the instance has ended")

    def _say(self, line: bytes) -> None:
        self._control.sendall(line + b"\n")


def tiny_on_a_thread(remote: RemoteInstance, count: int) -> None:
    """Ask so many times for 1x4 float64."""
    request = Payload(Kind.TENSOR, np.ones((1, 4)))
    for _ in range(count):
        for _answer in remote.infer(request):
            pass


def tiny_on_a_loop(remote: RemoteInstance, count: int) -> None:
    """As many, on an event loop."""

    async def ask() -> None:
        request = Payload(Kind.TENSOR, np.ones((1, 4)))
        for _ in range(count):
            async for _answer in remote.infer_async(request):
                pass

    asyncio.run(ask())


def tiny(instance: Instance, ask: Callable[[RemoteInstance, int], None]) -> tuple[float, float]:
    """Microseconds of CPU of a request, of the client and of the instance."""
    ask(instance.remote, TINY // 10)
    ours, theirs = time.process_time(), instance.cpu()
    ask(instance.remote, TINY)
    return (time.process_time() - ours) / TINY * 1e6, (instance.cpu() - theirs) / TINY * 1e6


BARE = """
import mmap, socket, sys
size = int(sys.argv[1])
shared = mmap.mmap(int(sys.argv[2]), 2 * size)
sock = socket.socket(fileno=int(sys.argv[3]))
view = memoryview(shared)
while sock.recv(1):
    view[size:] = view[:size]
    sock.send(b"x")
"""


@contextmanager
def bare(size: int) -> Iterator[Callable[[np.ndarray], None]]:
    """Echoes an array over a memfd and a socket as a doorbell, with nothing else around it."""
    descriptor = os.memfd_create("bare", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, 2 * size)
    shared = memoryview(mmap.mmap(descriptor, 2 * size))
    ours, theirs = socket.socketpair()
    arguments = [sys.executable, "-c", BARE, str(size), str(descriptor), str(theirs.fileno())]
    process = subprocess.Popen(arguments, pass_fds=(descriptor, theirs.fileno()))
    theirs.close()

    def ask(array: np.ndarray) -> None:
        shared[:size] = memoryview(array)
        ours.send(b"x")
        ours.recv(1)

    yield ask
    ours.close()
    process.wait()
    os.close(descriptor)


def large(instance: Instance, size: int) -> tuple[float, float]:
    """Microseconds there and back: through the hop and bare, the median of alternating tries."""
    array = np.zeros(size, np.uint8)
    request = Payload(Kind.TENSOR, array)
    found: tuple[list[float], list[float]] = ([], [])

    def hop(_array: np.ndarray) -> None:
        for _answer in instance.remote.infer(request):
            pass

    with bare(size) as least:
        for number in range(2 * LARGE):
            for ask, times in zip((hop, least), found, strict=True):
                begun = time.perf_counter()
                ask(array)
                if number >= LARGE // 4:
                    times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(found[0]), statistics.median(found[1])


def crossing() -> str:
    """The table of large tensors."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "echo.py").write_text(MODEL, encoding="utf-8")
        instance = Instance("Echo", folder)
        for size in (MIB, 10 * MIB):
            hop, least = large(instance, size)
            rate = f"{least / hop:.2f} (goal: at least 0.5)"
            rows.append([f"{size // MIB} MiB", f"{hop:,.0f} us", f"{least:,.0f} us", rate])
        instance.close()
    return table(["there and back between processes", "the hop", "memcpy and a byte", "of its throughput"], rows)


def main() -> None:
    """Print what is found."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "echo.py").write_text(MODEL, encoding="utf-8")
        instances = {name: Instance(name, folder) for name in ("Echo", "AsyncEcho")}
        for name, instance in instances.items():
            for ask in (tiny_on_a_thread, tiny_on_a_loop):
                client, far = tiny(instance, ask)
                print(f"{name:9} {ask.__name__:16} client {client:5.1f} us CPU   instance {far:5.1f} us CPU")
        for instance in instances.values():
            instance.close()
    print(crossing())


if __name__ == "__main__":
    main()
