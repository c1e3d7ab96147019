"""How many bytes of memory processes have: the kernel's count for CPUs, the driver's for GPUs."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from prefork.supervisor import kernel

_PAGE = os.sysconf("SC_PAGE_SIZE")


def of(sessions: Collection[int]) -> int:
    """The proportional set size of all processes of some sessions together."""
    mine = [pid for pid, found in kernel.processes() if found.session in sessions] if sessions else []
    return sum(shared(pid) for pid in mine)


def resident(pid: int) -> int:
    """Bytes of a process that are in memory; 0 where there is no such process. Cheap."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def shared(pid: int) -> int:
    """Bytes of a process, those that it shares divided by the number of sharers. The kernel looks at every page for it."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return resident(pid)
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:")), 0)


def of_devices() -> int | None:
    """What is in use on all GPUs together, by anybody; None where there is none, or no NVML."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        return sum(int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    except nvml.NVMLError:
        return None


_found: list[Any] = []
"""NVML, or None, once it was looked for."""


def _nvml() -> Any:
    if not _found:
        _found.append(_look())
    return _found[0]


def _look() -> Any:
    try:
        import pynvml  # the NVIDIA driver's own library, where it is installed
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
