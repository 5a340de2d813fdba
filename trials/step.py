"""One training step: forward and backward of all micro-batches, sums over ranks, one update."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from trials.contract import RunRequest
from trials.data import BatchSource
from trials.failures import DivergedError
from trials.flat import FlatParameters
from trials.gradients import GradientSync, local_square_sum
from trials.mesh import ParallelMesh
from trials.model import StageModel
from trials.optimizer import AdamW
from trials.pipeline.p2p import Channel
from trials.pipeline.select import run_schedule
from trials.pipeline.stage import StageRunner
from trials.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Mean loss over the global batch and gradient norm before clipping; the same on every rank."""

    loss: float
    grad_norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """All parts of one rank's training, put together by `build.py`."""

    request: RunRequest
    mesh: ParallelMesh
    device: torch.device
    stopwatch: Stopwatch
    model: StageModel
    flat: FlatParameters
    channel: Channel
    source: BatchSource
    sync: GradientSync
    optimizer: AdamW

    def accumulate(self, step: int) -> torch.Tensor:
        """Fill the flat gradient buffer with the gradient of the step's global batch.

        Returns this rank's share of the mean loss (scalar): 0 but on the last stage.
        """
        training = self.request.training
        batches = self.source.batches(step)
        self.flat.gradients.zero_()
        chunks = [
            StageRunner(
                chunk,
                tokens=batches.tokens,
                targets=batches.targets,
                loss_scale=1.0 / (training.global_batch_size * training.seq_len),
                device=self.device,
            )
            for chunk in self.model.chunks
        ]
        run_schedule(chunks, self.channel, mesh=self.mesh)
        self.sync.run()
        return chunks[-1].loss  # The model's last chunk, if it is here, is this stage's last one.

    def step(self, step: int) -> StepResult:
        """Train on the step's global batch. Raises DivergedError on every rank at once."""
        result = self._agree(self.accumulate(step))
        if not (math.isfinite(result.loss) and math.isfinite(result.grad_norm)):
            raise DivergedError(
                f"step {step}: loss {result.loss}, gradient norm {result.grad_norm};"
                f" learning_rate is {self.request.training.learning_rate}"
            )
        with self.stopwatch.span("optimizer"):
            self.optimizer.step(grad_norm=result.grad_norm)
        return result

    def _agree(self, loss_share: torch.Tensor) -> StepResult:
        """Loss and norm in one small sum over all ranks; each counts what no other rank counts."""
        at = self.mesh.at
        with self.stopwatch.span("optimizer"):
            squares = local_square_sum(self.flat.counted_segments(), device=self.device)
            # All replicas hold the same gradient, all tensor-parallel ranks the same loss.
            shares = torch.stack(
                (loss_share if at.tp_rank == 0 else loss_share * 0, squares if at.dp_rank == 0 else squares * 0)
            )
        loss, square_sum = self.mesh.world.all_reduce_(shares).tolist()
        return StepResult(loss=loss, grad_norm=math.sqrt(square_sum) if square_sum >= 0 else math.nan)
