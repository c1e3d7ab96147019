"""The s2i scripts, run as they are in a temporary root, and the rules that the Dockerfile keeps to."""

from __future__ import annotations

import io
import re
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from running import SOURCE, Running, free_port

ROOT = Path(__file__).parents[1]
BIN = ROOT / "s2i" / "bin"
SCRIPTS = ("assemble", "run", "save-artifacts", "usage", "entrypoint")
MODEL = "class Model:\n    def predict(self, X, names=None):\n        return X\n"


class Image:
    """What an image has that the scripts touch: sources, artifacts, an application root, and commands on PATH."""

    def __init__(self, folder: Path) -> None:
        self.src, self.artifacts, self.root, self.site = (folder / name for name in ("src", "artifacts", "app", "site"))
        self.bin = folder / "bin"
        self.src.mkdir()
        self.bin.mkdir()
        self.env = {
            "S2I_SRC": str(self.src),
            "S2I_ARTIFACTS": str(self.artifacts),
            "APP_ROOT": str(self.root),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "PYTHONPATH": f"{SOURCE}:{self.site}",
            "HOME": str(folder),
            "PIP_TARGET": str(self.site),
            "PIP_NO_INDEX": "1",
            "MODEL_NAME": "Model",
        }
        for name, module in {"python": "", "pip": "-m pip", "prefork": "-m prefork"}.items():
            self.command(name, f'exec {sys.executable} {module} "$@"')
        self.command(
            "seldon-core-microservice",
            f"exec {sys.executable} -c 'from prefork.microservice import main; main()' \"$@\"",
        )

    def command(self, name: str, line: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{line}\n")
        path.chmod(0o755)

    def source(self, name: str, content: str) -> None:
        path = self.src / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def run(self, script: str, *args: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run([BIN / script, *args], check=False, env={**self.env, **env}, capture_output=True)
        assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
        return done


@pytest.fixture
def image(tmp_path) -> Image:
    """An image with a model in it that needs nothing."""
    image = Image(tmp_path)
    image.source("Model.py", MODEL)
    return image


def wheel(folder: Path, name: str) -> None:
    """The smallest wheel that pip installs: one module, called as the package."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "FACTOR = 2\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_executable_bash(script):
    """Each script can be executed as it lies in the tree, and bash can parse it."""
    path = BIN / script
    assert path.stat().st_mode & stat.S_IXUSR
    assert path.read_text().startswith("#!/bin/bash\n")
    subprocess.run(["bash", "-n", path], check=True)


def test_assemble_takes_the_sources_and_leaves_none_behind(image):
    """The application lies in APP_ROOT/src, compiled, writable for group 0; the copy it came from is gone."""
    image.source("before-run", "#!/bin/sh\n")
    (image.src / "before-run").chmod(0o755)
    image.run("assemble")
    assert (image.root / "src/Model.py").read_text() == MODEL
    assert list((image.root / "src/__pycache__").iterdir())
    assert not image.src.exists()
    mode = (image.root / "src/Model.py").stat().st_mode
    assert mode & stat.S_IWGRP
    assert (image.root / "src/before-run").stat().st_mode & stat.S_IXGRP


def test_assemble_needs_a_model_name(image):
    """Without MODEL_NAME the build fails with one line that says what to do."""
    done = image.run("assemble", code=1, MODEL_NAME="")
    assert done.stderr.decode().startswith("assemble: MODEL_NAME is not set")


def test_assemble_does_not_need_service_type_or_persistence(image):
    """Only MODEL_NAME is required of what Seldon's builder requires."""
    assert {"SERVICE_TYPE", "PERSISTENCE"}.isdisjoint(image.env)
    image.run("assemble")


def test_a_class_that_cannot_be_imported_fails_the_build(image):
    """What would crash the pod fails here, unless it is told not to look."""
    done = image.run("assemble", code=1, MODEL_NAME="Modle")
    assert "assemble: MODEL_NAME=Modle: the class cannot be imported" in done.stderr.decode()


def test_the_import_can_be_left_out(image):
    """CHECK_IMPORT=off builds a class that needs what only the pod has."""
    image.source("Model.py", "raise SystemExit('no GPU here')")
    image.run("assemble", CHECK_IMPORT="off")


def test_sources_are_required(image):
    """A root without sources is said, not taken for an empty application."""
    done = image.run("assemble", code=1, S2I_SRC=str(image.root / "none"))
    assert "there are no sources" in done.stderr.decode()


def test_requirements_are_installed_and_cached_as_wheels(image, tmp_path):
    """requirements.txt is installed from the project's own wheels without any index; the next incremental build has them."""
    wheel(image.src / "wheels", "tinypkg")
    image.source("requirements.txt", "tinypkg\n")
    image.source("Model.py", f"import tinypkg\n{MODEL}")
    image.run("assemble")
    assert (image.site / "tinypkg.py").exists()

    saved = image.run("save-artifacts").stdout
    with tarfile.open(fileobj=io.BytesIO(saved)) as archive:
        assert [name for name in archive.getnames() if name.endswith(".whl")] == ["wheels/tinypkg-1.0-py3-none-any.whl"]
        (tmp_path / "next").mkdir()
        following = Image(tmp_path / "next")
        archive.extractall(following.artifacts, filter="data")

    following.source("requirements.txt", "tinypkg\n")
    following.source("Model.py", f"import tinypkg\n{MODEL}")
    following.run("assemble")
    assert (following.site / "tinypkg.py").exists()
    assert (following.root / "wheels/tinypkg-1.0-py3-none-any.whl").exists()


def test_wheels_are_not_kept_where_they_are_not_wanted(image):
    """WHEEL_CACHE=off installs without keeping a second copy of every package in the image."""
    wheel(image.src / "wheels", "tinypkg")
    image.source("requirements.txt", "tinypkg\n")
    image.run("assemble", WHEEL_CACHE="off")
    assert (image.site / "tinypkg.py").exists()
    assert not (image.root / "wheels").exists()


def test_a_requirement_that_is_nowhere_fails_the_build(image):
    """A failing pip fails the build."""
    image.source("requirements.txt", "surely-not-there\n")
    image.run("assemble", code=1)


def test_save_artifacts_without_any(image):
    """With nothing to save the output is an empty tar, and nothing else."""
    with tarfile.open(fileobj=io.BytesIO(image.run("save-artifacts").stdout)) as archive:
        assert archive.getnames() == []


@pytest.mark.parametrize(
    ("files", "arguments"),
    [
        ({"requirements.txt": "", "setup.py": "", "pyproject.toml": "[project]\n"}, "-r requirements.txt"),
        ({"setup.py": "", "environment.yml": ""}, "-e ."),
        ({"pyproject.toml": "[build-system]\n"}, "-e ."),
        ({"pyproject.toml": "[tool.ruff]\n"}, None),
        ({}, None),
    ],
)
def test_one_list_of_requirements_is_chosen(image, files, arguments):
    """requirements.txt, else pyproject.toml that describes a project or setup.py, else nothing at all."""
    image.command("pip", f'echo "$@" >> {image.bin}/pip.log')
    for name, content in files.items():
        image.source(name, content)
    image.run("assemble", WHEEL_CACHE="off")
    log = image.bin / "pip.log"
    assert (log.read_text() if log.exists() else None) == (f"install {arguments}\n" if arguments else None)


def test_conda_is_refused_in_words(image):
    """environment.yml alone is refused: there is no conda, and silence would be a model without its packages."""
    image.source("environment.yml", "dependencies: []\n")
    done = image.run("assemble", code=1)
    assert done.stderr.decode().startswith("assemble: environment.yml: there is no conda")


def test_another_index_reaches_pip(image):
    """EXTRA_INDEX_URL, as Seldon's builder has it, is one more index."""
    image.command("pip", f'echo "$PIP_EXTRA_INDEX_URL $1" >> {image.bin}/pip.log')
    image.source("requirements.txt", "")
    image.run("assemble", EXTRA_INDEX_URL="https://index.example/simple")
    assert "https://index.example/simple install" in (image.bin / "pip.log").read_text()


@pytest.mark.parametrize("script", ["assemble", "run"])
def test_help_is_the_usage(image, script):
    """-h and --help say the usage."""
    assert image.run(script, "--help").stdout == image.run("usage").stdout == image.run(script, "-h").stdout


def test_usage_names_every_variable_and_no_other():
    """What the scripts read of the user's environment stands in the usage, and what stands there is read."""
    internal = {"S2I_SRC", "S2I_ARTIFACTS", "APP_ROOT"}
    scripts = (BIN / "assemble").read_text() + (BIN / "run").read_text()
    read = set(re.findall(r"\$\{?([A-Z][A-Z0-9_]+)", scripts)) - internal
    documented = set(re.findall(r"^    ([A-Z][A-Z_]+)  ", (BIN / "usage").read_text(), re.MULTILINE))
    assert documented == read


def test_run_needs_a_model_name(image):
    """Without MODEL_NAME the container ends with one line."""
    done = image.run("run", code=1, MODEL_NAME="")
    assert done.stderr.decode().startswith("run: MODEL_NAME is not set")


@pytest.mark.parametrize(
    ("env", "command"),
    [
        ({}, "prefork serve Model --threads 2"),
        ({"SERVICE_TYPE": "MODEL"}, "seldon-core-microservice Model --service-type MODEL --threads 2"),
        (
            {"SERVICE_TYPE": "ROUTER", "PERSISTENCE": "0"},
            "seldon-core-microservice Model --service-type ROUTER --persistence 0 --threads 2",
        ),
    ],
)
def test_run_starts_prefork_or_what_seldons_images_start(image, env, command):
    """`prefork serve`; with SERVICE_TYPE, as Seldon's environments have it, `seldon-core-microservice` and its defaults."""
    image.run("assemble")
    for name in ("prefork", "seldon-core-microservice"):
        image.command(name, f'echo {name} "$@"')
    assert image.run("run", "--threads", "2", **env).stdout.decode() == f"{command}\n"


@pytest.mark.parametrize("service_type", ["", "MODEL"])
def test_run_serves(image, service_type, tmp_path):
    """`run` first runs `before-run`, then becomes the server: it answers, and TERM ends it with 0."""
    image.source("before-run", "#!/bin/bash\npwd > before\n")
    (image.src / "before-run").chmod(0o755)
    image.run("assemble")
    port, log = free_port(), tmp_path / "log"
    env = {
        **image.env,
        "SERVICE_TYPE": service_type,
        "PERSISTENCE": "0",
        "PORT": str(port),
        "PREDICTIVE_UNIT_METRICS_SERVICE_PORT": "0",
        "PREFORK_ADDRESS": "127.0.0.1",
    }
    with log.open("wb") as out:
        process = subprocess.Popen([BIN / "run"], env={**env, "GUNICORN_WORKERS": "1"}, stdout=out, stderr=out)
    running = Running(process, port, log)
    try:
        running.wait_ready()
        assert (image.root / "src/before").read_text().strip() == str(image.root / "src")
        assert b"bash" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        with running.client() as client:
            assert client.post("/predict", json={"data": {"ndarray": [[1]]}}).json()["data"]["ndarray"] == [[1]]
    finally:
        assert running.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("arguments", "shell"),
    [
        (["/bin/sh", "-c", "{run}"], False),
        (["{run}"], False),
        (["/bin/sh", "-c", "true && {run}; true"], True),
        (["/bin/sh", "-c", "{run}; true"], True),
    ],
)
def test_the_entrypoint_takes_away_the_shell_of_a_shell_form_run_only(tmp_path, arguments, shell):
    """`/bin/sh -c .../run` is run without the shell, which would keep SIGTERM; every other command is left as it is."""
    run = tmp_path / "run"
    run.write_text("#!/bin/bash\ncat /proc/$PPID/cmdline; echo\necho $$\n")
    run.chmod(0o755)
    command = [argument.replace("{run}", str(run)) for argument in arguments]
    process = subprocess.Popen([BIN / "entrypoint", *command], stdout=subprocess.PIPE)
    said = process.communicate()[0].decode().splitlines()
    assert (said[-1] == str(process.pid)) is not shell


BUILDER, PROJECT = ROOT / "Dockerfile", ROOT / "user_model_template" / "Dockerfile"
both = pytest.mark.parametrize("dockerfile", [BUILDER, PROJECT], ids=["builder", "project"])


def lines(dockerfile: Path) -> list[str]:
    text = re.sub(r"\\\n", " ", dockerfile.read_text())
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def instructions(name: str, dockerfile: Path = BUILDER) -> list[str]:
    return [line.removeprefix(name).strip() for line in lines(dockerfile) if line.startswith(f"{name} ")]


@both
def test_the_base_image_is_an_argument(dockerfile):
    """ARG BASE_IMAGE stands before FROM, with Debian's slim Python as its default."""
    assert lines(dockerfile)[0] == "ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm"
    assert instructions("FROM", dockerfile) == ["${BASE_IMAGE}"]


@both
def test_the_dockerfile_keeps_to_what_every_builder_takes(dockerfile):
    """No syntax line, no heredoc, no option of BuildKit's: the classic builder and buildah take it too."""
    text = dockerfile.read_text()
    assert not re.search(r"^#\s*(syntax|escape)\s*=", text, re.MULTILINE | re.IGNORECASE)
    assert "<<" not in text
    options = [
        line for name in ("COPY", "ADD", "RUN") for line in instructions(name, dockerfile) if line.startswith("--")
    ]
    assert options == []


@both
def test_the_user_is_a_number_with_a_name_and_a_home(dockerfile):
    """A numeric user, so that runAsNonRoot holds, with what else would be looked up in /etc/passwd."""
    assert instructions("USER", dockerfile)[-1] == "1001"
    assert {"HOME", "USER", "LOGNAME"} <= set(re.findall(r"(\w+)=", " ".join(instructions("ENV", dockerfile))))


@both
def test_commands_are_in_exec_form(dockerfile):
    """No shell stands between process 1 and the server."""
    commands = [*instructions("ENTRYPOINT", dockerfile), *instructions("CMD", dockerfile)]
    assert commands
    assert all(command.startswith("[") for command in commands)


def test_group_0_may_do_what_the_owner_may():
    """OpenShift's arbitrary users are of group 0: what s2i's user owns is writable for that group."""
    assert 'io.openshift.s2i.assemble-user="1001"' in " ".join(instructions("LABEL"))
    run = " ".join(instructions("RUN"))
    assert "chown -R 1001:0 /opt/app-root" in run
    assert "chmod -R g=u /opt/app-root" in run


def test_s2i_finds_its_scripts():
    """They are where s2i looks without labels, and the label says so too."""
    assert 'io.openshift.s2i.scripts-url="image:///usr/libexec/s2i"' in " ".join(instructions("LABEL"))
    assert "s2i/bin /usr/libexec/s2i" in instructions("COPY")


def test_what_is_copied_is_there():
    """Every source of a COPY exists in the tree."""
    sources = [source for line in instructions("COPY") for source in line.split()[:-1]]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists() and source != "README.md"] == []
