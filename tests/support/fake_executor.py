"""An executor without processes: each layout takes the step time that a function gives it, and leaves a true report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from autotuner.costmodel.params import count_parameters
from autotuner.domain.model import ModelSpec
from autotuner.domain.outcome import RunOutcome, RunStatus
from autotuner.execution.base import RunOrder
from trials import contract as c

StepSeconds = Callable[[c.Layout], float]


class FakeExecutor:
    """Runs end at the first poll. `step_seconds` decides the times; a layout in `out_of_memory` (tp, pp, dp) fails so.

    `held` keeps all runs running until it is cleared; `submitted` lists the names in order; a run that it `forgets`
    leaves no report and is unknown afterwards, as if its node had gone.
    """

    def __init__(self, root: Path, *, step_seconds: StepSeconds, out_of_memory: Collection[tuple[int, int, int]] = ()):
        self._root = root
        self._step_seconds = step_seconds
        self._out_of_memory = set(out_of_memory)
        self._outcomes: dict[str, RunOutcome] = {}
        self.submitted: list[str] = []
        self.requests: list[c.RunRequest] = []
        self.cancelled: list[str] = []
        self.released: list[str] = []
        self.held = False
        self.forgets: Callable[[str], bool] = lambda _name: False

    def run_dir(self, name: str) -> Path:
        return self._root / name

    def submit(self, order: RunOrder) -> None:
        if order.name in self.submitted:
            return
        request = c.decode(c.RunRequest, json.loads(order.request_text))
        self.submitted.append(order.name)
        self.requests.append(request)
        order.run_dir.mkdir(parents=True)
        layout = request.layout
        if self.forgets(order.name):
            return
        if (layout.tp, layout.pp, layout.dp) in self._out_of_memory:
            failure = c.RankFailure(
                schema=c.FAILURE_SCHEMA,
                run_id=request.run_id,
                rank=0,
                kind="out_of_memory",
                message="no room",
                traceback="",
                unix_seconds=time.time(),
            )
            c.write_document(order.run_dir / c.failure_file(0), failure)
            self._outcomes[order.name] = RunOutcome(reason="exited", exit_code=1)
            return
        c.write_document(order.run_dir / c.REPORT_FILE, _report(request, self._step_seconds(layout)))
        self._outcomes[order.name] = RunOutcome(reason="exited", exit_code=0)

    def poll(self, names: Sequence[str]) -> Mapping[str, RunStatus]:
        return {name: self._status(name) for name in names}

    def _status(self, name: str) -> RunStatus:
        if name not in self._outcomes or self.forgets(name):
            return RunStatus(name=name, phase="unknown")
        if self.held:
            return RunStatus(name=name, phase="running")
        return RunStatus(name=name, phase="ended", outcome=self._outcomes[name])

    def cancel(self, name: str) -> None:
        self.cancelled.append(name)
        (self.run_dir(name) / c.REPORT_FILE).unlink(missing_ok=True)
        self._outcomes[name] = RunOutcome(reason="cancelled")
        self.held = False

    def wait_ended(self, names: Sequence[str], *, timeout_seconds: float) -> tuple[str, ...]:
        return tuple(name for name in names if self.held)

    def release(self, name: str) -> None:
        self.released.append(name)

    def kill_strays(self, known: Collection[str]) -> int:
        return 0


def _report(request: c.RunRequest, seconds: float) -> c.RunReport:
    layout, training = request.layout, request.training
    model = ModelSpec.model_validate(c.encode(request.model))
    ranks = tuple(
        c.RankReport(
            rank=rank,
            tp_rank=0,
            pp_rank=rank // (layout.tp * layout.dp),
            dp_rank=0,
            hostname="here",
            device_name="fake",
            num_layers=1,
            num_parameters=1,
            peak_allocated_bytes=10_000_000,
            peak_reserved_bytes=10_000_000,
            baseline_bytes=1,
            breakdown_seconds={"compute": seconds},
        )
        for rank in range(layout.world_size)
    )
    return c.RunReport(
        schema=c.REPORT_SCHEMA,
        run_id=request.run_id,
        ended="completed",
        warmup_step_seconds=(seconds,) * request.steps.warmup,
        step_seconds=(seconds,) * request.steps.measured,
        losses=(5.0, 4.0),
        grad_norms=(1.0, 1.0),
        startup_seconds=1.0,
        setup_seconds=0.1,
        built=c.Built(
            num_layers=model.num_layers,
            num_parameters=count_parameters(model),
            tp=layout.tp,
            pp=layout.pp,
            dp=layout.dp,
            num_microbatches=training.global_batch_size // (layout.micro_batch_size * layout.dp),
            tokens_per_step=training.global_batch_size * training.seq_len,
        ),
        ranks=ranks,
        environment=c.ReportEnvironment(torch_version="0", python_version="3", backend="fake", threads_per_rank=1),
    )
