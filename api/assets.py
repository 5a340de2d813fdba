"""The dashboard's files and Plotly's, from this package and the plotly wheel: no network, no build step.

Decides which files are served and how they are cached.  Files are listed when the application starts and addressed by
that list, so no path of a request ever reaches the file system.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

DASHBOARD = Path(__file__).parent / "dashboard"
PLOTLY = "vendor/plotly.min.js"

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_MIN_GZIP_BYTES = 1024


@dataclass(frozen=True)
class Asset:
    """One file; read and compressed when it is first asked for."""

    path: Path

    @cached_property
    def body(self) -> bytes:
        """The file's bytes."""
        return self.path.read_bytes()

    @cached_property
    def gzipped(self) -> bytes | None:
        """The file compressed, None where that gains nothing."""
        return gzip.compress(self.body, compresslevel=4, mtime=0) if len(self.body) >= _MIN_GZIP_BYTES else None

    @cached_property
    def etag(self) -> str:
        """Changes with the content, so that browsers ask for a file again only when there is a new one."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:20]}"'

    @property
    def media_type(self) -> str:
        """By the ending, from a fixed list."""
        return _MEDIA_TYPES[self.path.suffix]


def find_assets() -> Mapping[str, Asset]:
    """All files by their path below `/assets/`."""
    files = sorted(path for path in DASHBOARD.rglob("*") if path.suffix in _MEDIA_TYPES and path.is_file())
    assets = {path.relative_to(DASHBOARD).as_posix(): Asset(path) for path in files}
    plotly = _plotly_js()
    if plotly is not None:
        assets[PLOTLY] = Asset(plotly)
    return assets


def _plotly_js() -> Path | None:
    """Plotly.js as it lies in the wheel; the Python package itself is not imported. None: pages say charts are off."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return path if path.is_file() else None
