"""From Prefork's settings to gunicorn's configuration, and gunicorn's own settings on top of it.

Whatever gunicorn does not know or will not take is a SettingError of one line.
"""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Iterator
from typing import Any

import msgspec
from gunicorn.app.base import Application
from gunicorn.config import Config

from prefork.errors import SettingError
from prefork.processes.log import Log
from prefork.settings import Settings

_OURS = {
    "loglevel": "log_level",
    **{name: name for name in Settings.__struct_fields__},
}
"""gunicorn's names for settings of ours: there is one place to say them."""


def effective(settings: Settings) -> Settings:
    """The settings with what gunicorn makes of them: sync with threads is gthread, and reload has no use for preloading."""
    if settings.worker_class == "sync" and settings.threads > 1:
        settings = msgspec.structs.replace(settings, worker_class="gthread")
    if settings.reload and settings.preload_app:
        note = "preload_app is off: under reload each worker imports the model anew"
        settings = msgspec.structs.replace(settings, preload_app=False, notes=(*settings.notes, note))
    return settings


def configure(cfg: Config, settings: Settings) -> None:
    """Write effective settings into gunicorn's configuration. Raises SettingError."""
    for name, value in _mapped(settings).items():
        _set(cfg, name, value, name)
    for name, value in settings.gunicorn.items():
        if name in _OURS:
            raise SettingError(f"gunicorn: {name}: say {_OURS[name]}, beside gunicorn and not in it")
        _set(cfg, name, value, f"gunicorn: {name}")
    for name, value in _arguments(cfg, settings.gunicorn_cmd_args):
        _set(cfg, name, value, f"GUNICORN_CMD_ARGS: {name}")
    if cfg.statsd_host:  # gunicorn has a logger for statsd, which it takes only in the place of its own
        cfg.set("logger_class", "gunicorn.instrument.statsd.Statsd")


def _mapped(settings: Settings) -> dict[str, Any]:
    threaded = settings.worker_class == "gthread"
    return {
        "default_proc_name": "prefork",
        "bind": settings.bind.split(","),
        "workers": settings.workers,
        "worker_class": _worker_class(settings.worker_class),
        "threads": max(1, settings.threads) if threaded else 1,
        "max_requests": settings.max_requests,
        "max_requests_jitter": settings.max_requests_jitter,
        # gunicorn takes whole seconds; 0 means never or none, so no fraction may become it.
        "keepalive": math.ceil(settings.keepalive),
        "timeout": math.ceil(settings.timeout),
        "graceful_timeout": math.ceil(settings.graceful_timeout),
        "loglevel": settings.log_level,
        "accesslog": "-" if settings.access_log else None,
        "pidfile": settings.pidfile or None,
        "preload_app": bool(settings.preload_app),
        "logger_class": Log,
        "limit_request_line": 8190,  # Seldon's clients may send their JSON in the query
        "asgi_lifespan": "off",
        "control_socket_disable": True,
    }


def _worker_class(name: str) -> type:
    if name == "asgi":
        from prefork.processes.asgi_worker import AsgiWorker

        return AsgiWorker
    if name == "gevent":
        return _gevent()
    from prefork.processes import wsgi_workers

    return wsgi_workers.ThreadWorker if name == "gthread" else wsgi_workers.SyncWorker


def _gevent() -> type:
    try:
        from prefork.processes.gevent_worker import GeventWorker
    except (ImportError, RuntimeError) as error:
        raise SettingError(f"worker_class: gevent is not installed: pip install 'prefork[gevent]' ({error})") from None
    return GeventWorker


def _set(cfg: Config, name: str, value: Any, source: str) -> None:
    if name not in cfg.settings:
        raise SettingError(f"{source}: gunicorn has no such setting")
    try:
        cfg.set(name, value)
    except Exception as error:  # noqa: BLE001 - each of gunicorn's validators has exceptions of its own
        raise SettingError(f"{source}: {error}") from None


def _arguments(cfg: Config, text: str) -> Iterator[tuple[str, Any]]:
    """What a command line of gunicorn's says, the names in its `--config` file first."""
    if not text:
        return
    parser = cfg.parser()
    parser.__class__ = _Parser
    said = {name: value for name, value in vars(parser.parse_args(shlex.split(text))).items() if value is not None}
    for word in said.pop("args", ()):
        raise SettingError(f"GUNICORN_CMD_ARGS: {word}: gunicorn has no such argument")
    path = said.pop("config", None)
    if path:
        yield from _file(path, cfg)
    yield from said.items()


def _file(path: str, cfg: Config) -> Iterator[tuple[str, Any]]:
    reader = Application.__new__(Application)
    try:
        values = reader.get_config_from_filename(path.removeprefix("file:"))
    except (RuntimeError, SystemExit) as error:  # of a file that raises gunicorn has printed the traceback
        raise SettingError(f"GUNICORN_CMD_ARGS: --config {path}: {error or 'it cannot be run'}") from None
    yield from ((name, value) for name, value in values.items() if name in cfg.settings and name not in _OURS)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise SettingError(f"GUNICORN_CMD_ARGS: {message}")
