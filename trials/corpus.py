"""A small English corpus made by a fixed grammar: the same bytes everywhere, nothing to download or to copy along.

It has what a byte-level model can learn in a few steps: spelling, word order, agreement.  Only `random()` of Python's
generator is used, as its sequence for a seed is guaranteed to stay the same between Python versions.
"""

from __future__ import annotations

import random

CORPUS_CHARACTERS = 200_000

_ADJECTIVES = ("old", "small", "quiet", "bright", "heavy", "careful", "curious", "patient", "green", "tired", "gentle")
_NOUNS = (
    "teacher", "river", "machine", "garden", "sailor", "letter", "mountain", "engineer", "bridge", "window",
    "winter", "market", "doctor", "forest", "painter", "village", "lantern", "farmer", "clock", "harbour",
)  # fmt: skip
_VERBS = (
    ("sees", "see"), ("follows", "follow"), ("remembers", "remember"), ("finds", "find"), ("carries", "carry"),
    ("repairs", "repair"), ("watches", "watch"), ("forgets", "forget"), ("needs", "need"), ("answers", "answer"),
)  # fmt: skip
_PLACES = ("near the sea", "behind the house", "in the north", "on the hill", "across the road", "under the stars")
_TIMES = ("In the morning", "After the rain", "Every evening", "Long ago", "Before the journey", "At noon")
_LINKS = (" because ", " while ", " although ", " and then ", " until ")


def _pick(rng: random.Random, words: tuple[str, ...]) -> str:
    return words[int(rng.random() * len(words))]


def _noun_phrase(rng: random.Random, *, plural: bool) -> str:
    adjective = f"{_pick(rng, _ADJECTIVES)} " if rng.random() < 0.6 else ""
    noun = _pick(rng, _NOUNS) + ("s" if plural else "")
    article = "the " if plural or rng.random() < 0.5 else ("an " if (adjective or noun)[0] in "aeiou" else "a ")
    return article + adjective + noun


def _clause(rng: random.Random) -> str:
    plural = rng.random() < 0.4
    singular_verb, plural_verb = _VERBS[int(rng.random() * len(_VERBS))]
    subject = _noun_phrase(rng, plural=plural)
    target = _noun_phrase(rng, plural=rng.random() < 0.4)
    place = f" {_pick(rng, _PLACES)}" if rng.random() < 0.4 else ""
    return f"{subject} {plural_verb if plural else singular_verb} {target}{place}"


def _sentence(rng: random.Random) -> str:
    text = _clause(rng)
    if rng.random() < 0.35:
        text += _pick(rng, _LINKS) + _clause(rng)
    if rng.random() < 0.3:
        return f"{_pick(rng, _TIMES)}, {text}. "
    return f"{text[0].upper()}{text[1:]}. "


def bundled_corpus() -> bytes:
    """About 200,000 ASCII characters of sentences in paragraphs."""
    rng = random.Random(20_240_601)  # noqa: S311 - text, not a secret
    parts: list[str] = []
    length = 0
    while length < CORPUS_CHARACTERS:
        sentence = _sentence(rng) if rng.random() > 0.12 else _sentence(rng).rstrip() + "\n"
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts).encode("ascii")
