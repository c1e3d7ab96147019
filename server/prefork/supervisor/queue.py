"""The queue of one generation: its listening sockets, whose backlogs hold the requests that wait.

They are made here and inherited by the instances, so that a request waits on while an instance is replaced. One socket for each
level of priority; that of the default level has the plain name, and its own by a symbolic link.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from prefork.repository.config import ModelConfig

_MOST = 4096
_KERNELS = (1 << 31) - 1
"""What no limit means; the kernel holds it to net.core.somaxconn."""


class Queue:
    """Listening sockets in `folder`, called `<stem>.sock` and `<stem>.p<level>.sock`."""

    def __init__(self, folder: Path, stem: str, config: ModelConfig) -> None:
        self._folder = folder
        self._names = names(stem, config)
        self._backlogs = [backlog(config, level) for level in range(1, len(self._names) + 1)]
        self._plain = f"{stem}.sock"
        level = self._names.index(self._plain) + 1
        self._alias = f"{stem}.p{level}.sock" if len(self._names) > 1 else ""
        self._sockets: list[socket.socket] = []

    def open(self) -> tuple[int, ...]:
        """The descriptors, the most urgent first. Those that are open stay so."""
        if not self._sockets:
            self._sockets = [self._listen(*each) for each in zip(self._names, self._backlogs, strict=True)]
            if self._alias:
                self._path(self._alias).symlink_to(self._plain)
        return tuple(each.fileno() for each in self._sockets)

    def hide(self) -> None:
        """Take the paths away: who waits is served, and nobody else comes."""
        for name in filter(None, (*self._names, self._alias)):
            self._path(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Take the paths away and give the sockets up; who waits is refused once the instances have given them up too."""
        self.hide()
        for each in self._sockets:
            each.close()
        self._sockets = []

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _listen(self, name: str, waiting: int) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)  # noqa: FBT003 - the signature is socket's
        try:
            bind(listener, self._path(name))
        except OSError:
            listener.close()
            raise
        # A backlog of n holds n + 1 connections.
        listener.listen(waiting - 1)
        return listener


def bind(listener: socket.socket, path: Path) -> None:
    """Bind a socket to a path of any length: the kernel takes 107 bytes, so the folder is named by its descriptor."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def names(stem: str, config: ModelConfig) -> list[str]:
    """The files of the sockets, the most urgent level first."""
    levels = config.batching.priority_levels if config.batching else 0
    if config.batching is None or levels < 2:
        return [f"{stem}.sock"]
    default = config.batching.default_priority or levels
    return [f"{stem}.sock" if level == default else f"{stem}.p{level}.sock" for level in range(1, levels + 1)]


def backlog(config: ModelConfig, level: int) -> int:
    """The requests of a level that may wait: the smaller of the model's and the batching's limit, where they have one."""
    limits = [config.max_queue, config.batching.queue(level).max_queue if config.batching else 0]
    return min(_KERNELS, min([each for each in limits if each > 0], default=_MOST))
