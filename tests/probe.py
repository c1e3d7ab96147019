"""A server to be watched from outside: `python probe.py SETTINGS_AS_JSON`, with files in $PROBE_DIR as its controls.

The whole process floor with a model of a few lines in the place of a user's class. It answers with its process id and
the VERSION of `probe_model.py`, and leaves a file for each thing that it does:

    constructed.PID  loading.PID  closed.PID  entered.PID  service.PID

A file called `gate` holds loading up; `fail` makes loading raise what it names, `fail.construct` constructing,
`fail.once` the first worker that finds it; `service` gives the model a custom_service that does what it says.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs

from prefork.application import Front
from prefork.processes import arbiter
from prefork.settings import Settings

PLACE = Path(os.environ["PROBE_DIR"])
FAILURES = {"AttributeError": AttributeError, "RuntimeError": RuntimeError, "SystemExit": SystemExit}


def mark(what):
    (PLACE / f"{what}.{os.getpid()}").touch()


def fail_if(name):
    with suppress(FileNotFoundError):
        why = (PLACE / name).read_text()
        if why == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise FAILURES[why]("told to fail")


class Probe:
    """The model."""

    def __init__(self):
        sys.path.append(str(PLACE))
        self.version = importlib.import_module("probe_model").VERSION

    @property
    def custom_service(self):
        return self._serve_custom if (PLACE / "service").exists() else None

    def _serve_custom(self):
        mark("service")
        if (PLACE / "service").read_text() == "wait":
            signal.pause()
        raise RuntimeError("the service was told to fail")

    def answer(self):
        return json.dumps({"pid": os.getpid(), "version": self.version}).encode()


class Wiring:
    """What `prefork.application` is to the arbiter."""

    @staticmethod
    def construct(_settings):
        mark("constructed")
        fail_if("fail.construct")
        return Probe()

    @staticmethod
    def serve(model, settings, account):
        mark("loading")
        while (PLACE / "gate").exists():
            time.sleep(0.01)
        fail_if("fail")
        with suppress(FileNotFoundError):
            (PLACE / "fail.once").rename(PLACE / "failed")
            raise RuntimeError("told to fail once")
        app = asgi(model) if settings.worker_class == "asgi" else wsgi(model)
        return Front(app, lambda: mark("closed"), "Probe", f"curl http://{settings.bind}/", model.custom_service)

    @staticmethod
    def try_out(_model, _settings, _begin):
        return "nothing"


def asgi(model):
    async def app(scope, receive, send):
        path, query = scope["path"], parse_qs(scope["query_string"].decode())
        seconds = float(query.get("seconds", ["0"])[0])
        if path != "/unread":
            while (await receive()).get("more_body"):
                pass
        if path == "/slow":
            mark("entered")
            await asyncio.sleep(seconds)
        status, body = respond(path, seconds, model)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def wsgi(model):
    def app(environ, start_response):
        path, query = environ["PATH_INFO"], parse_qs(environ["QUERY_STRING"])
        seconds = float(query.get("seconds", ["0"])[0])
        if path == "/slow":
            mark("entered")
            time.sleep(seconds)
        status, body = respond(path, seconds, model)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status} Whatever", headers)
        return [body]

    return app


def respond(path, seconds, model):
    if path == "/block":
        mark("entered")
        time.sleep(seconds)
    if path == "/log":
        logging.getLogger("somebody.else").warning("the model has something to say")
    if path == "/boom":
        raise RuntimeError("the application failed")
    if path == "/unread":
        return 413, b"{}"
    return 200, model.answer()


if __name__ == "__main__":
    sys.exit(arbiter.run(Settings(**json.loads(sys.argv[1])), Wiring()))
