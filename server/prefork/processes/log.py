"""The log: gunicorn's, without its small talk, and with the same form for Prefork's and the user's own loggers."""

from __future__ import annotations

import logging
from typing import Any

from gunicorn.glogging import Logger

_SMALL_TALK = frozenset(
    {
        "Starting gunicorn %s",
        "Listening at: %s (%s)",
        "Using worker: %s",
        "Booting worker with pid: %s",
        "Worker exiting (pid: %s)",
        "Handling signal: %s",
    }
)


class Log(Logger):
    """gunicorn's log. Where the root logger has no handler yet it gets one, so that a model's own lines come out."""

    def setup(self, cfg: Any) -> None:
        """Set the handlers and levels for a configuration."""
        super().setup(cfg)
        self._own(logging.getLogger("prefork"))
        logging.getLogger("prefork").propagate = False
        root = logging.getLogger()
        if not root.handlers or root.handlers == [getattr(self, "_roots", None)]:
            self._roots = self._own(root)

    def info(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Log at INFO, and gunicorn's small talk at DEBUG."""
        self.error_log.log(logging.DEBUG if msg in _SMALL_TALK else logging.INFO, msg, *args, **kwargs)

    def _own(self, logger: logging.Logger) -> logging.Handler | None:
        logger.setLevel(self.loglevel)
        self._set_handler(logger, self.cfg.errorlog, logging.Formatter(self.error_fmt, self.datefmt))
        handler: logging.Handler | None = self._get_gunicorn_handler(logger)
        return handler
