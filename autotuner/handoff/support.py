"""What each framework that we can launch is able to run, and where the bundled trainer's sources lie."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autotuner.domain.capabilities import Capabilities
from autotuner.domain.errors import InvalidInput, LaunchRefused

BUNDLED: Final = Capabilities(
    framework="bundled",
    precisions=("fp32", "bf16"),
    norms=("layer", "rms"),
    positions=("learned", "rope", "none"),
    grouped_query_attention=True,
    gated_ffn=True,
    moe=False,
    max_virtual_stages=1,
    sequence_parallel=False,
    zero_stages=(0,),
    recompute=("none", "selective", "full"),
    max_context_parallel=1,
    max_expert_parallel=1,
    uneven_stages=True,
    pads_vocabulary=True,
    kv_heads_replicated=True,
)
"""The trainer that comes with the program: what lies outside can be estimated, and is not measured."""

MEGATRON_LM: Final = Capabilities(
    framework="megatron-lm",
    precisions=("fp32", "bf16", "fp16"),
    norms=("layer", "rms"),
    positions=("learned", "rope", "none"),
    grouped_query_attention=True,
    gated_ffn=True,
    moe=False,
    max_virtual_stages=64,
    sequence_parallel=True,
    zero_stages=(0, 1),
    recompute=("none", "selective", "full"),
    max_context_parallel=64,
    max_expert_parallel=1,
    uneven_stages=False,
    pads_vocabulary=True,
    kv_heads_replicated=True,
)
"""Megatron-LM (megatron/training/arguments.py): layouts are estimated under its rules; it is not launched from here."""

_KNOWN: Final = {known.framework: known for known in (BUNDLED, MEGATRON_LM)}


def capabilities_of(framework: str) -> Capabilities:
    """What a framework can run. Raises InvalidInput for one that is not known."""
    try:
        return _KNOWN[framework]
    except KeyError:
        known = ", ".join(sorted(_KNOWN))
        raise InvalidInput(f"unknown framework {framework!r}; known: {known}", field="framework") from None


def trainer_folder() -> Path:
    """The folder of the trainer's package; its parent is what ranks need on PYTHONPATH. Raises LaunchRefused."""
    spec = find_spec("trials")
    if spec is None or spec.origin is None:
        raise LaunchRefused("the trainer's package `trials` is not installed beside `autotuner`; install both again")
    return Path(spec.origin).resolve().parent
