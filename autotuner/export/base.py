"""A bundle: the files that launch one layout, as a value that can be written, zipped or shown.

Decides where files may lie and that equal bundles give equal bytes; what is in the files is each exporter's business.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from autotuner.domain.errors import InvalidInput

# The earliest time a zip can hold: the same bundle always gives the same bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100000


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    """One text file, UTF-8; `path` is relative, with forward slashes."""

    path: str
    text: str
    executable: bool = False

    @property
    def mode(self) -> int:
        """Its permissions."""
        return 0o755 if self.executable else 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Files in the order of their paths."""

    files: tuple[BundleFile, ...]

    @classmethod
    def of(cls, contents: Mapping[str, str], *, executable: frozenset[str]) -> Bundle:
        """A bundle from path to text. Raises InvalidInput for a path that leaves the bundle's folder."""
        files = [
            BundleFile(path=_checked(path), text=text, executable=path in executable)
            for path, text in sorted(contents.items())
        ]
        return cls(files=tuple(files))

    def file(self, path: str) -> BundleFile:
        """The file at a path. Raises KeyError."""
        for file in self.files:
            if file.path == path:
                return file
        raise KeyError(path)

    def write(self, folder: Path) -> None:
        """Write all files below a folder, which is made if need be; other files in it stay. Raises OSError."""
        for file in self.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            # A new file takes the place of the old one, so that a script that is running is not changed under bash.
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            temporary.write_text(file.text, encoding="utf-8", newline="\n")
            temporary.chmod(file.mode)
            temporary.replace(path)

    def zip_bytes(self) -> bytes:
        """The bundle as a zip file; equal bundles give equal bytes."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in self.files:
                info = zipfile.ZipInfo(file.path, date_time=_ZIP_TIME)
                info.create_system = 3  # Unix: only then do the permissions below mean anything
                info.external_attr = (_REGULAR_FILE | file.mode) << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, file.text.encode("utf-8"))
        return buffer.getvalue()


def _checked(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or any(part in ("..", ".") for part in path.split("/")):
        raise InvalidInput(f"{path!r} cannot be a file of a bundle; use a relative path inside it", field="path")
    return path
