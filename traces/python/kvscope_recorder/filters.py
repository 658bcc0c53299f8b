"""What to record: layers, heads, rows and captures, as the user writes them and as the model has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .errors import ConfigError
from .schema import CARRIERS, CaptureSet

#: What the caller may pass as `capture`.
Capture = str | Iterable[str] | CaptureSet | None


def parse_capture(capture: Capture, page_size: int = 16) -> CaptureSet:
    """q, k, v and lse, and what the list adds: attn, attn-topk=N, logits, stats, k-pre-rope, index; no-qkv and no-lse take away.

    The words are those of `kvscope record --capture`, and index; qkv and lse may be named, too. A CaptureSet has its own page_size.
    Raises ConfigError.
    """
    is_set = isinstance(capture, CaptureSet)
    words = capture.split(",") if isinstance(capture, str) else [] if is_set else list(capture or ())
    result = capture if is_set else CaptureSet(page_size=page_size)
    switches = {
        "qkv": {"qkv": True},
        "lse": {"lse": True},
        "no-qkv": {"qkv": False},
        "no-lse": {"lse": False},
        "attn": {"attn_dense": True},
        "logits": {"logits": True},
        "stats": {"stats": True},
        "k-pre-rope": {"k_pre_rope": True},
        "index": {"index": True},
    }
    for word in (word.strip() for word in words):
        name, _, number = word.partition("=")
        if name == "attn-topk":
            if not number.isdecimal() or int(number) < 1:
                raise ConfigError(f"capture: expected attn-topk=N with N of 1 or more, found {word!r}")
            result = replace(result, attn_topk=int(number))
        elif word in switches:
            result = replace(result, **switches[word])
        elif word:
            raise ConfigError(f"capture: expected attn-topk=N or one of {', '.join(switches)}; found {word!r}")
    if not any((result.qkv, result.lse, result.logits, result.maps, result.stats, result.k_pre_rope, result.index)):
        raise ConfigError(
            "nothing to capture: choose at least one of qkv, lse, attn, attn-topk=N, logits, stats, k-pre-rope, index"
        )
    if result.page_size < 1:
        raise ConfigError(f"page_size: expected 1 or more, found {result.page_size}")
    return result


def choose(asked: Iterable[int] | int | None, available: Iterable[int], what: str) -> tuple[int, ...]:
    """The indices asked for, ascending and each once; all available ones if none was. Raises ConfigError."""
    known = sorted(available)
    if asked is None:
        return tuple(known)
    chosen = sorted({asked} if isinstance(asked, int) else set(asked))
    if not chosen:
        raise ConfigError(f"{what}s: the list is empty; leave it out to record all")
    for index in chosen:
        if index not in known:
            raise ConfigError(f"{what} {index} cannot be recorded: the model has {ranges(known)}")
    return tuple(int(index) for index in chosen)


def parse_rows(rows: tuple[int, int | None] | range | slice | None) -> tuple[int, int | None]:
    """Positions [begin, end) whose q, lse, attention and logits are kept; end None = to the end of the run."""
    if rows is None:
        return 0, None
    if isinstance(rows, (range, slice)):
        if rows.step not in (None, 1):
            raise ConfigError(f"rows: expected neighbouring positions, found a step of {rows.step}")
        begin, end = rows.start or 0, rows.stop
    else:
        try:
            begin, end = rows
        except (TypeError, ValueError):
            raise ConfigError(f"rows: expected (begin, end) with end None for all that follow, found {rows!r}") from None
    if begin < 0 or (end is not None and end <= begin):
        raise ConfigError(f"rows {begin} to {end}: expected 0 <= begin < end")
    return int(begin), None if end is None else int(end)


def clamp_rows(rows: tuple[int, int | None], n_tokens: int) -> tuple[int, int]:
    """The rows that a run of n_tokens has."""
    begin, end = rows
    last = n_tokens if end is None else min(end, n_tokens)
    return min(begin, last), last


def parse_dtype(dtype: str) -> str | None:
    """A storage type, or None for "auto": that of the model's q, k and v."""
    if dtype == "auto":
        return None
    if dtype not in CARRIERS:
        raise ConfigError(f"dtype: expected auto, {', '.join(CARRIERS)}; found {dtype!r}")
    return dtype


def parse_seed(seed: float) -> int:
    if not (0 <= seed < 2**64 and seed == int(seed)):
        raise ConfigError(f"seed: expected a whole number of 0 to 2^64 - 1, found {seed!r}")
    return int(seed)


def ranges(values: list[int]) -> str:
    """'0 to 3, 7' for [0, 1, 2, 3, 7]."""
    parts: list[list[int]] = []
    for value in values:
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts) or "none"
