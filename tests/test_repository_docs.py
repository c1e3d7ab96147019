"""docs/repository.md, taken at its word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from prefork.repository import folder, table
from prefork.repository.config import ModelConfig, VersionPolicy
from prefork.repository.triton_form import fields
from prefork.repository.triton_types import IGNORED, TritonConfig
from repository_files import put

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "repository.md").read_text()
BLOCKS = dict(re.findall(r"^```text\n# (\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
FOREST = "class Forest:\n    def predict(self, X, names): ...\n"


def test_the_tables_are_current():
    """The page has the tables that the code gives; `python -m prefork.repository` prints them anew."""
    documented = PAGE.partition("<!-- model.yaml -->\n")[2].partition("<!-- /model.yaml -->")[0]
    assert documented == table.markdown()
    command = [sys.executable, "-m", "prefork.repository"]
    printed = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": "server"}, cwd=ROOT, capture_output=True, check=True
    )
    assert printed.stdout.decode() == documented


def test_the_examples_are_read(tmp_path: Path):
    """Both examples are configs of a model that can be served, and nothing in them is without effect."""
    yaml = put(tmp_path / "yaml", {"model.yaml": BLOCKS["model.yaml"], "1/iris.py": FOREST})
    found = folder.read(yaml, "yaml")
    assert (found.config.memory_limit, found.config.versions, found.notes) == (2 << 30, VersionPolicy(latest=2), ())
    pbtxt = put(tmp_path / "iris", {"config.pbtxt": BLOCKS["config.pbtxt"], "1/model.py": FOREST})
    found = folder.read(pbtxt, "iris")
    assert found.notes == ()
    assert found.versions[1].config == ModelConfig(
        name="iris",
        class_="model:Forest",
        instances=2,
        max_rows=16,
        inputs=found.config.inputs,
        outputs=found.config.outputs,
        batching=found.config.batching,
        versions=VersionPolicy(latest=2),
    )
    assert found.config.batching is not None
    assert (found.config.batching.max_batch_size, found.config.batching.max_batch_delay) == (16, 500)


def test_the_layout_is_served(tmp_path: Path):
    """The models of the page's tree are what it says."""
    iris = put(tmp_path / "iris", {"features.py": "", "1/model.py": FOREST, "2/model.py": FOREST, "2/iris.joblib": ""})
    assert {number: each.config.class_ for number, each in folder.read(iris, "iris").versions.items()} == {
        2: "model:Forest"
    }
    single = put(tmp_path / "sum", {"Sum.py": "class Sum:\n    def predict(self, X, names): ...\n"})
    assert folder.read(single, "sum").versions[1].config.class_ == "Sum:Sum"


def test_tritons_fields_are_listed():
    """Every field of Triton's that is known is in the table, refused, or listed as having no effect, and only once."""
    section = PAGE.partition("## Triton's config.pbtxt")[2].partition("```")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    read = {name for row in rows for name in re.findall(r"`(\w+)`", row)} - {"config"}
    refused = set(re.findall(r"`(\w+)`", section.partition("Refused")[2].partition("\n\n")[0]))
    without = set(re.findall(r"`(\w+)`", section.partition("Without effect")[2]))
    ignored = {name for names in IGNORED.values() for name in names}
    assert read | refused | set(IGNORED[TritonConfig]) == set(fields(TritonConfig))
    assert not read & refused
    assert without == ignored | {"dynamic_batching", "FORCE_CPU_ONLY_INPUT_TENSORS", "response_cache"}
