"""What gunicorn is told."""

from __future__ import annotations

import pytest
from gunicorn.config import Config

from prefork.errors import SettingError
from prefork.processes.asgi_worker import AsgiWorker
from prefork.processes.configuration import configure, effective
from prefork.processes.gevent_worker import GeventWorker
from prefork.processes.wsgi_workers import SyncWorker, ThreadWorker
from prefork.settings import Settings


def configured(**settings):
    cfg = Config()
    configure(cfg, effective(Settings(**{"bind": "127.0.0.1:9000", **settings})))
    return cfg


def test_every_setting_that_gunicorn_has_reaches_it():
    """The names of ours that are gunicorn's under another one, and those that are the same."""
    cfg = configured(
        bind="[::1]:1,unix:/x",
        workers=3,
        max_requests=10,
        max_requests_jitter=4,
        keepalive=7,
        timeout=8,
        graceful_timeout=9,
        log_level="warning",
        access_log=True,
        pidfile="/p",
        preload_app=True,
    )
    assert cfg.address == [("::1", 1), "/x"]
    assert (cfg.workers, cfg.max_requests, cfg.max_requests_jitter) == (3, 10, 4)
    assert (cfg.keepalive, cfg.timeout, cfg.graceful_timeout) == (7, 8, 9)
    assert (cfg.loglevel, cfg.accesslog, cfg.pidfile, cfg.preload_app) == ("warning", "-", "/p", True)
    assert cfg.control_socket_disable
    assert configured().accesslog is None
    assert configured().pidfile is None


def test_a_fraction_of_a_second_does_not_become_never():
    """gunicorn counts whole seconds, and 0 means something else."""
    cfg = configured(keepalive=0.2, timeout=0.2, graceful_timeout=1.5)
    assert (cfg.keepalive, cfg.timeout, cfg.graceful_timeout) == (1, 1, 2)
    assert configured(timeout=0).timeout == 0


@pytest.mark.parametrize(
    ("worker_class", "threads", "expected", "told"),
    [
        ("asgi", 1, AsgiWorker, 1),
        ("asgi", 8, AsgiWorker, 1),  # model threads are not gunicorn's business
        ("asgi", 0, AsgiWorker, 1),
        ("sync", 1, SyncWorker, 1),
        ("sync", 4, ThreadWorker, 4),
        ("gthread", 1, ThreadWorker, 1),
        ("gthread", 4, ThreadWorker, 4),
        ("gevent", 4, GeventWorker, 1),
    ],
)
def test_each_worker_class_is_ours(worker_class, threads, expected, told):
    """The classes by name; sync with threads is gthread, as in gunicorn."""
    cfg = configured(worker_class=worker_class, threads=threads)
    assert cfg.worker_class is expected
    assert cfg.threads == told


def test_any_other_setting_goes_through():
    """The gunicorn section and GUNICORN_CMD_ARGS take what gunicorn takes; the command line wins."""
    cfg = configured(
        gunicorn={"backlog": 5, "limit_request_fields": 7, "proc_name": "a"},
        gunicorn_cmd_args="--backlog 6 --name 'two words'",
    )
    assert (cfg.backlog, cfg.limit_request_fields, cfg.proc_name) == (6, 7, "two words")


def test_a_configuration_file_of_gunicorns_is_read(tmp_path):
    """`--config` in GUNICORN_CMD_ARGS: settings of gunicorn's own, also hooks; what is ours is said to us."""
    path = tmp_path / "gunicorn.conf.py"
    path.write_text("backlog = 9\nworkers = 77\ndef on_exit(server):\n    pass\n")
    cfg = configured(gunicorn_cmd_args=f"-c {path}", workers=2)
    assert (cfg.backlog, cfg.workers, cfg.on_exit.__name__) == (9, 2, "on_exit")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gunicorn": {"no_such": 1}}, "gunicorn: no_such"),
        ({"gunicorn": {"backlog": "many"}}, "gunicorn: backlog"),
        ({"gunicorn": {"workers": 3}}, "gunicorn: workers"),
        ({"gunicorn": {"loglevel": "debug"}}, "say log_level"),
        ({"gunicorn_cmd_args": "--no-such 1"}, "GUNICORN_CMD_ARGS: unrecognized"),
        ({"gunicorn_cmd_args": "--backlog many"}, "GUNICORN_CMD_ARGS"),
        ({"gunicorn_cmd_args": "app:app"}, "app:app"),
        ({"gunicorn_cmd_args": "-c /no/such.py"}, "/no/such.py"),
    ],
)
def test_what_gunicorn_does_not_take_is_one_line(settings, said):
    """A SettingError of one line that names the place."""
    with pytest.raises(SettingError, match=said) as caught:
        configured(**settings)
    assert "\n" not in str(caught.value)


def test_reload_switches_preloading_off():
    """Reloading needs workers that import the model anew, and a note says what that costs."""
    settings = effective(Settings(reload=True, preload_app=True))
    assert not settings.preload_app
    assert "preload_app is off" in settings.notes[-1]
    assert effective(Settings(preload_app=True)).preload_app
