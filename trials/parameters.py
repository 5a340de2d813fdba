"""Where a parameter's slice lies in the whole parameter, and how it gets its first values.

Every parameter is drawn whole from (seed, name) and sliced, so that all layouts start from the same model and losses
can be compared without a checkpoint.  The draw goes block by block of rows, each from its own seed: no rank ever holds
a whole parameter, and blocks outside its slice are not drawn.  Which parameters exist is the layers' business.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Initial:
    """First values: normal with this deviation around the mean, or the mean itself where the deviation is 0."""

    mean: float
    deviation: float


ONES = Initial(mean=1.0, deviation=0.0)
ZEROS = Initial(mean=0.0, deviation=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The part of a parameter that a rank holds: `ranges` along `dim` of the whole `shape`, one after the other.

    A range may end after the whole (padding: those values are 0 and stay 0). `counted_rows` leading rows of the local
    part count in norms and totals here; what is a copy of another rank's counts there. Rows from `copied_from` on are
    held by all ranks of the mesh' kv group, each with a partial gradient; None where there are none.
    """

    name: str
    shape: tuple[int, ...]
    dim: int
    ranges: tuple[tuple[int, int], ...]
    counted_rows: int
    copied_from: int | None

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of this rank's part."""
        extent = sum(stop - start for start, stop in self.ranges)
        return (*self.shape[: self.dim], extent, *self.shape[self.dim + 1 :])

    @property
    def counted_elements(self) -> int:
        """Elements that count here: no copies, no padding."""
        local_rows = self.local_shape[0]
        if self.dim == 1:
            return self.counted_rows * self.local_shape[1]
        padding = sum(max(0, stop - max(start, self.shape[0])) for start, stop in self.ranges)
        rows = self.counted_rows - padding if self.counted_rows == local_rows else self.counted_rows
        return rows * row_elements(self.shape)

    def scatter_(self, whole: Tensor, part: Tensor) -> None:
        """Write this rank's part into the whole tensor, padding left out."""
        offset = 0
        for start, stop in self.ranges:
            inside = max(0, min(stop, self.shape[self.dim]) - start)
            whole.narrow(self.dim, start, inside).copy_(part.narrow(self.dim, offset, inside))
            offset += stop - start


def replicated(name: str, *shape: int, counted: bool) -> Placement:
    """A parameter that every tensor-parallel rank holds whole; `counted` on one of them."""
    rows = shape[0]
    return Placement(
        name=name, shape=shape, dim=0, ranges=((0, rows),), counted_rows=rows if counted else 0, copied_from=None
    )


def split_columns(name: str, *, rows: int, columns: int, parts: int, index: int) -> Placement:
    """Part `index` of a matrix [rows, columns] cut into equal blocks of columns."""
    width = columns // parts
    return Placement(
        name=name,
        shape=(rows, columns),
        dim=1,
        ranges=((index * width, (index + 1) * width),),
        counted_rows=rows,
        copied_from=None,
    )


class ShardedParameter(torch.nn.Parameter):
    """This rank's part of a parameter. Empty until `flat.py` places it in the flat buffers and sets `main_grad`.

    `main_grad` is its fp32 view of the flat gradient buffer, into which layers accumulate.
    """

    placement: Placement
    initial: Initial
    main_grad: Tensor


def declare(placement: Placement, initial: Initial, *, device: torch.device, dtype: torch.dtype) -> ShardedParameter:
    """A parameter without memory yet."""
    parameter = ShardedParameter(torch.empty(0, device=device, dtype=dtype))
    parameter.placement, parameter.initial = placement, initial
    return parameter


def accumulate_product_(parameter: ShardedParameter, outputs: Tensor, inputs: Tensor, *, rows: int) -> None:
    """Add outputs^T [rows, n] x inputs [n, columns] to the first `rows` rows of the gradient.

    In fp32 the sum happens inside the matrix product, which saves a pass over a weight-sized temporary.
    """
    target = parameter.main_grad[:rows]
    if outputs.dtype == target.dtype:
        target.addmm_(outputs.t(), inputs)
    else:
        target.add_(outputs.t() @ inputs)


def draw_(part: Tensor, placement: Placement, initial: Initial, *, seed: int) -> None:
    """Fill this rank's part [local_shape] with its slice of the whole parameter's first values."""
    if initial.deviation == 0.0:
        part.fill_(initial.mean)
        return
    part.zero_()
    rows, row_size = placement.shape[0], row_elements(placement.shape)
    block_rows = max(1, BLOCK_ELEMENTS // row_size)
    generator = torch.Generator(part.device)
    for first in range(0, rows, block_rows):
        last = min(rows, first + block_rows)
        pieces = _pieces(placement, first, last)
        if not pieces:
            continue
        generator.manual_seed(_block_seed(seed, placement.name, first))
        block = torch.empty((last - first, *placement.shape[1:]), device=part.device, dtype=part.dtype)
        block.normal_(initial.mean, initial.deviation, generator=generator)
        for source, target in pieces:
            part[target].copy_(block[source])


Slices = tuple[slice, ...]


def _pieces(placement: Placement, first: int, last: int) -> list[tuple[Slices, Slices]]:
    """Which part of the block of rows first..last goes where in the local part: pairs of (in block, in part)."""
    pieces: list[tuple[Slices, Slices]] = []
    offset = 0
    for start, stop in placement.ranges:
        if placement.dim == 1:
            width = stop - start
            pieces.append(((slice(None), slice(start, stop)), (slice(first, last), slice(offset, offset + width))))
        else:
            low, high = max(start, first), min(stop, last)
            if low < high:
                moved = offset - start
                pieces.append(((slice(low - first, high - first),), (slice(low + moved, high + moved),)))
        offset += stop - start
    return pieces


def row_elements(shape: tuple[int, ...]) -> int:
    """Elements of one row (the last dimensions) of a tensor of this shape."""
    elements = 1
    for extent in shape[1:]:
        elements *= extent
    return elements


def _block_seed(seed: int, name: str, first_row: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}/{first_row}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
