"""Log-sum-exp and probabilities of attention rows: taken from the kernel where it yields them, else computed blockwise.

A score is scale * (q . k), softly capped where the model caps scores (Gemma 2); a row sees the keys up to its own position, in a window layer the last `window` of them.
With attention sinks, the learned logit of each head joins the softmax (and so the log-sum-exp) as one more score.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_BLOCK_BYTES = 64 << 20  # of scores in memory at once


class KernelLse(TorchDispatchMode):
    """Within this context, the log-sum-exp that PyTorch's fused attention kernels return beside their output.

    The kernels compute it anyway, so it costs nothing, and the model's own result is untouched. Flex attention cannot run
    inside it: PyTorch knows no rule for that operator in a mode of somebody else's.
    """

    #: Fused kernels and the index of their compute_log_sumexp argument, if they have one.
    _KERNELS = {
        "_scaled_dot_product_flash_attention_for_cpu": None,
        "_scaled_dot_product_flash_attention": None,
        "_scaled_dot_product_efficient_attention": 4,
        "_scaled_dot_product_cudnn_attention": 4,
    }

    def __init__(self) -> None:
        super().__init__()
        self._found: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = getattr(getattr(func, "overloadpacket", None), "__name__", "")
        if name not in self._KERNELS:
            return func(*args, **(kwargs or {}))
        switch = self._KERNELS[name]
        if switch is not None and len(args) > switch:
            args = (*args[:switch], True, *args[switch + 1 :])
        out = func(*args, **(kwargs or {}))
        self._found.append(out[1])
        return out

    def rows(self, n_batch: int, n_q: int, n: int) -> torch.Tensor | None:
        """[n_batch, n_q, n] f32, or None if no kernel ran that yields it (or more than one did)."""
        if len(self._found) != 1 or self._found[0] is None:
            return None
        lse = self._found[0].detach()
        if lse.numel() != n_batch * n_q * n:
            if lse.dim() != 3 or lse.shape[:2] != (n_batch, n_q) or lse.shape[2] < n:
                return None
            lse = lse[:, :, :n]  # some kernels pad the rows
        return lse.reshape(n_batch, n_q, n).float()


@dataclass(frozen=True)
class Rows:
    """Query rows of one layer with the keys that they may see."""

    q: torch.Tensor  # [recorded query heads, n, d]
    k: torch.Tensor  # [all KV heads, m, d]
    kv_of: tuple[int, ...]  # the KV head of each query head
    scale: float
    cap: float  # scores become cap * tanh(score / cap); 0 = they stay
    first_row: int  # position of q's first row
    first_key: int  # position of k's first row
    window: int  # 0 = all before


def score_blocks(rows: Rows) -> Iterator[tuple[int, int, int, torch.Tensor]]:
    """Blocks of scores: (first, last, key, scores); scores [heads, last - first, keys] f32 (f64 of f64).

    first and last count rows of q, key is the position of the first column; what a row does not see is -inf.
    """
    n_heads, n, _ = rows.q.shape
    kind = torch.promote_types(rows.q.dtype, torch.float32)
    block = max(1, _BLOCK_BYTES // max(1, 4 * n_heads * rows.k.shape[1]))
    for first in range(0, n, block):
        last = min(first + block, n)
        begin = rows.first_row + first
        end = rows.first_row + last
        key = max(rows.first_key, begin + 1 - rows.window) if rows.window else rows.first_key
        keys = rows.k[:, key - rows.first_key : end - rows.first_key].to(kind)
        scores = torch.empty((n_heads, last - first, end - key), dtype=kind, device=rows.q.device)
        for head in range(n_heads):
            torch.matmul(rows.q[head, first:last].to(kind), keys[rows.kv_of[head]].T, out=scores[head])
        scores *= rows.scale
        if rows.cap:
            scores.div_(rows.cap).tanh_().mul_(rows.cap)
        scores.masked_fill_(~visible_keys(begin, end, key, end, rows.window, rows.q.device), float("-inf"))
        yield first, last, key, scores


def visible_keys(begin: int, end: int, key: int, key_end: int, window: int, device: torch.device) -> torch.Tensor:
    """bool [end - begin, key_end - key]: which keys the rows at these positions see; keys below 0 are padding."""
    row = torch.arange(begin, end, device=device)[:, None]
    column = torch.arange(key, key_end, device=device)[None, :]
    visible = (column <= row) & (column >= 0)
    return visible & (column > row - window) if window else visible


def compute_lse(rows: Rows, sinks: torch.Tensor | None) -> torch.Tensor:
    """[heads, n] f32. `sinks`: one logit per head, or None."""
    parts = []
    for _, _, _, scores in score_blocks(rows):
        lse = torch.logsumexp(scores, dim=-1)
        if sinks is not None:
            lse = torch.logaddexp(lse, sinks.to(lse.dtype)[:, None])
        parts.append(lse.float())
    return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class MapBlock:
    """Attention probabilities of some rows, as a trace stores them."""

    dense: torch.Tensor | None  # [heads, n, keys from position 0 to the call's end] f32
    top_pos: torch.Tensor | None  # [heads, n, N] i32; -1 where a row sees fewer than N
    top_prob: torch.Tensor | None  # [heads, n, N] f32


def map_blocks(rows: Rows, lse: torch.Tensor, call_end: int, dense: bool, top: int) -> Iterator[MapBlock]:
    """exp(score - lse) of the rows, a few at a time. Among equals, top-k takes the lower position first."""
    for first, last, key, scores in score_blocks(rows):
        probs = torch.exp(scores - lse[:, first:last, None].to(scores.dtype)).float()
        n_heads, n, n_keys = probs.shape
        whole = top_pos = top_prob = None
        if dense:
            whole = probs.new_zeros((n_heads, n, call_end))
            whole[:, :, key : key + n_keys] = probs
        if top:
            seen = torch.isfinite(scores)
            order = torch.where(seen, probs, -1.0).sort(dim=-1, descending=True, stable=True)
            take = min(top, n_keys)
            values, places = order.values[..., :take], order.indices[..., :take]
            top_pos = torch.full((n_heads, n, top), -1, dtype=torch.int32, device=probs.device)
            top_prob = probs.new_zeros((n_heads, n, top))
            top_pos[..., :take] = torch.where(values >= 0, places + key, -1).to(torch.int32)
            top_prob[..., :take] = values.clamp_min(0)
        yield MapBlock(whole, top_pos, top_prob)
