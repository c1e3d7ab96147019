"""How many CPUs this process may use, and what follows from it.

In a container the quota of its control group counts, not the host's cores, which `os.cpu_count()`,
`sched_getaffinity` and most BLAS libraries go by.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_FOLLOW_OMP = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_OWN = ("ORT_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


def available(root: str | Path = "/", cores: int | None = None) -> float:
    """CPUs, 0.5 for half of one: the quota of cgroup v2, else of v1, else no quota; never over the affinity mask.

    root: where `proc` and `sys` are found; cores: what the affinity mask allows, by default this process's.
    """
    most = float(cores or affinity())
    group = _groups(Path(root))
    mount = Path(root, "sys/fs/cgroup")
    quota = _quota_v2(mount, group.get("")) or _quota_v1(mount, group.get("cpu"))
    return min(most, quota) if quota else most


def said(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The thread-count variables that are set, by whoever has started this process."""
    return tuple(name for name in ("OMP_NUM_THREADS", *_FOLLOW_OMP, *_OWN) if name in environ)


def affinity() -> int:
    """The CPUs that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_workers(cpus: float) -> int:
    """What `workers: auto` means: one a whole CPU, at least one."""
    return max(1, int(cpus))


def thread_budget(cpus: float, workers: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The thread-count variables that are to be set so that `workers` together use no more than `cpus`.

    A variable that `environ` has, and not empty, stays; where it has OMP_NUM_THREADS, the libraries that fall back to it are left to it.
    """
    names = _OWN if environ.get("OMP_NUM_THREADS") else ("OMP_NUM_THREADS", *_FOLLOW_OMP, *_OWN)
    share = str(max(1, int(cpus / workers)))
    return {name: share for name in names if not environ.get(name)}


def _groups(root: Path) -> dict[str, str]:
    """The path of this process's control group by controller; that of v2 has the name ''."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return {"": "/", "cpu": "/"}
    fields = [line.split(":", 2) for line in lines]
    return {name: path for _, names, path in fields for name in names.split(",")}


def _quota_v2(mount: Path, group: str | None) -> float | None:
    quotas = [_ratio(*text.split()) for text in _climb(mount, group, "cpu.max")]
    return min(filter(None, quotas), default=None)


def _quota_v1(mount: Path, group: str | None) -> float | None:
    for place in (mount / "cpu", mount / "cpu,cpuacct"):
        quotas = _climb(place, group, "cpu.cfs_quota_us")
        periods = _climb(place, group, "cpu.cfs_period_us")
        found = [_ratio(quota, period) for quota, period in zip(quotas, periods, strict=False)]
        if any(found):
            return min(filter(None, found))
    return None


def _climb(mount: Path, group: str | None, name: str) -> Iterator[str]:
    """The texts of the files called `name` from the group up to the mount.

    Inside a container the path may be the host's and absent below the mount: then only the mount itself counts.
    """
    if group is None:
        return
    place = mount / group.lstrip("/")
    for folder in (place, *place.parents):
        if not folder.is_relative_to(mount):
            return
        try:
            yield (folder / name).read_text().strip()
        except OSError:
            continue


def _ratio(quota: str, period: str = "100000") -> float | None:
    """CPUs; None for no limit, which v2 writes as `max` and v1 as -1."""
    if quota == "max" or int(quota) <= 0:
        return None
    return int(quota) / int(period)
