"""How long a pipeline of unequal stages takes, what of it is bubble, and what its messages cost.

m micro-batches, p stages, v virtual stages, t_i seconds of stage i for one micro-batch (forward and backward):
    m max(t) + (sum(t) - max(t)) / v
which is (m + (p - 1)/v) t for equal stages (SC 2021, section 2.2).  The true sum matters: the stage with the head is
slower than the others, and 78 layers on 12 stages make the slowest hold 7, not 6.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotuner.costmodel.candidates import CandidateArrays
from autotuner.costmodel.collectives import Link
from autotuner.costmodel.software import Software
from autotuner.domain.model import ModelSpec

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSeconds:
    """Of one step, each [n]: work of the slowest stage, waiting of that stage, and the average stage's work."""

    busy: Floats
    bubble: Floats
    average_busy: Floats


def pipeline_seconds(
    *, microbatches: Any, pp: Any, virtual_stages: Any, slowest: Floats, all_stages: Floats
) -> PipelineSeconds:
    """`slowest` is max(t), `all_stages` sum(t), both [n] seconds per micro-batch."""
    return PipelineSeconds(
        busy=microbatches * slowest,
        bubble=(all_stages - slowest) / virtual_stages,
        average_busy=microbatches * all_stages / pp,
    )


def bubble_fraction(*, bubble: Floats, busy: Floats) -> Floats:
    """Bubble over the ideal time, as SC 2021 defines it: (p - 1) / (m v) for equal stages."""
    return bubble / busy


def exposed_message_seconds(
    model: ModelSpec,
    candidates: CandidateArrays,
    *,
    seq_len: int,
    element_bytes: int,
    microbatches: Floats,
    link: Link,
    tensor_link: Link,
    software: Software,
    spare: Floats,
) -> Floats:
    """Sending activations forward and gradients backward, [n] seconds of one step, as far as nothing hides it.

    Each of m v chunks on the critical path waits for one message a direction; filling the pipeline adds one for each
    of the other stages.
    """
    tokens = candidates.micro_batch_size * (seq_len / candidates.cp)
    full = element_bytes * tokens * model.hidden_size
    tp = candidates.tp
    scattered = candidates.sequence_parallel | software.scatter_gather_p2p
    message = link.seconds("send", num_bytes=np.where(scattered, full / tp, full), participants=candidates.pp)
    gathers = software.scatter_gather_p2p & ~candidates.sequence_parallel & (candidates.pp > 1)
    gather = tensor_link.seconds("all_gather", num_bytes=full, participants=tp)
    message = message + np.where(gathers, gather, 0.0)
    messages = 2.0 * (microbatches * candidates.virtual_stages + candidates.pp - 1)
    return messages * message * (1.0 - software.p2p_overlap * spare)
