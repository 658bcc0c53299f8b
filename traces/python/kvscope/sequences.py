"""Which sequence each row of an attention call goes on, told by its keys: between two calls a cache may be reordered (beams),
cut back (drafts), exchanged for another sequence's or filled elsewhere.

Of every sequence in a layer a number per key is kept (its mark, a hash of the key's bits over all KV heads), where its calls
ended, and what the method keeps of it. All keys are compared, not the last alone: in the first layer these depend on token and
position only, so different beams share them.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

#: Sequences that were not in a layer's last call and may come back; of how many what a method keeps is kept; and how many ends
#: of calls of a prompt each may be cut back to.
_KEPT, _KEPT_STATES, KEPT_ENDS = 32, 8, 4
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@functools.lru_cache(maxsize=16)
def _factors(n_kv: int, d: int, device: torch.device) -> torch.Tensor:
    random = torch.Generator().manual_seed(0x6B7673)
    return torch.randint(-(1 << 62), 1 << 62, (n_kv, 1, d), generator=random).bitwise_or(1).to(device)


def marks_of(keys: torch.Tensor) -> torch.Tensor:
    """A hash of each key: keys [n_kv, n, d] -> [n] int64, on the CPU. Sums wrap around."""
    bits = keys.detach().view(_BITS[keys.element_size()]).long()
    return (bits * _factors(keys.shape[0], keys.shape[2], keys.device)).sum((0, 2)).cpu()


class Call(NamedTuple):
    """A forward call of a sequence: how many keys there are after it, and whether a policy saw it."""

    end: int
    is_seen: bool = True


@dataclass(eq=False)
class Sequence:
    """What is known of one sequence in one layer."""

    marks: torch.Tensor  # [n_keys]
    calls: tuple[Call, ...]
    state: Any = None  # what the method keeps (a native.Run); None: to be made anew
    n_known: int = 0  # leading keys of the past that are as some call left them
    is_double: bool = False  # another row of the call goes on with the same past
    is_doubtful: bool = False  # by which calls its past came about is not known for sure
    cache: Any = None  # a weak reference to where its keys are, where that is known
    ends: dict[int, tuple[Any, int]] = field(default_factory=dict)  # by number of keys: what `state` and `n_dead` were there
    n_dead: int = 0  # keys that the method has evicted, over all KV heads

    def phases(self) -> Iterator[tuple[int, str, bool]]:
        """(n_tok, phase, is_seen) of the calls: a prompt until a call of one token, then decoding and verification."""
        is_decoded, begin = False, 0
        for call in self.calls:
            n_tok = call.end - begin
            word = "prefill" if begin == 0 or (n_tok > 1 and not is_decoded) else "decode" if n_tok == 1 else "verify"
            is_decoded = is_decoded or word == "decode"
            begin = call.end
            yield n_tok, word, call.is_seen

    def keep_end(self, n_dead: int) -> None:
        """Notes what the last call evicted; where it belongs to the prompt, also a copy of what the method keeps."""
        self.n_dead = n_dead
        if self.phase == "prefill":
            latest = sorted({**self.ends, len(self.marks): (copy.copy(self.state), n_dead)}.items())
            self.ends = dict(latest[-KEPT_ENDS:])

    def state_at(self, n_keys: int) -> Any:
        """What the method kept when there were n_keys: where a call of the prompt ended, or nothing was evicted since one; else None."""
        end = max((end for end in self.ends if end <= n_keys), default=None)
        if end == n_keys:
            return copy.copy(self.ends[end][0])
        if end is None or self.state is None or self.ends[end][1] != self.n_dead:
            return None
        state = copy.copy(self.state)
        state.rollback(n_keys)
        return state

    @property
    def phase(self) -> str:
        """Of the last call."""
        *_, (_, word, _) = self.phases()
        return word


class Sequences:
    """Those of one layer."""

    def __init__(self) -> None:
        self._known: list[Sequence] = []  # the last call's, then older ones, the latest first
        self._has_forgotten = False

    def go_on(self, marks: list[torch.Tensor | None], n_past: list[int], keeps_states: bool, can_copy: bool,
              cache: Any = None) -> list[Sequence | None]:
        """For each row (None: nothing but padding): marks [n_keys], of which the first n_past are older than this call.

        A sequence goes on with its state where all of its past is there and no row before this one took it; can_copy: further rows
        get copies, and so do those that were cut back (Sequence.state_at). In all other cases the state is None. keeps_states: of
        sequences that are in no row of this call; without, they are made anew should they come back. cache: where the keys are,
        if that is known; of equal texts that came about by different calls it says which one goes on.
        """
        taken: set[int] = set()
        rows = [None if row is None else self._of(row, past, taken, can_copy, cache) for row, past in zip(marks, n_past)]
        rest = [known for known in self._known if id(known) not in taken]
        self._has_forgotten = self._has_forgotten or len(rest) > _KEPT
        for known in rest[_KEPT_STATES if keeps_states else 0 :]:
            known.state, known.ends = None, {}
        self._known = [row for row in rows if row is not None] + rest[:_KEPT]
        return rows

    def _of(self, marks: torch.Tensor, n_past: int, taken: set[int], can_copy: bool, cache: Any) -> Sequence:
        past, now = marks[:n_past], Call(len(marks))
        n_known = [_n_same(known.marks, past) for known in self._known]
        most = max(n_known, default=0)
        best = [known for known, n in zip(self._known, n_known) if n == most > 0]
        here = next((known for known in best if cache is not None and known.cache is not None and known.cache() is cache), None)
        if here is not None:  # the latest in this cache: what it held before was overwritten
            best = [known for known in best if _cut(known.calls, most) == _cut(here.calls, most)]
        whole = [known for known in best if len(known.marks) == most == n_past]
        best = whole or best
        calls = {_cut(known.calls, most) for known in best} or {()}
        one = next((known for known in whole if id(known) not in taken), whole[0] if whole else None)
        is_double = one is not None and id(one) in taken
        state = None
        if one is not None and len(calls) == 1:
            state = one.state if not is_double else copy.copy(one.state) if can_copy and one.state is not None else None
            taken.add(id(one))
        elif can_copy and len(calls) == 1 and most == n_past > 0:
            state = next((state for known in best if (state := known.state_at(most)) is not None), None)
        before = max(calls, key=len)
        is_doubtful = len(calls) > 1
        if most < n_past:  # filled elsewhere, as far as is known
            before += (Call(n_past, is_seen=False),)
            is_doubtful = is_doubtful or self._has_forgotten
        ends = {end: kept for known in reversed(best) for end, kept in known.ends.items() if end <= most} if len(calls) == 1 else {}
        return Sequence(marks, (*before, now), state, most, is_double, is_doubtful, None if cache is None else weakref.ref(cache), ends)


def _n_same(a: torch.Tensor, b: torch.Tensor) -> int:
    """Leading marks that are equal."""
    n = min(len(a), len(b))
    if torch.equal(a[:n], b[:n]):
        return n
    return int(torch.nonzero(a[:n] != b[:n])[0])


def _cut(calls: tuple[Call, ...], n_keys: int) -> tuple[Call, ...]:
    """The calls that made the first n_keys keys; the last of them may have been longer."""
    whole = tuple(call for call in calls if call.end <= n_keys)
    if len(whole) == len(calls) or (whole and whole[-1].end == n_keys) or n_keys == 0:
        return whole
    return (*whole, calls[len(whole)]._replace(end=n_keys))
