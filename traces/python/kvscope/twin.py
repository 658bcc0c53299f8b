"""What a method's twin in torch is (kvscope/twins.py has them), and what twins share: budgets, and the best of scores.

A twin belongs to one layer of one sequence. Called with q [n_q, n_tok, d], k [n_kv, n_keys, d] and the budget, it returns
which keys each query head and query attends to before the causal mask: [n_q, n_tok or 1, n_keys] bool, or None for all.
What a twin keeps it replaces and never changes in place, so that a copy of it (copy.copy) goes on by itself.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


def budget_tokens(budget: str, n_candidates: int, page_size: int = 1) -> int:
    """Keys that a budget buys of n_candidates; core/selectors' Budget::tokens."""
    kind, value = budget.split("=")
    if kind == "ratio":
        return max(1, int(float(value) * n_candidates))
    return int(float(value)) * (page_size if kind == "pages" else 1)


def top(scores: Tensor, n: int) -> Tensor:
    """A mask of the n best of the last axis, the first among equals; -inf is never taken."""
    n = min(n, scores.shape[-1])
    best = torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :n]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True) & (scores > float("-inf"))


def _value(option: str, given: Any, kind: type) -> Any:
    """What the command line's word means; "false" is no truth."""
    if kind is not bool or isinstance(given, bool):
        return kind(given)
    if str(given) not in ("true", "false"):
        raise ValueError(f"{option}: expected true or false, found {given}")
    return str(given) == "true"


def with_own(past: Tensor, n_tok: int) -> Tensor:
    """A choice among past keys [..., n_past] and the call's own keys, which are always in: [..., n_past + n_tok]."""
    return torch.cat([past, past.new_ones((*past.shape[:-1], n_tok))], -1)


class Twin:
    """Options are the method's, with underscores."""

    def __init__(self, **options: Any) -> None:
        unknown = set(options) - set(self.defaults)
        if unknown:
            raise ValueError(f"the twin of {self.name} in torch has no option {sorted(unknown)[0]}: known: {', '.join(self.defaults) or 'none'}")
        for option, default in self.defaults.items():
            setattr(self, option, _value(option, options.get(option, default), type(default)))

    #: Factor of q.k; None: 1 / sqrt(d). Only methods that weigh look at it.
    scale: float | None = None
    name = ""
    defaults: dict[str, Any] = {}
    dense_layers = 0

    def __call__(self, q: Tensor, k: Tensor, budget: str, phase: str) -> Tensor | None:
        raise NotImplementedError
