"""Where a bundle's figures come from: what was measured, what was predicted, by which versions."""

from __future__ import annotations

import json
from datetime import datetime

from autotuner import __version__
from autotuner.domain.job import TuningJob
from autotuner.domain.parallel import ParallelConfig
from autotuner.domain.result import BestResult

PROVENANCE_SCHEMA = "autotuner.provenance/1"


def provenance_text(job: TuningJob, config: ParallelConfig, *, best: BestResult, created_at: datetime) -> str:
    """The document as JSON text; names stand in it as JSON strings and cannot end them."""
    document = {
        "schema": PROVENANCE_SCHEMA,
        "created_at": created_at.isoformat(),
        "versions": {"autotuner": __version__},
        "layout": config.key(),
        "config": config.as_json(),
        "job": job.as_json(),
        "result": best.as_json(),
    }
    return json.dumps(document, allow_nan=False, ensure_ascii=True, indent=1, sort_keys=True) + "\n"
