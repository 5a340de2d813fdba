"""The command line answers at once: nothing heavy is imported before a command needs it."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numpy", "pydantic", "fastapi", "sqlalchemy", "optuna", "torch", "httpx2", "yaml", "plotly", "rich")


def test_help_imports_nothing_heavy():
    code = f"import sys, autotuner.cli.app; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_no_command_shows_the_help_and_an_unknown_one_is_wrong_usage():
    run = [sys.executable, "-m", "autotuner"]
    shown = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (shown.returncode, "Commands:" in shown.stdout) == (0, True)
    wrong = subprocess.run([*run, "nonsense"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert "nonsense" in wrong.stderr
