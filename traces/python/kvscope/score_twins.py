"""Methods in torch that score keys or pages of keys by a few numbers of the queries: quoka, sparq, unique."""

from __future__ import annotations

import math
from typing import Any

import torch

from .twin import Tensor, Twin, budget_tokens, top, with_own


def _unit_factor(x: Tensor, eps: float = 1e-12) -> Tensor:
    """1 / the larger of the norm and eps, for vectors of the last axis. [..., 1]"""
    return 1 / x.norm(dim=-1, keepdim=True).clamp(min=eps)


class Quoka(Twin):
    """scope=past, queries=farthest, mean=raw, pairing=rank, aggregate=max, similarity=cosine."""

    name = "quoka"
    defaults = {"n_queries": 16, "dense_layers": 0}

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_q, n_tok, d = q.shape
        n_kv, n_keys, _ = k.shape
        n_past = n_keys - n_tok
        chosen = q.double()
        if n_tok > self.n_queries:
            mean = chosen.mean(1, keepdim=True)
            cosines = (chosen @ mean.mT * _unit_factor(mean) * _unit_factor(chosen))[..., 0]
            picks = torch.sort(cosines, dim=-1, stable=True).indices[:, : self.n_queries]
            chosen = chosen.gather(1, picks[..., None].expand(-1, -1, d))
        slots = (chosen * _unit_factor(chosen)).reshape(n_kv, n_q // n_kv, -1, d).mean(1)
        past = k[:, :n_past].double()
        scores = (past @ slots.mT).amax(-1) * _unit_factor(past)[..., 0]
        kept = with_own(top(scores, budget_tokens(budget, n_past)), n_tok)
        return kept.repeat_interleave(n_q // n_kv, 0)[:, None]


class Sparq(Twin):
    """Lists alone: mean-value=false has to be asked for, since the mean value is no key."""

    name = "sparq"
    defaults = {"n_channels": 0, "channel_share": 0.5, "local_share": 0.25, "mean_value": True, "dense_layers": 0}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.mean_value:
            raise ValueError("the twin of sparq in torch gives lists alone: expected sparq:mean-value=false")

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_q, n_tok, d = q.shape
        n_kv, n_keys, _ = k.shape
        n_past = n_keys - n_tok
        wanted = self.n_channels or math.floor(self.channel_share * d + 0.5)
        sizes = q.double().abs().reshape(n_kv, -1, n_tok, d)
        channels = top(sizes.sum((1, 2)), min(max(wanted, 1), d))[:, None, None]  # [n_kv, 1, 1, d]
        largest, total = sizes.masked_fill(~channels, 0).sum(-1, keepdim=True), sizes.sum(-1, keepdim=True)
        tau = torch.where(largest > 0, (d * largest / total).sqrt(), math.sqrt(d))
        mean = (q.double().reshape(n_kv, -1, n_tok, d).masked_fill(~channels, 0) * (1 / (tau * n_tok))).sum(2).mean(1)
        scores = (k[:, :n_past].double() * mean[:, None]).sum(-1)  # equal keys get equal sums, as a product of matrices need not
        n_keep = budget_tokens(budget, n_past)
        n_local = min(math.floor(self.local_share * n_keep), n_past) if phase == "decode" else 0
        scores[:, n_past - n_local :] = float("-inf")
        kept = top(scores, n_keep - n_local)
        kept[:, n_past - n_local :] = True
        return with_own(kept, n_tok).repeat_interleave(n_q // n_kv, 0)[:, None]


class Unique(Twin):
    """owner=q_head."""

    name = "unique"
    defaults = {"page_size": 16, "deviations": 1.0, "sink": 16, "recent": 256, "n_queries": 16, "dense_layers": 0}

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        n_q, n_tok, d = q.shape
        n_kv, n_keys, _ = k.shape
        group, page = n_q // n_kv, self.page_size
        begin = -(-self.sink // page)
        end = max(begin, max(0, n_keys - n_tok + 1 - self.recent) // page)
        if begin == end:
            return None
        keys = k[:, begin * page : end * page].double().reshape(n_kv, end - begin, page, d)
        mean, deviation = (x.float().double() for x in (keys.mean(2), keys.var(2, correction=0).sqrt()))  # tables are f32
        n_rows = min(self.n_queries, n_tok)
        rows = torch.arange(n_rows, device=q.device) * n_tok // n_rows
        plus, size = (x[:, rows].sum(1).reshape(n_kv, group, d) for x in (q.double(), q.double().abs()))
        if phase != "decode":
            plus, size = plus.sum(1, keepdim=True), size.sum(1, keepdim=True)
        scores = plus @ mean.mT + self.deviations * size @ deviation.mT  # [n_kv, group or 1, n_pages]
        n_candidates = (end - begin) * page
        n_tokens = budget_tokens(budget, n_candidates, page)
        kept = top(scores, end - begin if n_tokens >= n_candidates else max(1, n_tokens // page)).repeat_interleave(page, -1)
        out = torch.ones(n_kv, group, n_keys, dtype=torch.bool, device=k.device)
        out[..., begin * page : end * page] = kept
        return out.view(n_q, 1, n_keys)
