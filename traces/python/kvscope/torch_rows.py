"""What methods ask about a call's queries and keys, answered in torch where these lie: on a GPU nothing but the answers is copied.

The operations of core/attention/remote_rows.hpp, for one layer of one sequence. Sums are in f64, in an order that gives keys with
equal elements equal sums (but for softmax_votes, whose rows are many: a matrix product, whose tiles decide the order). Lists are
arrays of positions, one per KV head, or none: every key.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

Tensor = torch.Tensor


class TorchRows:
    """q [n_q, n_tok, d] of the call; k and v [n_kv, n_keys, d] of the whole context, of which the call's own are the last."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> None:
        self._q, self._k, self._v, self._scale = q, k, v, scale

    def first(self, n: int) -> TorchRows:
        """The same of the first n queries, and the keys up to them."""
        end = self._k.shape[1] - self._q.shape[1] + n
        return TorchRows(self._q[:, :n], self._k[:, :end], self._v[:, :end], self._scale)

    def _lists(self, lists: list[Any]) -> list[tuple[Tensor, Tensor]]:
        """(positions, keys [n, d] in f64) by KV head."""
        if not lists:
            every = torch.arange(self._k.shape[1], device=self._k.device)
            return [(every, keys.double()) for keys in self._k]
        places = [torch.from_numpy(one).to(self._k.device, torch.long) for one in lists]
        return [(at, keys[at].double()) for at, keys in zip(places, self._k, strict=True)]

    def softmax_votes(self, lists: list[Any], first_row: int, end_row: int) -> list[Any]:
        """Weights of rows [first_row, end_row) over the listed keys that each sees, summed over rows and the KV head's group."""
        group, n_past = self._q.shape[0] // self._k.shape[0], self._k.shape[1] - self._q.shape[1]
        own = n_past + torch.arange(first_row, end_row, device=self._k.device)
        votes = []
        for head, (at, keys) in enumerate(self._lists(lists)):
            rows = self._q[head * group : (head + 1) * group, first_row:end_row].double()
            weights = torch.softmax((rows @ keys.mT * self._scale).masked_fill(at > own[:, None], float("-inf")), -1)
            votes.append(_numbers(weights.reshape(-1, len(at)).mT.contiguous().sum(-1)))
        return votes

    def scores(self, q_head: int, first_row: int, end_row: int) -> Any:
        """Of rows [first_row, end_row) of one query head with every key, scaled: [end_row - first_row, n_keys]."""
        keys = self._k[q_head // (self._q.shape[0] // self._k.shape[0])].double()
        rows = self._q[q_head, first_row:end_row].double() * self._scale
        some = max(1, 2**25 // keys.numel())  # rows at a time: no more than 256 MiB
        # not a matrix product: its sums may differ by the key's place in a tile
        return _numbers(torch.cat([(keys * part[:, None]).sum(-1) for part in rows.split(some)]))

    def mean_cosines(self, lists: list[Any], takes_unit: bool, eps: float) -> list[Any]:
        """The cosine of each key with the mean of its list, of unit keys or of keys as they are."""
        cosines = []
        for _, keys in self._lists(lists):
            unit = keys * _factor(keys, eps)
            mean = (unit if takes_unit else keys).mean(0)
            cosines.append(_numbers((unit * (mean * _factor(mean, eps))).sum(-1)))
        return cosines

    def inverse_norms(self, lists: list[Any], eps: float) -> list[Any]:
        return [_numbers(_factor(keys, eps)[..., 0]) for _, keys in self._lists(lists)]

    def linear_scores(self, vectors: Any, begin: int, end: int) -> Any:
        """Products of vectors [n_kv * n, d], n for each KV head, with keys [begin, end): [n_kv * n, end - begin]."""
        of_heads = torch.from_numpy(vectors).to(self._k.device).reshape(self._k.shape[0], -1, vectors.shape[-1])
        out = [(keys[begin:end].double() * vector).sum(-1) for keys, rows in zip(self._k, of_heads, strict=True) for vector in rows]
        return _numbers(torch.stack(out))

    def largest_scores(self, vectors: Any, begin: int, end: int) -> Any:
        """The largest of each key's products with its KV head's vectors [n_kv, n * d]: [n_kv, end - begin]."""
        of_heads = torch.from_numpy(vectors).to(self._k.device).reshape(self._k.shape[0], -1, self._k.shape[2])
        out = []
        for keys, rows in zip(self._k, of_heads, strict=True):
            wide = keys[begin:end].double()
            # not a matrix product: its sums may differ by the key's place in a tile
            products = ((wide * vector).sum(-1) for vector in rows)
            out.append(functools.reduce(torch.maximum, products))
        return _numbers(torch.stack(out))

    def value_sums(self, begin: int, end: int) -> list[Any]:
        """Of the values at positions [begin, end)."""
        return [_numbers(values[begin:end].double().sum(0)) for values in self._v]


def _factor(x: Tensor, eps: float) -> Tensor:
    """1 / the larger of the norm and eps, for vectors of the last axis. [..., 1]"""
    return 1 / x.norm(dim=-1, keepdim=True).clamp(min=eps)


def _numbers(x: Tensor) -> Any:
    return x.double().cpu().contiguous().numpy()
