"""From flags and environment to settings and to a client: flags win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autotuner.cli.client import Client
from autotuner.domain.errors import InvalidInput
from autotuner.domain.validation import one_sentence
from autotuner.settings import Settings

UNSET_PORT = -1


def make_settings(*, data_dir: str = "", host: str = "", port: int = UNSET_PORT, url: str = "") -> Settings:
    """Settings with the flags that were given on top. Raises InvalidInput naming the wrong variable."""
    given: dict[str, Any] = {}
    if data_dir:
        given["data_dir"] = Path(data_dir)
    if host:
        given["host"] = host
    if port != UNSET_PORT:
        given["port"] = port
    if url:
        given["url"] = url
    try:
        return Settings(**given)
    except ValidationError as error:
        raise InvalidInput(f"settings (AUTOTUNER_...): {one_sentence(error)}") from None


def make_client(*, url: str) -> Client:
    """A client of the service that flags or environment name."""
    address = make_settings(url=url).server_url
    if not address.startswith(("http://", "https://")):
        raise InvalidInput(f"{address!r} is no address of a service; it starts with http:// or https://")
    return Client(address)
