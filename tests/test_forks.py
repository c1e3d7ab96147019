"""Children that the model's code forks, over HTTP, in an HTTP worker and in a process of the model's own."""

from __future__ import annotations

import pytest

from running import serving

SOURCE = """
import asyncio, multiprocessing, os, sys

def status(pid):
    return str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

class Forks:
    def predict(self, X, names):
        return getattr(self, X)()

    def returns(self):
        pid = os.fork()
        return status(pid) if pid else "from the child"

    def raises(self):
        pid = os.fork()
        if not pid:
            raise ValueError("from the child")
        return status(pid)

    def exits(self):
        pid = os.fork()
        if not pid:
            sys.exit(4)
        return status(pid)

    def uses_multiprocessing(self):
        child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(6,))
        child.start()
        child.join()
        return str(child.exitcode)

    def uses_a_pool(self):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return str(pool.map(abs, [-1, 2]))

class ForksLater:
    async def predict(self, X, names):
        pid = os.fork()
        if pid:
            return await asyncio.to_thread(status, pid)
        if X == "awaits":
            await asyncio.sleep(0)
        if X == "exits":
            sys.exit(4)
        return "from the child"
"""


@pytest.mark.parametrize("host", ["worker", "process"])
@pytest.mark.parametrize(
    ("model", "asked"),
    [
        (
            "Forks",
            {"returns": "70", "raises": "70", "exits": "4", "uses_multiprocessing": "6", "uses_a_pool": "[1, 2]"},
        ),
        ("ForksLater", {"returns": "70", "awaits": "70", "exits": "4"}),
    ],
)
def test_a_forked_child_does_not_come_back_into_the_server(tmp_path, host, model, asked):
    """It ends there, its parent alone answers, and nobody serves beside it; multiprocessing's children do as always."""
    with serving(tmp_path, SOURCE, "--host", host, model=f"M:{model}") as running, running.client() as client:
        for what, said in asked.items():
            for _ in range(3):
                assert client.post("/predict", json={"strData": what}).json().get("strData") == said, what
        assert "came back into the server" in running.log


def test_a_child_that_is_forked_while_the_model_loads_loads_no_second_one(tmp_path):
    """The constructor's and load()'s child ends when it is back in the server."""
    source = """
        import os
        class M:
            def __init__(self):
                self.first = os.fork()
            def load(self):
                self.second = os.fork()
            def predict(self, X, names):
                return str([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (self.first, self.second)])
    """
    with serving(tmp_path, source, "--host", "process", model="M") as running, running.client() as client:
        assert client.post("/predict", json={"strData": ""}).json()["strData"] == "[70, 70]"


def test_a_child_of_a_stream_does_not_send_its_rest(tmp_path):
    """Neither its parts nor its end."""
    source = """
        import os
        class M:
            def predict(self, X, names):
                yield "one"
                pid = os.fork()
                if not pid:
                    return
                yield str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    with serving(tmp_path, source, "--host", "process", model="M") as running, running.client() as client:
        text = client.post("/v2/models/M/generate_stream", json={"text_input": "x"}).text
        assert ("one" in text, "70" in text) == (True, True)
