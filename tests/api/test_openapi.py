"""The published interface: it changes only on purpose.

After an intended change: `UPDATE_GOLDEN=1 python -m pytest tests/api/test_openapi.py`, then read the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

GOLDEN = Path(__file__).parents[1] / "golden" / "openapi.json"


def test_the_interface_is_the_published_one(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    published = json.loads(GOLDEN.read_text(encoding="utf-8"))
    # The version of the program may go up without a change of the interface.
    document["info"].pop("version")
    published["info"].pop("version")
    assert document == published


def test_every_operation_has_a_name_of_its_own_and_refuses_with_problems(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    operations = [o for path in document["paths"].values() for o in path.values()]
    names = [o["operationId"] for o in operations]
    assert len(set(names)) == len(names)
    assert all("_api_v1_" not in name for name in names)  # generated names look like that
    for operation in operations:
        for status, response in operation["responses"].items():
            if status == "default" or status >= "400":
                assert list(response["content"]) == ["application/problem+json"]


def test_every_reference_of_the_document_leads_somewhere(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    references = list(_references(document))
    assert len(references) > 50
    assert {r.removeprefix("#/components/schemas/") for r in references} <= set(schemas)


def test_the_body_of_a_job_is_described_with_its_requirements(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    body = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]
    assert body["required"] is True
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/JobRequest"}
    assert document["components"]["schemas"]["JobRequest"]["required"] == ["model", "workload", "cluster"]


def _references(node: Any) -> Any:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)
