"""A bundle as a value."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from autotuner.domain.errors import InvalidInput
from autotuner.export.base import Bundle

BUNDLE = Bundle.of({"b/x.txt": "é\n", "a.sh": "#!/bin/sh\n"}, executable=frozenset({"a.sh"}))


def test_files_are_in_the_order_of_their_paths_with_their_flags() -> None:
    assert [(f.path, f.executable) for f in BUNDLE.files] == [("a.sh", True), ("b/x.txt", False)]
    assert BUNDLE.file("b/x.txt").text == "é\n"


def test_equal_bundles_give_equal_zips_with_permissions() -> None:
    again = Bundle.of({"a.sh": "#!/bin/sh\n", "b/x.txt": "é\n"}, executable=frozenset({"a.sh"}))

    assert BUNDLE.zip_bytes() == again.zip_bytes()
    with zipfile.ZipFile(io.BytesIO(BUNDLE.zip_bytes())) as archive:
        assert archive.namelist() == ["a.sh", "b/x.txt"]
        assert archive.read("b/x.txt") == "é\n".encode()
        assert archive.getinfo("a.sh").external_attr >> 16 == 0o100755
        assert archive.getinfo("b/x.txt").external_attr >> 16 == 0o100644


def test_writing_makes_folders_and_leaves_other_files(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")

    BUNDLE.write(tmp_path / "out")
    BUNDLE.write(tmp_path / "out")

    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.sh", "b", "mine"]
    assert os.access(tmp_path / "out" / "a.sh", os.X_OK)
    assert (tmp_path / "out" / "b" / "x.txt").read_bytes() == "é\n".encode()


@pytest.mark.parametrize("path", ["", "/x", "../x", "a/../../x", "a\\b", "./x", "a/./b"])
def test_a_path_that_leaves_the_folder_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="inside it"):
        Bundle.of({path: ""}, executable=frozenset())
