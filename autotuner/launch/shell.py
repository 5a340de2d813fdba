"""A rendered command as a bash script that anyone can run, from any folder.

Decides quoting and nothing else: every word goes through `shlex.quote`, so no word can become shell code.  The words
themselves are the command's; the script runs exactly these.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from autotuner.domain.errors import InvalidInput
from autotuner.launch.plan import Command

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def script(command: Command, *, comment: Sequence[str], folders: Sequence[str]) -> str:
    """The script's text. `folders` are made before the launch; `comment` holds lines without control characters.

    The script changes to its own folder first, so relative paths in the command are relative to it.  PYTHON overrides
    the interpreter; without it the command's own is used if it exists on this machine, else python3.
    Raises InvalidInput for a NUL byte, which no argument of a process can hold, and for an impossible variable name.
    """
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {_comment(line)}" for line in comment),
        "set -euo pipefail",
        # A relative PYTHON is relative to where the user stands, and stays so after the change of folder.
        'case "${PYTHON:-}" in /*) ;; */*) PYTHON="$PWD/$PYTHON" ;; esac',
        'CDPATH="" cd -- "$(dirname -- "${BASH_SOURCE[0]}")"',
        "",
        *_interpreter(command.argv[0]),
        "",
        *(_export(name, value) for name, value in command.env),
        _python_path(command.package_root),
        "",
        *(f"mkdir -p -- {_quote(folder)}" for folder in folders),
        f'exec "$PYTHON" {_continued(command.argv[1:])}',
    ]
    return "\n".join(lines) + "\n"


def _interpreter(python: str) -> list[str]:
    return [
        'if [ -z "${PYTHON:-}" ]; then',
        "  PYTHON=python3",
        f"  if [ -x {_quote(python)} ]; then PYTHON={_quote(python)}; fi",
        "fi",
    ]


def _export(name: str, value: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise InvalidInput(f"{name!r} cannot be the name of an environment variable", field="env")
    return f"export {name}={_quote(value)}"


def _python_path(package_root: str) -> str:
    """The trainer's folder first, then what the user had; a relative folder is made absolute."""
    if package_root.startswith("/"):
        root = _quote(package_root)
    else:
        root = '"$PWD"' if package_root == "." else f'"$PWD"/{_quote(package_root)}'
    return f'export PYTHONPATH={root}"${{PYTHONPATH:+:$PYTHONPATH}}"'


def _continued(words: Sequence[str]) -> str:
    """One option with its value on each line, so that a person can read and change the command."""
    lines: list[str] = []
    for word in words:
        is_value = bool(lines) and lines[-1].startswith("-") and " " not in lines[-1] and not word.startswith("-")
        if is_value:
            lines[-1] = f"{lines[-1]} {_quote(word)}"
        else:
            lines.append(_quote(word))
    return " \\\n  ".join(lines)


def _quote(word: str) -> str:
    if "\0" in word:
        raise InvalidInput(f"{word!r} holds a NUL byte, which no argument of a process can hold")
    return shlex.quote(word)


def _comment(line: str) -> str:
    # A line break would end the comment and start a command; str.splitlines knows more kinds of them than bash does.
    return " ".join(line.split())
