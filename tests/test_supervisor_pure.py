"""What the supervisor decides without processes: states, delays, words, plans, names."""

from __future__ import annotations

import collections
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefork.errors import ModelLoadError
from prefork.repository.config import Batching, LevelQueue, ModelConfig
from prefork.supervisor import environment, queue
from prefork.supervisor.death import Death, size
from prefork.supervisor.desired import Desired
from prefork.supervisor.lines import Lines
from prefork.supervisor.plan import plan
from prefork.supervisor.publishing import RunDirectory
from prefork.supervisor.restarts import Restarts
from prefork.supervisor.source import Version, order
from prefork.supervisor.states import Life, State

GIB = 1 << 30


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


# --- states -------------------------------------------------------------------------------------------------------


def test_a_life_goes_only_the_ways_there_are():
    """From loading to ready, back when all its processes have died, and to its end over draining; from there nowhere."""
    life = Life(Clock())
    for state in (State.READY, State.LOADING, State.FAILED, State.LOADING, State.READY, State.DRAINING, State.GONE):
        life.move(state)
    for state in State:
        if state is not State.GONE:
            with pytest.raises(ValueError, match="what is GONE cannot become"):
                life.move(state)


def test_ready_is_not_left_for_failed_at_once():
    """A copy that was ready first tries to replace its processes."""
    life = Life(Clock())
    life.move(State.READY)
    with pytest.raises(ValueError, match="what is READY cannot become FAILED"):
        life.move(State.FAILED)


def test_a_state_that_stays_keeps_its_time_and_takes_the_new_reason():
    """`since` is when the state was entered."""
    clock = Clock()
    life = Life(clock)
    clock.now += 5
    life.move(State.LOADING, "one has died")
    assert (life.since, life.reason) == (1000.0, "one has died")
    life.move(State.READY)
    assert (life.since, life.reason) == (1005.0, "")


def test_states_have_the_names_of_the_index():
    """DRAINING is UNLOADING there, and what is gone or failed is UNAVAILABLE."""
    assert [each.in_index for each in State] == ["LOADING", "READY", "UNLOADING", "UNAVAILABLE", "UNAVAILABLE"]


# --- restarts -----------------------------------------------------------------------------------------------------


def test_the_first_restart_is_at_once_and_the_next_ones_wait_longer_and_longer():
    """0, 0.1, 0.2, 0.4 ... seconds, at most ten for what cannot load."""
    restarts = Restarts(Clock())
    assert [restarts.died() for _ in range(10)] == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert restarts.total == 10


def test_what_was_ready_and_died_is_not_waited_for_as_long():
    """Two seconds at most: requests may be waiting for it."""
    restarts = Restarts(Clock())
    delays = []
    for _ in range(8):
        restarts.well()
        delays.append(restarts.died())
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


def test_a_process_that_was_well_for_long_is_replaced_at_once():
    """Ten seconds of being ready; less than that does not count."""
    clock = Clock()
    restarts = Restarts(clock)
    delays = []
    for seconds in (1, 9, 10, 1):
        restarts.well()
        clock.now += seconds
        delays.append(restarts.died())
    assert delays == [0.0, 0.1, 0.0, 0.1]


def test_a_process_that_never_was_ready_is_not_well():
    """Time that passes while it loads counts for nothing."""
    clock = Clock()
    restarts = Restarts(clock)
    restarts.died()
    clock.now += 100
    assert restarts.died() == 0.1


def test_three_deaths_as_soon_as_it_is_ready_put_the_next_process_on_trial():
    """A fifth of a second is as soon; one that lived longer, or was well after its trial, begins the count anew."""
    clock = Clock()
    restarts = Restarts(clock)
    trials = []
    for seconds in (0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.0, 0.0):
        restarts.well()
        clock.now += seconds
        restarts.died()
        trials.append(restarts.trial)
    assert trials == [0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0]


def test_what_fails_its_trial_stays_on_trial():
    """It was not ready in between."""
    restarts = Restarts(Clock())
    for _ in range(3):
        restarts.well()
        restarts.died()
    restarts.died()
    assert restarts.trial == 0.2


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("death", "words"),
    [
        (Death(3), "left with status 3"),
        (Death(0), "left with status 0"),
        (Death(70), "could serve no more and has ended"),
        (Death(71), "has run out of memory"),
        (Death(71, GIB, 1 << 20), "has run out of memory: memory_limit is 1048576 bytes"),
        (Death(-signal.SIGSEGV), "was killed by SIGSEGV"),
        (Death(-77), "was killed by signal 77"),
        (Death(-9, GIB), "was killed by SIGKILL, perhaps out of memory: peak 1 GiB"),
        (
            Death(-9, int(1.97 * GIB), 2 * GIB),
            "was killed by SIGKILL, perhaps out of memory: limit 2 GiB, peak 1.97 GiB",
        ),
        (Death(-9, GIB, asked=True), "was killed by SIGKILL"),
        (
            Death(-9, GIB, starved=True),
            "was killed by SIGKILL, perhaps out of memory: the kernel has killed for want of memory, peak 1 GiB",
        ),
        (Death(-6, 9 * GIB, 10 * GIB), "was killed by SIGABRT, perhaps out of memory: limit 10 GiB, peak 9 GiB"),
        (Death(-6, 1 * GIB, 10 * GIB), "was killed by SIGABRT"),
        (Death(1, 9 * GIB, 10 * GIB), "left with status 1, perhaps out of memory: limit 10 GiB, peak 9 GiB"),
        (Death(0, 9 * GIB, 10 * GIB), "left with status 0"),
    ],
)
def test_a_death_has_words(death, words):
    """The exit status or signal, and want of memory where it is likely."""
    assert death.words == words


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1000 << 20, "1000 MiB"), (5 << 50, "5120 TiB")],
)
def test_sizes_are_for_people(count, text):
    """Three digits and a unit."""
    assert size(count) == text


# --- lines --------------------------------------------------------------------------------------------------------


class Written:
    def __init__(self, limit=10):
        self.data = b""
        self.tail = collections.deque(maxlen=3)
        self.lines = Lines("[m] ", self.write, self.tail, limit)

    def write(self, data):
        self.data += data


def test_every_line_gets_the_name_and_the_last_one_needs_no_end():
    """Whole lines are written when they come, the rest at the end."""
    out = Written()
    out.lines.feed(b"one\ntw")
    assert out.data == b"[m] one\n"
    out.lines.feed(b"o\n\nthree")
    assert out.data == b"[m] one\n[m] two\n[m] \n"
    out.lines.end()
    assert out.data == b"[m] one\n[m] two\n[m] \n[m] three\n"
    assert list(out.tail) == ["two", "", "three"]


@given(st.lists(st.binary(max_size=40)))
def test_no_byte_is_lost_however_the_output_is_cut(pieces):
    """The lines together are what was printed, in pieces no longer than the limit."""
    out = Written()
    for each in pieces:
        out.lines.feed(each)
    out.lines.end()
    written = [line.removeprefix(b"[m] ") for line in out.data.split(b"\n")[:-1]]
    assert all(len(line) <= 10 for line in written)
    assert b"".join(written) == b"".join(pieces).replace(b"\n", b"")


# --- plans --------------------------------------------------------------------------------------------------------


def version(number, fingerprint):
    return Version(name="m", number=number, config=ModelConfig(), fingerprint=fingerprint)


def numbers(found):
    return [each.number for each in found.fresh], list(found.kept), list(found.gone)


def test_only_what_has_changed_is_loaded():
    """Unchanged versions are kept, new ones loaded, those that are not wanted any more go."""
    found = plan({"1": "a", "2": "b", "3": "c"}, [version("2", "b"), version("3", "x"), version("4", "d")])
    assert numbers(found) == (["3", "4"], ["2"], ["1"])


def test_what_is_not_well_is_loaded_again_though_nothing_has_changed():
    """A load of a model that has failed is a true second try."""
    assert numbers(plan({"1": None}, [version("1", "a")])) == (["1"], [], [])


def test_force_loads_everything():
    """Also what has not changed."""
    assert numbers(plan({"1": "a"}, [version("1", "a")], force=True)) == (["1"], [], [])


def test_versions_are_in_the_order_of_their_numbers():
    """10 comes after 9; what is no number comes first."""
    assert sorted(["10", "9", "beta", "1"], key=order) == ["beta", "1", "9", "10"]


# --- queues -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "default", "names"),
    [
        (0, 0, ["1.7.sock"]),
        (1, 1, ["1.7.sock"]),
        (3, 2, ["1.7.p1.sock", "1.7.sock", "1.7.p3.sock"]),
        (2, 0, ["1.7.p1.sock", "1.7.sock"]),
    ],
)
def test_each_level_of_priority_has_a_socket(levels, default, names):
    """The most urgent first; the default level has the plain name, and is the last one where none is said."""
    config = ModelConfig(batching=Batching(priority_levels=levels, default_priority=default))
    assert queue.names("1.7", config) == names


@pytest.mark.parametrize(("model", "batching", "most"), [(128, 0, 128), (128, 16, 16), (4, 16, 4), (0, 0, 4096)])
def test_the_smaller_limit_of_the_queue_holds(model, batching, most):
    """The model's own or that of its batching; 0 is none. A level with a queue of its own has that one's."""
    own = {1: LevelQueue(max_queue=2), 3: LevelQueue()}
    config = ModelConfig(max_queue=model, batching=Batching(max_queue=batching, priority_levels=3, priority_queues=own))
    assert queue.backlog(config, 2) == most
    assert queue.backlog(config, 1) == 2
    assert queue.backlog(config, 3) == (model or 4096)


# --- environment --------------------------------------------------------------------------------------------------


def variables(outer=None, device=None, said=(), roots=None, **config):
    return environment.variables(ModelConfig(**config), device, "mark", outer=outer or {}, said=said, roots=roots)


def test_a_model_sees_its_own_device_only():
    """By the numbers of nvidia-smi."""
    found = variables(device=1)
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")
    assert variables(device="cpu")["CUDA_VISIBLE_DEVICES"] == ""
    assert variables(device="cuda:0")["CUDA_VISIBLE_DEVICES"] == "0"
    assert variables(device="GPU-1234")["CUDA_VISIBLE_DEVICES"] == "GPU-1234"
    assert "CUDA_VISIBLE_DEVICES" not in variables()


def test_devices_count_among_those_that_the_server_sees():
    """The second device of a server that may use 4 and 6 is 6; a third one there is not."""
    assert variables({"CUDA_VISIBLE_DEVICES": "4,6"}, 1)["CUDA_VISIBLE_DEVICES"] == "6"
    with pytest.raises(ModelLoadError, match="devices: there is no device 2: the server sees 2"):
        variables({"CUDA_VISIBLE_DEVICES": "4,6"}, 2)


def test_instances_share_the_cpus_unless_somebody_says_otherwise():
    """The model's own variables win, then the operator's; what the server has set for itself does not hold here."""
    outer = {"OMP_NUM_THREADS": "77", "MKL_NUM_THREADS": "78"}
    assert variables(outer, instances=100)["OMP_NUM_THREADS"] == "1"
    assert variables(outer, said=("OMP_NUM_THREADS",), instances=100)["OMP_NUM_THREADS"] == "77"
    assert variables(outer, environment={"OMP_NUM_THREADS": "5"})["OMP_NUM_THREADS"] == "5"


def test_a_models_variables_go_over_the_servers():
    """Everything else is inherited; prints come out at once."""
    found = variables({"A": "1", "B": "2", "PYTHONHOME": "/x"}, environment={"B": "3"}, python="python3")
    assert (found["A"], found["B"], found["PYTHONUNBUFFERED"]) == ("1", "3", "1")
    assert "PYTHONHOME" not in found


def test_an_allocator_is_preloaded_before_what_is_preloaded_already(tmp_path):
    """From the first folder that has its library."""
    (tmp_path / "libjemalloc.so.2").touch()
    roots = [str(tmp_path / "none"), str(tmp_path)]
    found = variables({"LD_PRELOAD": "/x.so"}, allocator="jemalloc", roots=roots)
    assert found["LD_PRELOAD"] == f"{tmp_path}/libjemalloc.so.2:/x.so"


def test_an_allocator_that_is_not_there_says_what_to_install(tmp_path):
    """The package's name."""
    with pytest.raises(ModelLoadError, match="tcmalloc is not installed here; the package is libtcmalloc-minimal4"):
        variables(allocator="tcmalloc", roots=[str(tmp_path)])


def test_an_interpreter_is_a_file_a_virtual_environment_or_a_command(tmp_path):
    """What is not there, or cannot be run, is said when the model loads."""
    binary = tmp_path / "venv" / "bin" / "python"
    binary.parent.mkdir(parents=True)
    binary.touch()
    with pytest.raises(ModelLoadError, match="cannot be executed"):
        environment.interpreter(ModelConfig(python="venv"), str(tmp_path), {})
    binary.chmod(0o755)
    assert environment.interpreter(ModelConfig(python="venv"), str(tmp_path), {}) == str(binary)
    assert environment.interpreter(ModelConfig(python=str(binary)), "", {}) == str(binary)
    assert environment.interpreter(ModelConfig(python="python"), "/", {"PATH": str(binary.parent)}) == str(binary)
    with pytest.raises(ModelLoadError, match="there is no /nowhere/python"):
        environment.interpreter(ModelConfig(python="/nowhere/python"), "", {})


# --- the run directory --------------------------------------------------------------------------------------------


def seen(folder):
    """What a worker sees: links with their targets, the versions that are known and why each is not ready, whether one is wanted."""
    links = {each.name: str(each.readlink()) for each in folder.iterdir() if each.is_symlink()}
    return links, (folder / "known").read_text().splitlines(), (folder / "wanted").exists()


def test_the_latest_version_is_the_highest_that_is_ready(tmp_path):
    """Links show the versions that are ready; the others that are known are listed."""
    run = RunDirectory(tmp_path)
    run.show("m", {"9": "9.1", "10": "10.2"}, {"11": ""})
    assert seen(tmp_path / "models/m") == ({"v9": "9.1", "v10": "10.2", "latest": "10.2"}, ["11"], False)
    run.show("m", {"9": "9.3"}, {"10": "", "11": ""})
    assert seen(tmp_path / "models/m") == ({"v9": "9.3", "latest": "9.3"}, ["10", "11"], False)
    run.show("m", {}, {"10": "", "11": "", "9": ""}, is_wanted=True)
    assert seen(tmp_path / "models/m") == ({}, ["9", "10", "11"], True)


def test_generations_have_numbers_that_nobody_had_before_in_this_directory(tmp_path):
    """Also under the next supervisor, as workers keep cards by them."""
    assert [RunDirectory(tmp_path).next_generation() for _ in range(3)] == [1, 2, 3]


def test_a_supervisor_that_takes_over_keeps_the_names(tmp_path):
    """Versions that were ready are known and wanted until they are loaded again; sockets and cards go, reasons stay."""
    run = RunDirectory(tmp_path)
    run.show("m", {"1": "1.1"}, {"2": "no\n\tluck"})
    (tmp_path / "models/m/1.1.json").touch()
    run.show("old", {}, {"1": ""})
    run.next_generation()
    run.clear(all_of_it=False)
    assert seen(tmp_path / "models/m") == ({}, ["1", "2 no luck"], True)
    assert seen(tmp_path / "models/old") == ({}, ["1"], False)
    assert sorted(each.name for each in (tmp_path / "models/m").iterdir()) == ["known", "wanted"]
    assert run.next_generation() == 2


def test_what_is_desired_outlives_its_supervisor(tmp_path):
    """By name, with what its load brought; before anybody has begun there is nothing to go by."""
    assert Desired(tmp_path).read() is None
    desired = Desired(tmp_path)
    desired.begin()
    desired.put("a", {"config": "{}"})
    desired.put("b", {})
    desired.put("b", {"config": "x"})
    desired.drop("a")
    desired.drop("never")
    assert Desired(tmp_path).read() == {"b": {"config": "x"}}
