"""Rules of the code base that no linter knows: sizes of files and functions, and who may import what at all."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("autotuner", "api", "trials")
    for path in (ROOT / folder).rglob("*.py")
    if "versions" not in path.parts
)
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_has_grown_too_long():
    long = {_name(path): n for path in SOURCES if (n := len(path.read_text().splitlines())) > MAX_FILE_LINES}
    assert long == {}


def test_no_function_has_grown_too_long():
    long = {
        f"{_name(path)}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert long == {}


def test_every_module_says_what_it_decides():
    silent = [
        _name(path) for path in SOURCES if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("trials", {"torch", "trials"}),
        ("autotuner/domain", {"pydantic", "autotuner"}),
    ],
)
def test_the_lowest_layers_import_only_what_they_may(folder, allowed):
    foreign = {
        (_name(path), name)
        for path in SOURCES
        if path.is_relative_to(ROOT / folder)
        for name in _imported(path)
        if name not in allowed and name not in sys.stdlib_module_names
    }
    assert foreign == set()


@pytest.mark.parametrize(
    ("module", "owner"), [("subprocess", "autotuner/execution"), ("optuna", "autotuner/search/optuna_bridge.py")]
)
def test_some_modules_have_one_owner(module, owner):
    users = {
        _name(path)
        for path in SOURCES
        if module in _imported(path) and not path.is_relative_to(ROOT / owner) and "trials" not in path.parts
    }
    assert users == set()


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names
