"""The benchmarks measure what they say: right answers only, all processes, and tables that land between their markers."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from benchmarks import balance, cpu, goals, plot, report, servers
from benchmarks.__main__ import arguments
from benchmarks.wires import SHAPES, WIRES, sample

BURN = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass\n"
RESULTS = {
    (name, size): cpu.Result(cpu=100 * ratio, ratio=ratio, rate=1e6, p99=1.0)
    for name, ratio in {cpu.FLOOR: 1.0, cpu.INLINE: 1.5, cpu.THREAD: 2.7}.items()
    for size in SHAPES
}


@pytest.mark.parametrize("size", SHAPES)
def test_bodies_hold_the_sample(size):
    """The V1 and V2 bodies of a size hold the same numbers, to the last float32 digit."""
    x = sample(size)
    rows = np.array(json.loads(WIRES["seldon"](size).body)["data"]["ndarray"], np.float32)
    tensor = json.loads(WIRES["v2"](size).body)["inputs"][0]
    assert np.array_equal(rows, x)
    assert np.array_equal(np.array(tensor["data"], np.float32).reshape(tensor["shape"]), x)
    assert WIRES["v2_binary"](size).body.endswith(x.tobytes())


@pytest.mark.parametrize("wire", ["seldon", "v2"])
def test_a_wrong_answer_is_not_measured(wire):
    """An answer with other scores than numpy's stops the benchmark."""
    call = WIRES[wire]("tiny")
    wrong = {"data": {"ndarray": [[0, 0, 0]]}, "outputs": [{"data": [0, 0, 0]}]}
    right = {"data": {"ndarray": call.expected.tolist()}, "outputs": [{"data": call.expected.ravel().tolist()}]}
    call.check(json.dumps(right).encode(), {})
    with pytest.raises(ValueError, match="the answer is wrong"):
        call.check(json.dumps(wrong).encode(), {})


def test_the_cpu_of_all_processes_counts():
    """What a server's child used is counted while it lives, and still when it has ended."""
    child = BURN.format(0.2)
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])\n{BURN.format(0.1)}print(flush=True)\ninput()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        tree = servers.Running(servers.Server("burner", lambda _: []), port=0, pid=process.pid)
        assert tree.cpu() >= 0.29
        process.communicate(b"\n")


def test_a_server_that_dies_says_why():
    """A server that ends before it accepts is an error that shows what it printed."""
    server = servers.Server("broken", lambda _: [sys.executable, "-c", "raise SystemExit('no such model')"])
    with pytest.raises(RuntimeError, match="no such model"), servers.running(server):
        pass


def test_a_server_is_ended_with_all_its_processes():
    """After the run nothing of the server's session is left, even what ignores TERM."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    code = f"import subprocess, sys, http.server as h\nsubprocess.Popen([sys.executable, '-c', {stubborn!r}])\n"
    code += "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.BaseHTTPRequestHandler).serve_forever()"
    server = servers.Server("pair", lambda port: [sys.executable, "-c", code, str(port)])
    with servers.running(server) as up:
        assert len(servers.alive(up.pid)) == 2
    assert servers.alive(up.pid) == []


def test_tables_land_between_their_markers(tmp_path, monkeypatch):
    """A part of the page is replaced as often as it is measured; all other text stays."""
    page = tmp_path / "performance.md"
    page.write_text("head\n<!-- begin cpu -->\n<!-- end cpu -->\ntail\n", encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", page)
    report.write("cpu", "old\n")
    report.write("cpu", "new\n")
    assert page.read_text(encoding="utf-8") == "head\n<!-- begin cpu -->\nnew\n<!-- end cpu -->\ntail\n"
    with pytest.raises(KeyError, match="no markers for sleep"):
        report.write("sleep", "")


def test_goals_say_what_was_missed():
    """A goal is reached up to its limit; goals of servers that did not run are left out."""
    rows = goals.costs(RESULTS).splitlines()
    assert rows[2] == f"| {cpu.INLINE} of {cpu.FLOOR}, tiny | 1.60 | 1.50 | yes |"
    assert rows[-1] == f"| {cpu.THREAD} of {cpu.FLOOR}, tiny | 2.60 | 2.70 | **no** |"
    assert not any(cpu.SELDON in row for row in rows)
    assert "| 16 connections on 2 workers | 2 | 1 | **no** |" in goals.spreads(
        {(balance.PREFORK, 16, 2): balance.Spread([1.0, 1.0], [1.25, 1.5])}
    )


def test_the_plot_has_a_bar_for_each_figure(tmp_path, monkeypatch):
    """The plot is well-formed SVG with one bar a server and size."""
    monkeypatch.setattr(plot, "FILE", tmp_path / "plot.svg")
    plot.write(RESULTS)
    root = ET.parse(plot.FILE).getroot()
    assert len(root.findall("{http://www.w3.org/2000/svg}rect[@class]")) == len(RESULTS)


def test_an_unknown_part_is_refused(capsys):
    """A word that names no part ends the command with a line that says so."""
    with pytest.raises(SystemExit):
        arguments(["cpus"])
    assert "no such part: cpus" in capsys.readouterr().err
