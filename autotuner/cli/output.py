"""What commands print: one JSON document or a table on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from autotuner.domain.units import format_bytes, format_seconds

Json = dict[str, Any]


def emit_json(document: Any) -> None:
    """The one document of a `--json` command."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def console() -> Console:
    """For tables and text meant for people, on standard output; a pipe has no width that should cut a table."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)


def say(text: str) -> None:
    """Progress and remarks, on standard error."""
    sys.stderr.write(text + "\n")


def leaderboard(trials: Sequence[Json], *, title: str, limit: int = 12) -> Table:
    """Measured layouts best first, estimate beside measurement; failed ones last with their kind."""
    table = Table(title=title, title_justify="left")
    for name, right in (
        ("#", True),
        ("layout", False),
        ("tokens/s", True),
        ("estimated", True),
        ("step", True),
        ("memory", True),
        ("estimated", True),
        ("state", False),
    ):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for trial in sorted(trials, key=_rank)[:limit]:
        table.add_row(*_row(trial))
    return table


def _rank(trial: Json) -> tuple[int, float]:
    measured = trial["measurement"]
    return (0, -measured["tokens_per_second"]) if measured else (1, trial["number"])


def _row(trial: Json) -> list[str]:
    measured, estimate, failure = trial["measurement"], trial["estimate"], trial["failure"]
    return [
        str(trial["number"]),
        trial["key"],
        f"{measured['tokens_per_second']:,.0f}" if measured else "-",
        f"{estimate['tokens_per_second']:,.0f}" if estimate else "-",
        format_seconds(measured["step_seconds"]["median"]) if measured else "-",
        format_bytes(measured["peak_memory_bytes"]) if measured else "-",
        format_bytes(estimate["memory_bytes"]) if estimate else "-",
        failure["kind"] if failure else trial["state"],
    ]


def layout_in_words(config: Json) -> str:
    """`tensor 2 x pipeline 1 x data 2, micro-batch 4`."""
    parts = [f"tensor {config['tp']} x pipeline {config['pp']} x data {config['dp']}"]
    parts.append(f"micro-batch {config['micro_batch_size']}")
    if config["virtual_stages"] > 1:
        parts.append(f"{config['virtual_stages']} virtual stages")
    if config["recompute"] != "none":
        parts.append(f"{config['recompute']} recompute")
    if config["sequence_parallel"]:
        parts.append("sequence parallel")
    if config["zero_stage"]:
        parts.append(f"ZeRO-{config['zero_stage']}")
    return ", ".join(parts)


def print_best(best: Json) -> None:
    """The winner in a few lines."""
    out = console()
    out.print(f"Best layout: {layout_in_words(best['config'])}", style="bold")
    step = best["step_seconds"]
    out.print(
        f"  {best['tokens_per_second']:,.0f} tokens/s, step {format_seconds(step['median'])}"
        f" (p10 {format_seconds(step['p10'])}, p90 {format_seconds(step['p90'])}),"
        f" peak memory {format_bytes(best['peak_memory_bytes'])} per rank"
    )
    if best["baseline"] is not None:
        gain = best["speedup_over_baseline"]
        out.print(
            f"  {gain:.2f}x {best['baseline']['relation']}"
            f" ({layout_in_words(best['baseline']['config'])}: {best['baseline']['tokens_per_second']:,.0f} tokens/s)"
        )
    out.print(f"  {best['certainty']}")
    if best["stopped_because"]:
        out.print(f"  stopped because {best['stopped_because']}")
