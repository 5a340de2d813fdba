"""Which tokens a step trains on: one byte is one token, and a global batch depends on (seed, step) only.

Every layout therefore sees the same batches; a rank cuts out its replica's micro-batches.  Nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trials.contract import Data
from trials.corpus import bundled_corpus
from trials.failures import MismatchError

MAX_TEXT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """Inputs and the tokens that follow them: lists of [b, s], one a micro-batch."""

    tokens: list[Tensor]
    targets: list[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSource:
    """Draws batches from a text, or at random where `text` is None. All tensors are on the CPU until cut."""

    text: Tensor | None
    vocab_size: int
    seq_len: int
    global_batch_size: int
    micro_batch_size: int
    dp: int
    dp_rank: int
    seed: int
    device: torch.device

    def batches(self, step: int) -> MicroBatches:
        """This replica's micro-batches of a step."""
        rows = self.global_batch(step).chunk(self.dp)[self.dp_rank].to(self.device)
        return MicroBatches(
            tokens=[part.contiguous() for part in torch.split(rows[:, :-1], self.micro_batch_size)],
            targets=[part.contiguous() for part in torch.split(rows[:, 1:], self.micro_batch_size)],
        )

    def global_batch(self, step: int) -> Tensor:
        """All sequences of a step, [global_batch_size, seq_len + 1]."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + step) % (1 << 63))
        length = self.seq_len + 1
        if self.text is None:
            return torch.randint(self.vocab_size, (self.global_batch_size, length), generator=generator)
        starts = torch.randint(self.text.numel() - length + 1, (self.global_batch_size, 1), generator=generator)
        return self.text[starts + torch.arange(length)].long()


def load_text(data: Data, *, vocab_size: int, seq_len: int) -> Tensor | None:
    """The text as bytes, [characters]; None for random tokens. Raises MismatchError if it cannot be trained on."""
    if data.kind == "synthetic":
        return None
    if data.kind == "bundled":
        content, name = bundled_corpus(), "the bundled corpus"
    else:
        content, name = _read(Path(data.path)), data.path
    if len(content) < seq_len + 2:
        raise MismatchError(f"{name} has {len(content)} bytes; a sequence of {seq_len} needs at least {seq_len + 2}")
    text = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    largest = int(text.max())
    if largest >= vocab_size:
        raise MismatchError(
            f"{name} has a byte of value {largest}, and vocab_size {vocab_size} ends at {vocab_size - 1};"
            f" use vocab_size {largest + 1} or more"
        )
    return text


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise MismatchError(f"{path} has {path.stat().st_size} bytes; at most {MAX_TEXT_BYTES} are read")
        content = path.read_bytes()
        content.decode("utf-8")
    except OSError as error:
        raise MismatchError(f"the text {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise MismatchError(f"the text {path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return content
