"""Seldon's messages as typed structs."""

from __future__ import annotations

import msgspec

from prefork.protocols import seldon, seldon_types


def test_the_types_have_schemas():
    """The structs describe themselves as JSON Schema, under Seldon's names."""
    kinds = [seldon.SeldonMessage, seldon.SeldonMessageList, seldon_types.Feedback]
    _, components = msgspec.json.schema_components(kinds)
    assert {"SeldonMessage", "SeldonMessageList", "Feedback", "Data", "Tensor", "Meta", "Metric", "Status"} == set(
        components
    )
    assert set(components["SeldonMessage"]["properties"]) >= {
        "data",
        "jsonData",
        "strData",
        "binData",
        "meta",
        "status",
    }
