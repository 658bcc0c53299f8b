"""Lists of methods as masks: by the C++ engine from arrays, and with what it asks answered in torch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

#: Methods that can do without copies of keys and values, with options of every kind.
SPECS = ["recent", "streamingllm", "streamingllm:n-sink=2", "keydiff", "keydiff:anchor=raw", "knorm", "tova", "h2o", "snapkv",
         "snapkv:window=8,kernel=7,pooling=max", "snapkv:window=16,pooling=none", "adakv:window=8", "quoka", "quoka:n-queries=3",
         "sparq:mean-value=false", "sparq:mean-value=false,n-channels=3,local-share=0.5", "bigbird", "random",
         "oracle-topk", "oracle-topk-group", "oracle-topk-chunk", "oracle-pages:page-size=4", "minference-vertical-slash-uniform"]


def phases(calls: list[int]) -> Iterator[str]:
    """As kvs.policy asks: a prompt, single tokens, verification of several after them."""
    is_decoded = False
    for at, n_tok in enumerate(calls):
        is_decoded = is_decoded or (at > 0 and n_tok == 1)
        yield "decode" if at and n_tok == 1 else "verify" if is_decoded else "prefill"


def masks(spec: str, budget: str, q, k, scale: float, calls: list[int], in_torch: bool = False, every: int = 1, layer: int = 3,
          begin: int = 0) -> Iterator[np.ndarray]:
    """What each call's queries (every so many of them, in every head) attend to: bool [n_q, rows, n_keys].

    q [n_q, n, d] and k [n_kv, n, d], of which the first `begin` positions were seen unasked: arrays; in_torch: tensors on any
    device, tokens before heads in memory, as models have them.
    """
    from kvscope._load import native
    from kvscope.torch_rows import TorchRows

    n_q, group, d = q.shape[0], q.shape[0] // k.shape[0], q.shape[2]
    needs_q = native.caps(spec)["host_rows"] == "queries"
    run = native.Run(spec, layer + 1, n_q, k.shape[0], d, begin + sum(calls), scale, [budget], dense_layers=0, f32=in_torch)

    def ask(first: int, end: int):
        if not in_torch:
            return run.layer_call(layer, *(np.ascontiguousarray(x) for x in (q[:, first:end], k[:, :end], k[:, :end])))
        rows, keys = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (q[:, first:end], k[:, :end]))
        return run.remote_call(layer, TorchRows(rows, keys, keys, scale), rows.float().cpu().contiguous().numpy() if needs_q else None)

    if begin:
        run.begin_call("prefill", begin)
        run.skip_call(layer)
    words = list(phases([begin, *calls]))[1:] if begin else phases(calls)
    for n_tok, phase in zip(calls, words):
        first, end = run.n_keys, run.n_keys + n_tok
        run.begin_call(phase, n_tok)
        (selection,) = ask(first, end)
        mask = np.zeros((n_q, len(range(0, n_tok, every)), end), bool)
        for head in range(n_q):
            for i, row in enumerate(range(0, n_tok, every)):
                mask[head, i, native.attended(selection, group, head, first, row)] = True
        yield mask
