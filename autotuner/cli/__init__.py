"""The command line. Heavy imports happen inside the commands, so that `autotuner --help` answers at once."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `autotuner` command."""
    from autotuner.cli.app import app  # noqa: PLC0415 - `autotuner.cli` itself must stay cheap to import

    app()
