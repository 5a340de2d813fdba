"""Batches depend on seed and step only, and a text that cannot be trained on is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trials.contract import Data
from trials.corpus import CORPUS_CHARACTERS, bundled_corpus
from trials.data import BatchSource, load_text
from trials.failures import MismatchError


def source(
    *, dp: int = 1, dp_rank: int = 0, micro_batch_size: int = 2, text: torch.Tensor | None = None
) -> BatchSource:
    return BatchSource(
        text=text,
        vocab_size=300,
        seq_len=8,
        global_batch_size=12,
        micro_batch_size=micro_batch_size,
        dp=dp,
        dp_rank=dp_rank,
        seed=5,
        device=torch.device("cpu"),
    )


def test_replicas_and_micro_batches_together_are_the_global_batch() -> None:
    whole = source().global_batch(4)
    tokens, targets = [], []
    for dp_rank in range(3):
        batches = source(dp=3, dp_rank=dp_rank).batches(4)
        assert [part.shape for part in batches.tokens] == [(2, 8), (2, 8)]
        tokens += batches.tokens
        targets += batches.targets
    assert torch.equal(torch.cat(tokens), whole[:, :-1])
    assert torch.equal(torch.cat(targets), whole[:, 1:])


def test_steps_and_seeds_give_different_batches_and_the_same_again() -> None:
    assert torch.equal(source().global_batch(1), source().global_batch(1))
    assert not torch.equal(source().global_batch(1), source().global_batch(2))
    assert not torch.equal(source().global_batch(1), replace(source(), seed=6).global_batch(1))


def test_random_tokens_fill_a_vocabulary_larger_than_a_byte() -> None:
    batch = source().global_batch(0)
    assert batch.shape == (12, 9)
    assert 255 < int(batch.max()) < 300


def test_sequences_are_stretches_of_the_text() -> None:
    text = torch.arange(40, dtype=torch.uint8)
    for row in source(text=text).global_batch(0):
        assert row.tolist() == list(range(int(row[0]), int(row[0]) + 9))


def test_the_last_stretch_of_the_text_can_be_drawn() -> None:
    starts = {int(source(text=torch.arange(10, dtype=torch.uint8)).global_batch(step)[0, 0]) for step in range(20)}
    assert starts == {0, 1}  # 10 characters hold two stretches of 9


def test_the_bundled_corpus_is_the_same_english_every_time() -> None:
    corpus = bundled_corpus()
    assert corpus == bundled_corpus()
    assert len(corpus) >= CORPUS_CHARACTERS
    assert max(corpus) < 128
    words = corpus.decode("ascii").split()
    assert len(set(words)) > 100
    assert corpus.count(b"\n") > 100


def test_a_vocabulary_below_the_texts_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("abc" * 20)  # the largest byte is c, 99
    data = Data(kind="text", path=str(path))
    assert load_text(data, vocab_size=100, seq_len=8) is not None
    with pytest.raises(
        MismatchError, match="byte of value 99, and vocab_size 99 ends at 98; use vocab_size 100 or more"
    ):
        load_text(data, vocab_size=99, seq_len=8)


def test_a_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("short")
    with pytest.raises(MismatchError, match="has 5 bytes; a sequence of 8 needs at least 10"):
        load_text(Data(kind="text", path=str(path)), vocab_size=256, seq_len=8)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.bin"
    path.write_bytes(b"ok so far \xff\xfe and on")
    with pytest.raises(MismatchError, match="not UTF-8: invalid start byte at byte 10"):
        load_text(Data(kind="text", path=str(path)), vocab_size=256, seq_len=8)
    with pytest.raises(MismatchError, match="cannot be read"):
        load_text(Data(kind="text", path=str(tmp_path)), vocab_size=256, seq_len=8)
