"""How many CPUs there are for this process, read from trees that look like a container's /proc and /sys."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefork.settings import cpus

V1 = "sys/fs/cgroup/cpu,cpuacct"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 16.0),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"}, 0.5),
        ({"proc/self/cgroup": "0::/docker/1\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
    ],
    ids=["the namespace's root", "no limit", "a group below", "the host's path, which the container does not see"],
)
def test_cgroup_v2(tmp_path, files, expected):
    """The quota of cgroup v2 is `cpu.max` of the process's group, wherever the container sees it."""
    assert cpus.available(tree(tmp_path, files), cores=16) == expected


def test_cgroup_v2_takes_the_tightest_of_the_groups_above(tmp_path):
    """A pod's limit holds for its containers: of all groups on the way up, the smallest quota counts."""
    files = {
        "proc/self/cgroup": "0::/pod/container\n",
        "sys/fs/cgroup/pod/container/cpu.max": "max 100000\n",
        "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
        "sys/fs/cgroup/cpu.max": "800000 100000\n",
    }
    assert cpus.available(tree(tmp_path, files), cores=16) == 3.0


@pytest.mark.parametrize(("quota", "expected"), [("250000", 2.5), ("-1", 16.0)])
@pytest.mark.parametrize("mount", [V1, "sys/fs/cgroup/cpu"])
def test_cgroup_v1(tmp_path, mount, quota, expected):
    """The quota of cgroup v1 is `cpu.cfs_quota_us` over `cpu.cfs_period_us`; -1 is none."""
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/docker/1\n1:name=systemd:/docker/1\n",
        f"{mount}/docker/1/cpu.cfs_quota_us": quota,
        f"{mount}/docker/1/cpu.cfs_period_us": "100000",
    }
    assert cpus.available(tree(tmp_path, files), cores=16) == expected


def test_a_hybrid_machine_has_its_cpu_quota_in_v1(tmp_path):
    """Where v2 is mounted without the cpu controller, v1 is read."""
    files = {
        "proc/self/cgroup": "4:cpu,cpuacct:/\n0::/\n",
        "sys/fs/cgroup/unified/cgroup.controllers": "hugetlb",
        f"{V1}/cpu.cfs_quota_us": "50000",
        f"{V1}/cpu.cfs_period_us": "100000",
    }
    assert cpus.available(tree(tmp_path, files), cores=2) == 0.5


def test_no_control_groups_at_all(tmp_path):
    """Without them the affinity mask counts."""
    assert cpus.available(tmp_path) == cpus.affinity()


def test_a_quota_over_the_affinity_mask(tmp_path):
    """A quota never makes more of the CPUs than the scheduler may use."""
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1600000 100000\n"}
    assert cpus.available(tree(tmp_path, files), cores=4) == 4.0


def test_this_machine():
    """The real files are read: more than no CPU, no more than the mask allows."""
    assert 0 < cpus.available() <= cpus.affinity()


@pytest.mark.parametrize(("available", "workers"), [(0.5, 1), (1.0, 1), (1.9, 1), (2.0, 2), (16.0, 16)])
def test_workers_auto_is_one_a_whole_cpu(available, workers):
    """`workers: auto` is a worker for each whole CPU, and at least one."""
    assert cpus.default_workers(available) == workers


@pytest.mark.parametrize(
    ("available", "workers", "share"), [(8.0, 2, "4"), (8.0, 3, "2"), (2.0, 4, "1"), (0.5, 1, "1")]
)
def test_thread_budget_is_the_quota_over_the_workers(available, workers, share):
    """Every library gets the whole CPUs that are left for one worker, at least one."""
    budget = cpus.thread_budget(available, workers, {})
    assert set(budget.values()) == {share}
    assert {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"} <= set(budget)


def test_thread_budget_leaves_what_is_set():
    """A variable that the user set stays, and does not change the others."""
    budget = cpus.thread_budget(8.0, 2, {"MKL_NUM_THREADS": "3"})
    assert "MKL_NUM_THREADS" not in budget
    assert budget["OMP_NUM_THREADS"] == "4"


def test_thread_budget_follows_a_set_omp_num_threads():
    """OMP_NUM_THREADS, once set, speaks for the libraries that fall back to it."""
    budget = cpus.thread_budget(8.0, 2, {"OMP_NUM_THREADS": "1"})
    assert set(budget) == {"ORT_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"}
