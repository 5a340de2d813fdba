"""Job files: every mistake ends in one sentence that names the place."""

from __future__ import annotations

import pytest

from autotuner.cli.jobfile import MAX_FILE_BYTES, read_job_file
from autotuner.domain.errors import InvalidInput

GOOD = """
name: gpt
model: {preset: gpt-tiny}
workload: {global_batch_size: 8}
cluster: {preset: local}
"""


def _write(tmp_path, text):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return path


def test_yaml_and_json_say_the_same(tmp_path):
    as_json = '{"name": "gpt", "model": {"preset": "gpt-tiny"}, "workload": {"global_batch_size": 8},'
    as_json += ' "cluster": {"preset": "local"}}'
    assert read_job_file(_write(tmp_path, GOOD)) == read_job_file(_write(tmp_path, as_json))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1, 2", "not YAML at line"),
        ("- 1\n- 2\n", "holds a mapping (model, workload, cluster), not a list"),
        ("", "not nothing"),
        ("just words", "not a text"),
        (GOOD + "colour: red\n", "colour: no such field"),
        (GOOD.replace("8", ".nan"), "workload.global_batch_size"),
        (GOOD.replace("8", "-8"), "greater than 0, not -8"),
        (GOOD.replace("8", "1e400"), "workload.global_batch_size"),
        (GOOD + "workload: {}\nseed: 2020-01-01\n", "seed"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
        (GOOD + "1: 2\n", "1"),
    ],
)
def test_mistakes_are_told(tmp_path, text, said):
    with pytest.raises(InvalidInput) as caught:
        read_job_file(_write(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_folder_a_binary_and_a_huge_file_are_refused(tmp_path):
    binary, huge = tmp_path / "binary", tmp_path / "huge"
    binary.write_bytes(b"\xff\xfe\xfd")
    with huge.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    for path, said in (
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path, "directory"),
        (binary, "not a text file"),
        (huge, "larger than"),
    ):
        with pytest.raises(InvalidInput, match=said):
            read_job_file(path)
