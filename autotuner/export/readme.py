"""The page that comes with a bundle: what it does, what may be changed, what was measured.

Names are the user's input and stand only in an indented block, where Markdown and HTML mean nothing.
"""

from __future__ import annotations

from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.result import BestResult
from autotuner.domain.units import format_bytes, format_seconds

_TEMPLATE = """\
# Launch files

{names}

`bash launch.sh` trains with {ranks} ranks (tensor parallel {tp}, pipeline parallel {pp}, data parallel {dp},
micro-batch {micro_batch}). It works from any folder and needs a Python with torch, nothing else:

    PYTHON=/path/to/python bash launch.sh

Without PYTHON it uses the interpreter of the machine that wrote these files if it exists here, else `python3`.

| file | what it is |
| --- | --- |
| `launch.sh` | starts the ranks with torchrun on one machine |
| `request.json` | everything the trainer is told |
| `trials/` | the trainer's sources |
| `provenance.json` | the job, what was measured and what was predicted |
| `run/` | made by the script: `report.json` at the end, `progress.jsonl`, a log for each rank below `logs/` |

## What to change

All in `request.json`:

* `steps.measured`: training steps (now {steps}, after {warmup} that warm up).
* `data`: `{{"kind": "text", "path": "/path/to/text"}}` trains on your own UTF-8 file; `bundled` is a small text that
  comes with the trainer, `synthetic` is random tokens.
* `training`: learning rate, weight decay, clipping, seed. Batch and sequence decide speed and memory: after changing
  them, tune again.
* `resources.threads_per_rank`: processor threads of a rank (now {threads}); change OMP_NUM_THREADS in `launch.sh`
  with it.

`layout` and the number of ranks in `launch.sh` belong together.

## What was measured

{measured}

Steps on other machines, or with other software, take other times: see `provenance.json` for where these come from.
"""


def readme(job: TuningJob, config: ParallelConfig, *, steps: int, threads: int, best: BestResult) -> str:
    """The page as Markdown."""
    return _TEMPLATE.format(
        names="\n".join(_literal(line) for line in (f"job    {job.name}", f"model  {job.model.name}")),
        ranks=config.world_size,
        tp=config.tp,
        pp=config.pp,
        dp=config.dp,
        micro_batch=config.micro_batch_size,
        steps=steps,
        warmup=job.measure.warmup_steps,
        threads=threads,
        measured="\n".join(_literal(line) for line in _figures(best)),
    )


def _figures(best: BestResult) -> list[str]:
    step = best.step_seconds
    spread = f"p10 {format_seconds(step.p10)}, p90 {format_seconds(step.p90)}, {step.count} steps"
    lines = [
        f"step        {format_seconds(step.median)} ({spread})",
        f"throughput  {best.tokens_per_second:,.0f} tokens/s, {best.tokens_per_second_per_device:,.0f} per device",
        f"memory      {format_bytes(best.peak_memory_bytes)} on the fullest device",
        f"MFU         {'unknown: the peak of the device is not known' if best.mfu is None else f'{best.mfu:.1%}'}",
    ]
    if best.baseline is not None and best.speedup_over_baseline is not None:
        lines.append(
            f"against     {best.baseline.relation} ({best.baseline.config.key()}):"
            f" {best.speedup_over_baseline:.2f} times as fast"
        )
    return [*lines, f"certainty   {best.certainty}"]


def _literal(line: str) -> str:
    """A line of an indented block; every kind of line break in it becomes a space."""
    return "    " + " ".join(line.splitlines())
