"""The exported files: the launch that was measured, harmless whatever the names say, and able to run alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autotuner.domain.job import TuningJob
from autotuner.domain.measurement import StepSeconds
from autotuner.domain.result import BestResult, TrialCounts
from autotuner.execution.order import make_order
from autotuner.export.base import Bundle
from autotuner.export.bundled import export_bundled
from autotuner.launch.torchrun import Torchrun
from tests.support.launching import CONFIG, tiny_job
from trials.contract import RunReport, RunRequest, decode, read_document

EVIL = '\'; touch pwned; "$(touch pwned)" `touch pwned` <script>alert(1)</script> | # \u2028touch pwned'
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

RECORDER = '#!/bin/bash\nfor word in "$@"; do printf "%s\\0" "$word"; done > recorded\n'


def best() -> BestResult:
    step = StepSeconds(min=0.5, median=0.5, p10=0.5, p90=0.6, count=6)
    return BestResult(
        job_id="j1",
        trial_id="t1",
        config=CONFIG,
        tokens_per_second=128.0,
        tokens_per_second_per_device=64.0,
        step_seconds=step,
        mfu=None,
        peak_memory_bytes=2**20,
        baseline=None,
        speedup_over_baseline=None,
        runner_up=None,
        certainty="6 steps",
        stopped_because="budget",
        estimate=None,
        trials=TrialCounts(succeeded=1, failed={}),
    )


def exported(job: TuningJob, *, steps: int = 3, python: str = sys.executable) -> Bundle:
    return export_bundled(job, CONFIG, steps=steps, best=best(), created_at=WHEN, python=python)


def evil_job() -> TuningJob:
    job = tiny_job(name=EVIL)
    return job.model_copy(update={"model": job.model.model_copy(update={"name": EVIL})})


def test_the_script_starts_exactly_what_the_executor_starts(tmp_path: Path) -> None:
    home = tmp_path / "my 'best' layout"
    exported(tiny_job()).write(home)
    recorder = tmp_path / "recorder"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)

    subprocess.run(
        [home / "launch.sh"], cwd="/", env={"PATH": "/usr/bin:/bin", "PYTHON": str(recorder)}, check=True, timeout=30
    )

    order = make_order(
        tiny_job(),
        CONFIG,
        name="exported",
        run_dir=tmp_path / "exported",
        python="python",
        module="trials.run",
        cores=2,
        abort_above_step_seconds=None,
    )
    # The same launch, in the bundle's folder instead of a run's.
    plan = replace(order.plan, request_file="request.json", run_dir="run")
    assert (home / "recorded").read_text().split("\0")[:-1] == list(Torchrun().command(plan).argv[1:])


def test_names_are_harmless_wherever_they_stand(tmp_path: Path) -> None:
    bundle = exported(evil_job())
    bundle.write(tmp_path / "b")
    recorder = tmp_path / "recorder"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)

    subprocess.run(
        ["bash", tmp_path / "b" / "launch.sh"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(recorder)},
        check=True,
        timeout=30,
    )

    assert not list(tmp_path.rglob("pwned"))
    assert "touch" not in bundle.file("launch.sh").text
    provenance = json.loads(bundle.file("provenance.json").text)
    assert provenance["job"]["name"] == EVIL
    # In an indented block Markdown shows text as it is; no line of it may fall out of the block.
    readme = bundle.file("README.md").text
    assert len(re.findall(r"^    (?:job|model) .*touch pwned$", readme, flags=re.MULTILINE)) == 2
    assert len(readme.splitlines()) == len(exported(tiny_job()).file("README.md").text.splitlines())


def test_the_request_holds_the_steps_and_the_layout() -> None:
    request = decode(RunRequest, json.loads(exported(tiny_job(), steps=50).file("request.json").text))

    assert request.steps.measured == 50
    assert (request.layout.pp, request.layout.micro_batch_size) == (2, 2)
    assert request.resources.memory_limit_bytes is None


def test_equal_exports_are_equal_to_the_byte() -> None:
    assert exported(tiny_job()).zip_bytes() == exported(tiny_job()).zip_bytes()


def test_provenance_tells_what_was_measured_and_when() -> None:
    provenance = json.loads(exported(tiny_job()).file("provenance.json").text)

    assert provenance["created_at"] == "2026-01-02T03:04:05+00:00"
    assert provenance["result"]["tokens_per_second"] == 128.0
    assert provenance["layout"] == CONFIG.key()
    assert provenance["versions"]["autotuner"]


def test_the_sources_need_nothing_of_the_service() -> None:
    sources = [file for file in exported(tiny_job()).files if file.path.endswith(".py")]

    assert "trials/run.py" in [file.path for file in sources]
    assert [
        f.path for f in sources if re.search(r"^\s*(?:from|import) (?:autotuner|api)\b", f.text, re.MULTILINE)
    ] == []
    assert not [file for file in sources if not file.path.startswith("trials/")]


@pytest.mark.trainer
def test_the_exported_folder_trains_by_itself(tmp_path: Path) -> None:
    home = tmp_path / "my best layout"
    exported(evil_job(), steps=3).write(home)

    done = subprocess.run(
        ["bash", str(home / "launch.sh")],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    report = read_document(RunReport, home / "run" / "report.json")
    # The trainer that ran is the bundle's own copy.
    assert (home / "trials" / "__pycache__").is_dir()
    assert (len(report.step_seconds), report.run_id, len(report.ranks)) == (3, "exported", 2)
