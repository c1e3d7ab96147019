"""Models for what only a process of its own has to stand."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time

import flask
import numpy as np

from prefork import Sender


class Worker:
    """Does what the text says; X of anything else is answered as it is."""

    count = freed = 0

    def predict(self, X, names, meta=None):
        if not isinstance(X, str):
            return X
        what, _, argument = X.partition(" ")
        return getattr(self, what)(argument, meta)

    def hold(self, _argument, meta):
        while not meta["cancelled"]():
            time.sleep(0.005)
        self.freed += 1
        return "released"

    def hang(self, _argument, _meta):
        threading.Event().wait()

    def count_up(self, _argument, _meta):
        self.count += 1
        return str(self.count)

    def counted(self, _argument, _meta):
        return str(self.count)

    def released(self, _argument, _meta):
        return str(self.freed)

    def die(self, argument, _meta):
        if argument == "exit":
            os._exit(9)
        os.kill(os.getpid(), int(argument))

    def child(self, _argument, _meta):
        child = multiprocessing.get_context("fork").Process(target=signal.pause)
        child.start()
        child.terminate()
        child.join(20)
        code = child.exitcode
        if code is None:
            child.kill()
        return str(code)

    def ignored(self, _argument, _meta):
        return ",".join(str(int(signal.getsignal(each) == signal.SIG_IGN)) for each in (signal.SIGTERM, signal.SIGINT))

    def allocate(self, argument, _meta):
        return str(np.ones(int(argument), np.uint8).size)

    def leave_loop(self, _argument, _meta):
        return self.ended_loop()

    async def ended_loop(self):
        loop = asyncio.get_running_loop()
        loop.call_soon(sys.exit, "no more of this")
        loop.stop()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "back"

    def raise_base(self, _argument, _meta):
        raise asyncio.CancelledError

    def interrupt(self, _argument, _meta):
        raise KeyboardInterrupt

    def large(self, argument, _meta):
        return np.zeros(int(argument), np.uint8)

    def where(self, _argument, _meta):
        return os.getcwd()

    def mapped(self, _argument, _meta):
        with pathlib.Path("/proc/self/maps").open() as maps:
            return str(sum("memfd:prefork" in line for line in maps))


class AsyncWorker:
    """The loop that it was first asked on is the one that it is asked on."""

    loop = None
    freed = 0

    async def predict(self, X, names, meta=None):
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop()
        if not isinstance(X, str):
            return X
        return await getattr(self, X)()

    async def hold(self):
        try:
            await asyncio.Event().wait()
        finally:
            self.freed += 1

    async def released(self):
        return str(self.freed)

    async def stop(self):
        asyncio.get_running_loop().stop()
        await self.hold()

    async def leave(self):
        self.task = asyncio.create_task(self.left())
        await self.hold()

    async def left(self):
        raise SystemExit("no more of this")

    def example(self):
        return np.ones(3)


class Trickle:
    """Returns a stream without saying so; the second part comes when the file that X names is there."""

    def predict(self, X, names):
        return self.parts(X)

    def parts(self, path):
        yield "first"
        while not pathlib.Path(path).exists():
            time.sleep(0.005)
        yield "second"


class AsyncTrickle:
    async def predict(self, X, names):
        return self.parts(X)

    async def parts(self, path):
        yield "first"
        while not pathlib.Path(path).exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.005)
        yield "second"


class Keeping:
    """Sends one part and keeps the sender."""

    kept = []

    def predict(self, text: str, sender: Sender) -> None:
        sender.send({"text": text})
        self.kept.append(sender)


class Cyclic:
    """Sends one part, and leaves the sender in a cycle that Python does not collect by itself for long."""

    def load(self):
        gc.set_threshold(1_000_000_000)

    def predict(self, text: str, sender: Sender) -> None:
        sender.send({"text": text})
        cycle = [sender]
        cycle.append(cycle)


class AsyncCyclic(Cyclic):
    async def predict(self, text: str, sender: Sender) -> None:
        Cyclic.predict(self, text, sender)


class Half:
    """Typed: a float16."""

    seen = []

    def predict(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        self.seen.append(x.dtype.name + "," + y.dtype.name)
        return {"seen": np.array(self.seen)}


class Sized:
    """Batched."""

    def predict(self, X, names):
        if (X == -1).any():
            raise ValueError("minus one")
        return X


class Broken:
    def load(self):
        raise RuntimeError("no weights")


class Leaves:
    def __init__(self):
        raise SystemExit(5)


class Greedy:
    def load(self):
        self.weights = np.ones(1 << 32, np.uint8)


class Described:
    """Typed, and does not say of what: notes what it was asked with."""

    seen = []

    def predict(self, A: np.ndarray, B: np.ndarray) -> dict[str, np.ndarray]:
        if A.shape == (4,):
            raise ValueError("four are too many")
        self.seen += [f"{each.dtype} {','.join(map(str, each.shape))}" for each in (A, B)]
        return {"seen": np.array(self.seen)}


class WithExample:
    """Says itself how it is asked, and has two numbers a row."""

    example = [7, 8]
    seen = []

    def predict(self, X, names):
        if isinstance(X, str):
            return {"seen": self.seen}
        self.seen.append(X.ravel().tolist())
        return X


class Serviced:
    """Has a service of its own, which fails once and then runs for ever; says how often it was started, and in which thread."""

    started = 0
    thread = ""

    def custom_service(self):
        self.started += 1
        if self.started == 1:
            raise RuntimeError("the port is taken")
        self.thread = threading.current_thread().name
        threading.Event().wait()

    def predict(self, X, names):
        return {"started": self.started, "thread": self.thread}


class Ended:
    """Its service returns."""

    def custom_service(self):
        pass

    def predict(self, X, names):
        return X


class WithPages:
    """Carries Flask blueprints."""

    blueprint = flask.Blueprint("own", __name__)
    model_error_handler = flask.Blueprint("errors", __name__)

    def predict(self, X, names):
        return X
