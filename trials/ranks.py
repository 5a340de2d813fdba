"""Which rank sits where in the tp x dp x pp grid.  Standard library only: the cost model asks the same question.

Order: tensor parallel fastest, then data parallel, then pipeline (Megatron-LM's default order tp-cp-ep-dp-pp), so that
tensor-parallel peers are neighbours on one node and pipeline stages, which talk least, are farthest apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A rank's place along each axis."""

    tp_rank: int
    dp_rank: int
    pp_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The sizes of the three axes."""

    tp: int
    pp: int
    dp: int

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.tp * self.pp * self.dp

    def rank_of(self, coordinates: Coordinates) -> int:
        """The global rank at these coordinates."""
        return coordinates.tp_rank + self.tp * (coordinates.dp_rank + self.dp * coordinates.pp_rank)

    def coordinates_of(self, rank: int) -> Coordinates:
        """Where a global rank sits. Raises ValueError outside 0..world_size-1."""
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is outside a grid of {self.world_size} ranks")
        rest, tp_rank = divmod(rank, self.tp)[0], rank % self.tp
        return Coordinates(tp_rank=tp_rank, dp_rank=rest % self.dp, pp_rank=rest // self.dp)

    def tp_groups(self) -> list[list[int]]:
        """Every tensor-parallel group, its ranks in order."""
        return [
            [self.rank_of(Coordinates(t, d, p)) for t in range(self.tp)] for p in range(self.pp) for d in range(self.dp)
        ]

    def dp_groups(self) -> list[list[int]]:
        """Every data-parallel group, its ranks in order."""
        return [
            [self.rank_of(Coordinates(t, d, p)) for d in range(self.dp)] for p in range(self.pp) for t in range(self.tp)
        ]

    def pp_groups(self) -> list[list[int]]:
        """Every pipeline, its stages in order."""
        return [
            [self.rank_of(Coordinates(t, d, p)) for p in range(self.pp)] for d in range(self.dp) for t in range(self.tp)
        ]

    def embedding_groups(self) -> list[list[int]]:
        """First and last stage of every pipeline: the ranks that share tied embedding weights."""
        return [[pipeline[0], pipeline[-1]] if self.pp > 1 else [pipeline[0]] for pipeline in self.pp_groups()]
