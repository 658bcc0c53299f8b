"""Lists in the index formats of engines: kvs.export(lists, "flashmla").

| name | arrays | whose |
|---|---|---|
| flashinfer | indptr [n_rows + 1], indices [n] i32 | FlashInfer's BSR of single keys (R = C = 1): one row per KV head and query, its keys. A BlockSparseAttentionWrapper takes one KV head: its part of indptr, less the part's first number |
| flashinfer-paged | kv_indptr [n_kv + 1], kv_indices [n_pages], kv_last_page_len [n_kv] i32 | FlashInfer's paged decode, each KV head as a request of its own: pages of `page_size`, all of whose keys count |
| flashinfer-msa | q2k_indices [n_kv, total_q, top_k] i32, ascending, -1 behind | FlashInfer MSA: blocks of `page_size` keys (its kernels have 128), all of whose keys up to the query count |
| attention-gym | kv_indices [1, T, top_k] i64, -1 behind | attention-gym's gather_attn with sliding_window_size=0: one list per query. (The older selected_attention has no padding, and a key twice counts twice) |
| flashmla | indices [1, s_q, top_k] i32, -1 behind | FlashMLA's decode; its prefill (flash_mla_sparse_fwd) wants [s_q, 1, top_k]: indices[0][:, None]. Its kernels want top_k in multiples of 64 |
| sglang | indices [bs, max] i32, -1 behind, lengths [bs] i32 | what SGLang's retrieve_topk returns: one list of logical positions per query |
| sparse-attention-hub | sparse_list [T, n_q, n_keys] i32, sparse_len [T, n_q] i32, weight_list [T, n_q, n_keys] f32 | its native backend, each query a row of the batch; weight_list by position: w of w exp(score), 1 / the sampling probability |

Formats with one list for all heads want a method whose owner is the layer, or union=True: the union of the heads' lists. Lists
are the queries' own, after the causal mask. The formats follow these projects' documentation and sources (read in November 2026); tests attend
with the arrays in loops that follow these words, and the engines themselves are not run here.
"""

from __future__ import annotations

from typing import Any, Literal

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


def _padded(rows: list[np.ndarray], width: int | None, name: str, dtype: Any) -> np.ndarray:
    """[n, width], filled behind with -1."""
    longest = max(len(keys) for keys in rows)
    if width is not None and width < longest:
        raise UsageError(f"kvs.export: {name}: top_k={width} is less than the longest list: expected at least {longest}")
    out = np.full((len(rows), width or longest), -1, dtype)
    for at, keys in enumerate(rows):
        out[at, : len(keys)] = keys
    return out


def _need_plain(lists: Lists, name: str) -> None:
    if lists.selection.has_summaries:
        raise UsageError(f"kvs.export: {lists.method} adds pseudo-keys, which {name} cannot hold: expected a method of lists alone")
    if len(lists.selection.log_weights) and name != "sparse-attention-hub":
        raise UsageError(f"kvs.export: {lists.method} samples, and {name} has no weights: expected sparse-attention-hub")


Format = Literal["flashinfer", "flashinfer-paged", "flashinfer-msa", "attention-gym", "flashmla", "sglang", "sparse-attention-hub"]


def export(lists: Lists, format: Format, *, page_size: int = 16, top_k: int | None = None,
           union: bool = False) -> dict[str, np.ndarray]:
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
            return {"kv_indices": _padded(shared, top_k, format, np.int64)[None]}
        return {"indices": _padded(shared, top_k, format, np.int32), "lengths": np.array([len(keys) for keys in shared], np.int32)}
    if format == "sparse-attention-hub":
        found = [lists.keys(head, row) for row in rows for head in range(lists.n_q)]
        weights = np.zeros((lists.n_tok, lists.n_q, lists.n_keys), np.float32)
        for row in rows:
            for head in range(lists.n_q):
                weights[row, head, lists.keys(head, row)] = np.exp(lists.weights(head, row))
        return {"sparse_list": np.maximum(_padded(found, lists.n_keys, format, np.int32), 0).reshape(weights.shape),
                "sparse_len": np.array([len(keys) for keys in found], np.int32).reshape(weights.shape[:2]), "weight_list": weights}
    raise UsageError(f"kvs.export: format: expected flashinfer, flashinfer-paged, flashinfer-msa, attention-gym, flashmla, sglang or "
                     f"sparse-attention-hub, found {format}")
