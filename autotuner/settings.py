"""What the operator sets, read from the environment in this file and nowhere else.

Every setting is an `AUTOTUNER_...` variable; command-line flags of `serve` and `worker` override them by argument.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

DEFAULT_DATA_DIR = "autotuner-data"


class Settings(BaseSettings):
    """Where data lies and where the service listens."""

    model_config = SettingsConfigDict(env_prefix="AUTOTUNER_", extra="ignore", frozen=True)

    data_dir: Path = Path(DEFAULT_DATA_DIR)
    # Empty: an SQLite file in the data folder.
    database_url: str = ""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    # Listen beyond loopback although there are no accounts: for a container whose port is published on loopback only.
    # Requests must still name a loopback host, so a page of another site gets no further.
    behind_loopback_port: bool = False
    url: str = ""
    # Empty: log to standard error.
    log_file: str = ""
    lease_seconds: Annotated[float, Field(gt=1, le=3600)] = 30.0
    tick_seconds: Annotated[float, Field(gt=0.01, le=60)] = 0.2

    @property
    def resolved_database_url(self) -> str:
        """The database to open: the one that was set, else the SQLite file in the data folder."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'autotuner.db'}"

    @property
    def runs_root(self) -> Path:
        """The folder that holds one folder for each run."""
        return self.data_dir.absolute() / "runs"

    @property
    def server_url(self) -> str:
        """Where clients find the service."""
        return self.url or f"http://{self.host}:{self.port}"


def use_one_blas_thread() -> None:
    """Keep numpy's BLAS from starting a thread for each core; call before numpy is imported.

    The search multiplies small matrices while ranks use the cores: its threads would wait for each other.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
