"""The contract's documents: what is written is read back, and nothing else is accepted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trials import contract as c


def request() -> c.RunRequest:
    return c.RunRequest(
        schema=c.REQUEST_SCHEMA,
        run_id="run-1",
        model=c.ModelShape(
            num_layers=2,
            hidden_size=8,
            num_heads=2,
            num_kv_heads=2,
            head_dim=4,
            ffn_hidden_size=32,
            gated_ffn=False,
            vocab_size=256,
            max_seq_len=16,
            tied_embeddings=True,
            norm="layer",
            position="learned",
            biases=True,
        ),
        layout=c.Layout(
            tp=2,
            pp=1,
            dp=2,
            virtual_stages=1,
            micro_batch_size=1,
            sequence_parallel=False,
            zero_stage=0,
            recompute="none",
        ),
        training=c.Training(
            seq_len=16,
            global_batch_size=4,
            precision="fp32",
            learning_rate=1e-3,
            weight_decay=0.0,
            beta1=0.9,
            beta2=0.95,
            epsilon=1e-8,
            clip_norm=1.0,
            seed=0,
        ),
        data=c.Data(kind="synthetic", path=""),
        steps=c.Steps(warmup=1, measured=2, abort_above_step_seconds=None),
        resources=c.Resources(
            device="cpu", memory_limit_bytes=None, threads_per_rank=1, collective_timeout_seconds=30.0
        ),
    )


def test_a_request_is_read_back_as_it_was_written(tmp_path):
    path = tmp_path / c.REQUEST_FILE
    wanted = replace(request(), steps=c.Steps(warmup=0, measured=1, abort_above_step_seconds=2.5))
    c.write_document(path, wanted)
    assert c.read_document(c.RunRequest, path) == wanted
    assert [p.name for p in tmp_path.iterdir()] == [c.REQUEST_FILE], "the temporary file is gone"


def test_world_size_is_the_product_of_the_axes():
    assert request().layout.world_size == 4


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("layout", "tp"), "2", r"\$\.layout\.tp: expected int, got '2'"),
        (("layout", "tp"), True, r"\$\.layout\.tp: expected int, got True"),
        (("layout", "sequence_parallel"), 1, "expected bool, got 1"),
        (("layout", "recompute"), "some", "expected one of none, selective, full"),
        (("steps", "measured"), 1.5, r"\$\.steps\.measured: expected int"),
        (("training", "seqlen"), 4, "unknown field 'seqlen'"),
        (("model",), [], r"\$\.model: expected an object, got list"),
    ],
)
def test_wrong_fields_are_refused_by_path(path, value, said):
    document = c.encode(request())
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(c.ContractError, match=said):
        c.decode(c.RunRequest, document)


def test_a_missing_field_is_named():
    document = c.encode(request())
    del document["steps"]["warmup"]
    with pytest.raises(c.ContractError, match=r"\$\.steps: field 'warmup' is missing"):
        c.decode(c.RunRequest, document)


def test_a_whole_number_is_a_float_and_an_infinite_one_is_not():
    document = c.encode(request())
    document["training"]["learning_rate"] = 1
    assert c.decode(c.RunRequest, document).training.learning_rate == 1.0
    document["training"]["learning_rate"] = float("inf")
    with pytest.raises(c.ContractError, match="not a finite number"):
        c.decode(c.RunRequest, document)


@pytest.mark.parametrize("text", ["{", '{"schema": NaN}', "[" * 100_000, "\x00"])
def test_what_is_no_document_is_a_contract_error(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(c.ContractError):
        c.read_document(c.RunReport, path)


def test_bytes_that_are_no_text_are_a_contract_error(tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(c.ContractError, match="not JSON"):
        c.read_document(c.RunReport, path)


def test_a_document_beyond_the_limit_is_not_read(tmp_path):
    path = tmp_path / "report.json"
    with path.open("wb") as file:
        file.truncate(c.MAX_DOCUMENT_BYTES + 1)
    with pytest.raises(c.ContractError, match="more than the"):
        c.read_document(c.RunReport, path)


def test_nan_is_never_written(tmp_path):
    bad = replace(request(), steps=c.Steps(warmup=0, measured=1, abort_above_step_seconds=float("nan")))
    with pytest.raises(ValueError, match="JSON compliant"):
        c.write_document(tmp_path / "request.json", bad)
    assert json.dumps([p.name for p in tmp_path.iterdir()]) == "[]"
