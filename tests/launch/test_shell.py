"""Scripts are run by bash with a stand-in for the interpreter that records its arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotuner.domain.errors import InvalidInput
from autotuner.launch.plan import Command
from autotuner.launch.shell import script

# Words are passed NUL-separated, so nothing in them can be mistaken for an end.
RECORDER = """\
#!/bin/bash
for word in "$@"; do printf '%s\\0' "$word"; done > "$RECORD.argv"
printf '%s' "$PWD" > "$RECORD.pwd"
printf '%s' "${PYTHONPATH-unset}" > "$RECORD.pythonpath"
printf '%s' "${NASTY-unset}" > "$RECORD.nasty"
"""

NASTY = ["a b", "it's", 'say "x"', "$(touch pwned)", "`touch pwned`", "line\nbreak", "\\", "*", "~", "-x", "", "#", "é"]


def recorder(folder: Path) -> Path:
    path = folder / "fake python"
    path.write_text(RECORDER)
    path.chmod(0o755)
    return path


def run_script(text: str, *, home: Path, python: Path | None, cwd: Path, env: dict[str, str] | None = None) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "launch.sh").write_text(text)
    variables = {"PATH": "/usr/bin:/bin", "RECORD": str(home / "record"), **(env or {})}
    if python is not None:
        variables["PYTHON"] = str(python)
    subprocess.run(["bash", str(home / "launch.sh")], cwd=cwd, env=variables, check=True, timeout=30)


def recorded_argv(home: Path) -> list[str]:
    return (home / "record.argv").read_bytes().decode().split("\0")[:-1]


def command(*words: str, env: tuple[tuple[str, str], ...] = (), package_root: str = ".") -> Command:
    return Command(argv=("/nowhere/python", *words), env=env, package_root=package_root)


def test_every_word_arrives_as_it_was(tmp_path: Path) -> None:
    text = script(command(*NASTY), comment=(), folders=())

    run_script(text, home=tmp_path / "my job", python=recorder(tmp_path), cwd=tmp_path)

    assert recorded_argv(tmp_path / "my job") == NASTY
    assert not list(tmp_path.rglob("pwned"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20), max_size=6),
    value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
)
def test_no_word_and_no_value_becomes_shell_code(tmp_path: Path, words: list[str], value: str) -> None:
    text = script(command(*words, env=(("NASTY", value),)), comment=(value,), folders=())

    run_script(text, home=tmp_path / "h", python=recorder(tmp_path), cwd=tmp_path)

    assert recorded_argv(tmp_path / "h") == words
    assert (tmp_path / "h" / "record.nasty").read_bytes().decode() == value


def test_the_script_works_in_its_own_folder_wherever_it_is_called_from(tmp_path: Path) -> None:
    home = tmp_path / "a folder with spaces"
    text = script(command("x"), comment=(), folders=("run",))

    # CDPATH would make a relative `cd` jump elsewhere and print where.
    run_script(text, home=home, python=recorder(tmp_path), cwd=Path("/"), env={"CDPATH": "/tmp"})

    assert (home / "record.pwd").read_text() == str(home)
    assert (home / "record.pythonpath").read_text() == str(home)
    assert (home / "run").is_dir()


def test_the_users_own_python_path_comes_after_the_bundle(tmp_path: Path) -> None:
    text = script(command("x", package_root="/src dir"), comment=(), folders=())

    run_script(text, home=tmp_path / "h", python=recorder(tmp_path), cwd=tmp_path, env={"PYTHONPATH": "/mine"})

    assert (tmp_path / "h" / "record.pythonpath").read_text() == "/src dir:/mine"


def test_a_relative_interpreter_is_relative_to_where_the_user_stands(tmp_path: Path) -> None:
    text = script(command("x"), comment=(), folders=())
    (tmp_path / "env").mkdir()
    recorder(tmp_path).rename(tmp_path / "env" / "python")

    run_script(text, home=tmp_path / "h", python=Path("env/python"), cwd=tmp_path)

    assert recorded_argv(tmp_path / "h") == ["x"]


def test_the_recorded_interpreter_is_used_when_it_exists(tmp_path: Path) -> None:
    python = recorder(tmp_path)
    text = script(Command(argv=(str(python), "x"), env=(), package_root="."), comment=(), folders=())

    run_script(text, home=tmp_path / "h", python=None, cwd=tmp_path)

    assert recorded_argv(tmp_path / "h") == ["x"]


def test_python3_is_used_when_the_recorded_interpreter_is_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    recorder(tmp_path).rename(path / "python3")
    text = script(command("y"), comment=(), folders=())

    run_script(text, home=tmp_path / "h", python=None, cwd=tmp_path, env={"PATH": f"{path}:/usr/bin:/bin"})

    assert recorded_argv(tmp_path / "h") == ["y"]


def test_the_status_of_the_ranks_is_the_status_of_the_script(tmp_path: Path) -> None:
    text = script(
        Command(argv=(sys.executable, "-c", "raise SystemExit(7)"), env=(), package_root="."), comment=(), folders=()
    )
    (tmp_path / "launch.sh").write_text(text)

    assert subprocess.run(["bash", str(tmp_path / "launch.sh")], check=False, timeout=30).returncode == 7


def test_a_comment_cannot_end_its_line() -> None:
    # str.splitlines knows line ends that bash does not; all of them go.
    text = script(command("x"), comment=("one\ntouch pwned\r\u2028two",), folders=())

    assert "# one touch pwned two\n" in text


def test_what_no_process_can_be_given_is_refused() -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        script(command("a\0b"), comment=(), folders=())
    with pytest.raises(InvalidInput, match=json.dumps("A B").strip('"')):
        script(command("x", env=(("A B", "1"),)), comment=(), folders=())
