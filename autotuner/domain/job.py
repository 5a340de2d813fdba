"""A tuning job: what the user asks for, and the same with every open value filled in.

`JobRequest` is what a file or `POST /jobs` holds: presets by name, values left to be derived.  `TuningJob` is its
resolved form, which is stored and never changes.  `Job` is the record around it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from autotuner.domain.base import DERIVE, BatchSize, Count, Derived, Dimension, Name, Slug, Value
from autotuner.domain.cluster import ClusterSpec
from autotuner.domain.launcher import LauncherSpec
from autotuner.domain.model import ModelSpec
from autotuner.domain.objective import Budget, MeasurePlan, Objective
from autotuner.domain.parallel import Degree, ParallelConfig, Recompute
from autotuner.domain.space import SearchSpace
from autotuner.domain.workload import OptimizerSpec, Precision, Workload

Strategy = Literal["default", "gp", "tpe", "random", "estimate-order", "grid"]
JobState = Literal["queued", "running", "paused", "cancelling", "cancelled", "completed", "failed"]
DesiredState = Literal["run", "pause", "cancel"]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]


class ModelPreset(Value):
    """A model by name, as listed by `GET /presets/models`."""

    preset: Slug


class ClusterPreset(Value):
    """A cluster by name; `local` is the machine the service runs on. Sizes may be given beside the name."""

    preset: Slug
    nodes: Count | Derived = DERIVE
    devices_per_node: Annotated[int, Field(gt=0, le=1024)] | Derived = DERIVE


class WorkloadRequest(Value):
    """A workload whose sequence length defaults to the model's and whose precision to what the devices do best."""

    seq_len: Dimension | Derived = DERIVE
    global_batch_size: BatchSize
    precision: Precision | Derived = DERIVE
    optimizer: OptimizerSpec = OptimizerSpec()


class BaselineRequest(Value):
    """The layout in use today. `dp` follows from the number of devices when it is left out."""

    tp: Degree = 1
    pp: Degree = 1
    dp: Degree | Derived = DERIVE
    micro_batch_size: BatchSize = 1
    virtual_stages: Annotated[int, Field(gt=0, le=1024)] = 1
    sequence_parallel: bool = False
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0
    recompute: Recompute = "none"


def _preset_or_spec(data: Any) -> str:
    is_preset = "preset" in data if isinstance(data, dict) else isinstance(data, ModelPreset | ClusterPreset)
    return "preset" if is_preset else "spec"


ModelChoice = Annotated[
    Annotated[ModelPreset, Tag("preset")] | Annotated[ModelSpec, Tag("spec")], Discriminator(_preset_or_spec)
]
ClusterChoice = Annotated[
    Annotated[ClusterPreset, Tag("preset")] | Annotated[ClusterSpec, Tag("spec")], Discriminator(_preset_or_spec)
]


class JobRequest(Value):
    """A tuning job as the user writes it; only model, cluster and the global batch are required."""

    name: Name = "tuning job"
    model: ModelChoice
    workload: WorkloadRequest
    cluster: ClusterChoice
    space: SearchSpace = SearchSpace()
    baseline: BaselineRequest | None = None
    framework: Slug = "bundled"
    objective: Objective = "tokens_per_second"
    budget: Budget = Budget()
    strategy: Strategy = "default"
    seed: Seed = 0
    measure: MeasurePlan = MeasurePlan()
    launcher: LauncherSpec = LauncherSpec()


class TuningJob(Value):
    """A `JobRequest` with every preset looked up and every derived value filled in."""

    name: Name
    model: ModelSpec
    workload: Workload
    cluster: ClusterSpec
    space: SearchSpace
    baseline: ParallelConfig | None
    framework: Slug
    objective: Objective
    budget: Budget
    strategy: Strategy
    seed: Seed
    measure: MeasurePlan
    launcher: LauncherSpec


class Job(Value):
    """The record of a job. `candidates` and `rejections` were counted when it was accepted."""

    id: str
    spec: TuningJob
    state: JobState
    desired_state: DesiredState
    candidates: int
    rejections: dict[str, int]
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    stopped_because: str = ""
    error: str = ""
