"""docs/batching.md says what there is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import yaml

from prefork.batch.plan import limit
from prefork.repository.config import Batching, read

PAGE = (Path(__file__).parents[1] / "docs" / "batching.md").read_text()


def test_its_model_yaml_is_one():
    """The example is read without complaint, and means what it says."""
    (text,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    found = read(yaml.safe_load(text)).batching
    assert found is not None
    assert (found.max_batch_size, found.queue_timeout, found.retry_alone, limit(found)) == (16, 500_000, True, 8)


def test_every_key_is_explained():
    """The table of keys is that of the policy, no more and no less."""
    rows = PAGE.partition("| key | meaning |")[2].partition("\n\n")[0].splitlines()
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")}
    assert told == {field.name for field in msgspec.structs.fields(Batching)}
