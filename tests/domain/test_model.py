"""ModelSpec: defaults that follow from other fields, and what is refused with which numbers."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from autotuner.domain.model import ModelSpec, MoeSpec
from autotuner.domain.validation import field_errors


def _model(**changes):
    return ModelSpec.model_validate({"num_layers": 2, "hidden_size": 64, "num_heads": 4, **changes})


def test_left_out_dimensions_follow_from_the_others():
    model = _model()
    # 64 / 4 = 16 per head; GPT's MLP is 4h = 256
    assert (model.num_kv_heads, model.head_dim, model.ffn_hidden_size) == (4, 16, 256)


def test_gated_ffn_defaults_to_megatrons_two_thirds():
    # int((4 * 4096 * 2 / 3) / 64) * 64 = int(10922.67 / 64) * 64 = 170 * 64 = 10880
    assert _model(hidden_size=4096, num_heads=32, gated_ffn=True).ffn_hidden_size == 10_880


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"hidden_size": 66}, "(document)", "66 is not divisible by num_heads 4"),
        ({"num_kv_heads": 3}, "(document)", "nearest legal value is 2"),
        ({"num_layers": 0}, "num_layers", "greater than 0, not 0"),
        ({"num_layers": -3}, "num_layers", "greater than 0, not -3"),
        ({"num_layers": 2.5}, "num_layers", "valid integer, not 2.5"),
        ({"num_layers": True}, "num_layers", "valid integer, not True"),
        ({"num_layers": "2"}, "num_layers", "valid integer, not '2'"),
        ({"num_layers": 10**30}, "num_layers", "less than or equal to 100000"),
        ({"layers": 2}, "layers", "no such field"),
        ({"name": "two\nlines"}, "name", "match pattern"),
        ({"position": "rope", "head_dim": 15}, "(document)", "use 16"),
        ({"norm": "batch"}, "norm", "'layer' or 'rms'"),
    ],
)
def test_wrong_fields_are_named_with_their_value(changes, field, said):
    with pytest.raises(ValidationError) as caught:
        _model(**changes)
    (error,) = field_errors(caught.value)
    assert error.field == field
    assert said in error.message


def test_heads_times_head_dim_may_differ_from_hidden_size():
    assert _model(hidden_size=66, head_dim=16).head_dim == 16


def test_more_experts_per_token_than_experts_is_refused():
    with pytest.raises(ValidationError, match="use at most 2"):
        MoeSpec(num_experts=2, experts_per_token=4, expert_ffn_hidden_size=8)


def test_a_value_survives_its_own_json():
    model = _model(moe={"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 128})
    assert ModelSpec.from_json(model.as_json()) == model
