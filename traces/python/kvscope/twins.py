"""Methods in torch, for tensors that lie on a GPU: the same lists as the C++ ones (tests compare them key by key, in f64).
Here those of fixed places, exact scores and pages' boxes, and those that evict; kvscope/score_twins.py has the others."""

from __future__ import annotations

from typing import Any

import torch

from .score_twins import Quoka, Sparq, Unique
from .twin import Tensor, Twin, budget_tokens, top


class Recent(Twin):
    name = "recent"

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_tok, n_keys = q.shape[1], k.shape[1]
        n_past = n_keys - n_tok
        return (torch.arange(n_keys, device=k.device) >= n_past - min(n_past, budget_tokens(budget, n_past)))[None, None]


class StreamingLlm(Twin):
    name = "streamingllm"
    defaults = {"n_sink": 4}

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_tok, n_keys = q.shape[1], k.shape[1]
        rows = []
        at = torch.arange(n_keys, device=k.device)
        for row in range(n_tok):
            n_visible = n_keys - n_tok + row + 1
            keep = budget_tokens(budget, n_visible)
            n_sink = min(self.n_sink, keep, n_visible)
            rows.append((at < n_sink) | (at >= max(n_sink, n_visible - (keep - n_sink))))
        return torch.stack(rows)[None]


class OracleTopk(Twin):
    """variant=per_q_head, scope=all."""

    name = "oracle-topk"

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_q, n_tok, _ = q.shape
        n_kv, n_keys, _ = k.shape
        scores = q.double() @ k.double().repeat_interleave(n_q // n_kv, 0).mT
        own = torch.arange(n_keys - n_tok, n_keys, device=k.device)
        scores.masked_fill_(torch.arange(n_keys, device=k.device) > own[:, None], float("-inf"))
        if not budget.startswith("ratio"):
            return top(scores, budget_tokens(budget, n_keys))
        return torch.stack([top(scores[:, row], budget_tokens(budget, n_keys - n_tok + row + 1)) for row in range(n_tok)], 1)


class Quest(Twin):
    """pages=kernel, owner=q_head, bound-bits=16."""

    name = "quest"
    defaults = {"page_size": 16, "dense_layers": 2}

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_q, n_tok, d = q.shape
        n_kv, n_keys, _ = k.shape
        group, page = n_q // n_kv, self.page_size
        n_pages = -(-n_keys // page) if phase == "decode" else (n_keys - n_tok) // page
        at = torch.arange(n_keys, device=k.device)
        if n_pages == 0:
            return None
        padded = torch.full((2, n_kv, n_pages * page, d), float("-inf"), dtype=torch.float64, device=k.device)
        n_in = min(n_keys, n_pages * page)
        padded[0, :, :n_in], padded[1, :, :n_in] = k[:, :n_in], -k[:, :n_in]
        high, low = padded.view(2, n_kv, n_pages, page, d).amax(3)
        n_candidates = n_in
        keep = budget_tokens(budget, n_candidates, page)
        bought = n_pages if keep >= n_candidates else min(max(1, keep // page), n_pages)
        plus, minus = q.double().clamp(min=0), q.double().clamp(max=0)
        if phase == "decode":
            high, low = (x.repeat_interleave(group, 0) for x in (high, low))
            bounds = plus[:, 0, None] @ high.mT - minus[:, 0, None] @ low.mT  # [n_q, 1, n_pages]
            chosen = torch.zeros_like(bounds, dtype=torch.bool)
            chosen[..., :-1] = top(bounds[..., :-1], bought - 1)
            chosen[..., -1] = True
        else:
            plus, minus = (x.reshape(n_kv, group * n_tok, d).sum(1, keepdim=True) for x in (plus, minus))
            chosen = top(plus @ high.mT - minus @ low.mT, bought).repeat_interleave(group, 0)
        keys = chosen.repeat_interleave(page, -1)[..., :n_keys]
        out = torch.ones(n_q, 1, n_keys, dtype=torch.bool, device=k.device)
        out[..., : keys.shape[-1]] = keys
        return out | (at >= n_keys - n_tok)


class _Evicting(Twin):
    """Attends to everything alive, then shrinks it to the budget."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._alive: Tensor | None = None  # [n_kv, n_keys]

    def _before(self, k: Tensor) -> Tensor:
        """What is alive in a call, [n_kv, n_keys]: what was left, and the call's own keys."""
        before = torch.ones(k.shape[:2], dtype=torch.bool, device=k.device)
        if self._alive is not None:
            before[:, : self._alive.shape[1]] = self._alive
        return before


class Tova(_Evicting):
    """keep-current=false."""

    name = "tova"

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_q, n_tok, d = q.shape
        n_kv, n_keys, _ = k.shape
        before = self._before(k)
        seen = before.repeat_interleave(n_q // n_kv, 0)
        n_keep = budget_tokens(budget, n_keys)
        self._alive = before.clone()
        if int(before[0].sum()) > n_keep:
            scores = (k.double().repeat_interleave(n_q // n_kv, 0) @ q[:, -1, :, None].double())[..., 0] * (self.scale or d**-0.5)
            weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1).float().double()  # rows are f32, their sum f64
            self._alive[:] = top(weights.sum(0).masked_fill(~before[0], float("-inf")), n_keep)
        return seen[:, None]


class KeyDiff(_Evicting):
    """anchor=unit, recent-share=0."""

    name = "keydiff"

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_kv, n_keys, _ = k.shape
        before = self._before(k)
        unit = k.double() / k.double().norm(dim=-1, keepdim=True).clamp(min=1e-12)
        n_keep = budget_tokens(budget, n_keys)
        self._alive = before.clone()
        for head in range(n_kv):
            alive = before[head]
            if int(alive.sum()) <= n_keep:
                continue
            anchor = unit[head][alive].mean(0)
            # A product of matrix and vector rounds equal keys differently by their row; sums of rows do not.
            scores = -(unit[head] * anchor).sum(-1).masked_fill(~alive, float("inf"))
            self._alive[head] = top(scores, n_keep)
        return before.repeat_interleave(q.shape[0] // n_kv, 0)[:, None]


class SnapKv(_Evicting):
    """official-mha=false: one set per KV head."""

    name = "snapkv"
    defaults = {"window": 64, "kernel": 5, "pooling": "average"}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.pooling not in ("average", "max", "none") or self.kernel % 2 == 0:
            raise ValueError(f"the twin of snapkv in torch: expected pooling=average, max or none and an odd kernel, found {self.pooling}, "
                             f"{self.kernel}")

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_q, n_tok, _ = q.shape
        n_kv, n_keys, _ = k.shape
        group = n_q // n_kv
        before = self._before(k)
        self._alive = before.clone()
        n_keep = budget_tokens(budget, n_keys)
        if phase == "prefill" and int(before.sum(1).max()) > n_keep:
            votes = self._votes(q, k, before)
            for head in range(n_kv):
                keys = torch.nonzero(before[head]).flatten()
                if len(keys) <= n_keep:
                    continue
                n_voted = len(keys) - min(self.window, n_keep)
                kept = top(self._pooled(votes[head, keys[:n_voted]]), n_keep - min(self.window, n_keep))
                self._alive[head, keys[:n_voted][~kept]] = False
        return before.repeat_interleave(group, 0)[:, None]

    def _votes(self, q: Tensor, k: Tensor, alive: Tensor) -> Tensor:
        """Softmax weights of the call's last queries, summed over rows and averaged over the group: [n_kv, n_keys]."""
        n_q, n_tok, d = q.shape
        n_kv, n_keys, _ = k.shape
        n_rows = min(self.window, n_tok)
        scores = q[:, n_tok - n_rows :].double() @ k.double().repeat_interleave(n_q // n_kv, 0).mT * (self.scale or d**-0.5)
        at = torch.arange(n_keys, device=k.device)
        unseen = (at > at[n_keys - n_rows :, None]) | ~alive.repeat_interleave(n_q // n_kv, 0)[:, None]
        weights = torch.softmax(scores.masked_fill(unseen, float("-inf")), -1)
        return weights.reshape(n_kv, -1, n_keys).mT.contiguous().sum(-1) / (n_q // n_kv)  # each key's in the same order

    def _pooled(self, votes: Tensor) -> Tensor:
        if self.pooling == "none" or not len(votes):
            return votes
        around = torch.nn.functional.pad(votes, (self.kernel // 2, self.kernel // 2)).unfold(0, self.kernel, 1)
        return around.amax(-1) if self.pooling == "max" else around.sum(-1) / self.kernel


TWINS: dict[str, type[Twin]] = {twin.name: twin for twin in (Recent, StreamingLlm, OracleTopk, Quest, KeyDiff, Tova, SnapKv, Quoka, Sparq, Unique)}


def make_twin(spec: str) -> Twin | None:
    """The twin of "quest:page-size=32"; None if torch has none. Raises ValueError for an option that the twin lacks."""
    method, _, options = spec.partition(":")
    if method not in TWINS:
        return None
    pairs = [one.split("=", 1) for one in options.split(",")] if options else []
    return TWINS[method](**{name.replace("-", "_"): value for name, value in pairs})
