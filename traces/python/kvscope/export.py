"""Lists in the index formats of engines: kvs.export(lists, "flashmla").

| name | arrays | whose |
|---|---|---|
| flashinfer | indptr [n_rows + 1], indices [n] i32 | FlashInfer's BSR of single keys: one row per KV head and query, its keys |
| flashinfer-paged | kv_indptr [n_kv + 1], kv_indices [n_pages], kv_last_page_len [n_kv] i32 | FlashInfer's paged decode: pages of `page_size` |
| flashinfer-msa | q2k_indices [n_kv, total_q, top_k] i32, ascending, -1 behind | FlashInfer MSA: blocks of `page_size` keys |
| attention-gym | kv_indices [1, T, top_k] i64, the last key repeated behind | attention-gym's sparse selection: one list per query |
| flashmla | indices [1, s_q, top_k] i32, -1 behind | FlashMLA's sparse attention: one list per query for all heads |
| sglang | indices [bs, max] i32, lengths [bs] i32 | SGLang's sparse decode: one list per query |
| sparse-attention-hub | sparse_list [1, n_q, T, max] i64, sparse_len [1, n_q, T] i64, weight_list [1, n_q, T, n_keys] f32 | sampling probability of each key |

Formats with one list for all heads want a method whose owner is the layer, or union=True: the union of the heads' lists. Lists
are the queries' own, after the causal mask. The formats follow what these projects' pages and threads say of them; the engines themselves are
not run here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import UsageError
from .lists import Lists


def _group_keys(lists: Lists, kv_head: int, row: int) -> np.ndarray:
    """Keys that at least one query head of the group attends to."""
    group = lists.n_q // lists.n_kv
    heads = range(kv_head * group, (kv_head + 1) * group) if lists.owner == "q_head" else [kv_head * group]
    return np.unique(np.concatenate([lists.keys(head, row) for head in heads]))


def _shared_keys(lists: Lists, row: int, union: bool, name: str) -> np.ndarray:
    """One list for all heads."""
    found = [lists.keys(head, row) for head in range(lists.n_q)]
    if union:
        return np.unique(np.concatenate(found))
    if any(not np.array_equal(keys, found[0]) for keys in found):
        raise UsageError(f"kvs.export: {name} has one list for all heads, and those of {lists.method or 'the method'} differ: expected "
                         "a method with one list per layer, or union=True")
    return found[0]


def _padded(rows: list[np.ndarray], width: int | None, name: str, dtype: Any, fill: int | None = -1) -> np.ndarray:
    """[n, width], filled behind with `fill`, or with each row's last key."""
    longest = max(len(keys) for keys in rows)
    if width is not None and width < longest:
        raise UsageError(f"kvs.export: {name}: top_k={width} is less than the longest list: expected at least {longest}")
    out = np.empty((len(rows), width or longest), dtype)
    for at, keys in enumerate(rows):
        out[at, : len(keys)] = keys
        out[at, len(keys) :] = fill if fill is not None else keys[-1]
    return out


def _need_plain(lists: Lists, name: str) -> None:
    if lists.selection.has_summaries:
        raise UsageError(f"kvs.export: {lists.method} adds pseudo-keys, which {name} cannot hold: expected a method of lists alone")
    if len(lists.selection.log_weights) and name != "sparse-attention-hub":
        raise UsageError(f"kvs.export: {lists.method} samples, and {name} has no weights: expected sparse-attention-hub")


def export(lists: Lists, format: str, *, page_size: int = 16, top_k: int | None = None, union: bool = False) -> dict[str, np.ndarray]:
    """The lists of a call (kvs.select) in an engine's format: a dict of NumPy arrays, named as the engine names them.

    page_size  tokens per page or block, for formats of pages; a page counts if one of its keys is in the list
    top_k      width of padded arrays [the longest list]
    union      one list for all heads where a format has one
    """
    rows = range(lists.n_tok)
    _need_plain(lists, format)
    if format == "flashinfer":
        found = [_group_keys(lists, head, row) for head in range(lists.n_kv) for row in rows]
        return {"indptr": np.cumsum([0] + [len(keys) for keys in found]).astype(np.int32),
                "indices": np.concatenate(found).astype(np.int32)}
    if format == "flashinfer-paged":
        if lists.n_tok != 1:
            raise UsageError(f"kvs.export: flashinfer-paged is a format of decode steps: expected one query, found {lists.n_tok}")
        pages = [np.unique(_group_keys(lists, head, 0) // page_size) for head in range(lists.n_kv)]
        last = [min(lists.n_keys - int(page[-1]) * page_size, page_size) for page in pages]
        return {"kv_indptr": np.cumsum([0] + [len(page) for page in pages]).astype(np.int32),
                "kv_indices": np.concatenate(pages).astype(np.int32), "kv_last_page_len": np.array(last, np.int32)}
    if format == "flashinfer-msa":
        blocks = [np.unique(_group_keys(lists, head, row) // page_size) for head in range(lists.n_kv) for row in rows]
        padded = _padded(blocks, top_k, format, np.int32)
        return {"q2k_indices": padded.reshape(lists.n_kv, lists.n_tok, -1)}
    if format in ("flashmla", "attention-gym", "sglang"):
        shared = [_shared_keys(lists, row, union, format) for row in rows]
        if format == "flashmla":
            return {"indices": _padded(shared, top_k, format, np.int32)[None]}
        if format == "attention-gym":
            return {"kv_indices": _padded(shared, top_k, format, np.int64, fill=None)[None]}
        return {"indices": _padded(shared, top_k, format, np.int32), "lengths": np.array([len(keys) for keys in shared], np.int32)}
    if format == "sparse-attention-hub":
        found = [lists.keys(head, row) for head in range(lists.n_q) for row in rows]
        shape = (1, lists.n_q, lists.n_tok)
        weights = np.zeros((*shape, lists.n_keys), np.float32)
        for head in range(lists.n_q):
            for row in rows:
                weights[0, head, row, lists.keys(head, row)] = np.exp(-lists.weights(head, row))
        return {"sparse_list": _padded(found, top_k, format, np.int64).reshape(*shape, -1),
                "sparse_len": np.array([len(keys) for keys in found], np.int64).reshape(shape), "weight_list": weights}
    raise UsageError(f"kvs.export: format: expected flashinfer, flashinfer-paged, flashinfer-msa, attention-gym, flashmla, sglang or "
                     f"sparse-attention-hub, found {format}")
