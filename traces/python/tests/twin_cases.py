"""What the twins in torch are compared with: specs, budgets, and lists of the C++ selectors in data/twin_lists.npz.

    python twin_cases.py        writes that file anew (needs the native module): 112 positions of layer 3 of the embedded
                                draft model, q and k in float16, a prompt in three chunks and eight decoded tokens
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

LISTS = Path(__file__).parent / "data" / "twin_lists.npz"

SPECS = ["recent", "streamingllm", "streamingllm:n-sink=2", "oracle-topk", "quest:dense-layers=0", "quest:page-size=8,dense-layers=0",
         "keydiff", "tova", "quoka", "quoka:n-queries=3", "snapkv", "snapkv:window=8,kernel=7,pooling=max", "snapkv:window=16,pooling=none",
         "sparq:mean-value=false", "sparq:mean-value=false,n-channels=3,local-share=0.5", "unique:sink=4,recent=24,page-size=8",
         "unique:recent=40,n-queries=4,deviations=0.5", "unique:sink=0,recent=1"]
#: Of the saved lists.
BUDGETS = ["tokens=24", "ratio=0.2"]
CALLS = [40, 40, 24] + [1] * 8


def phases(calls: list[int]) -> Iterator[str]:
    """As kvs.policy asks: a prompt, single tokens, verification of several after them."""
    is_decoded = False
    for at, n_tok in enumerate(calls):
        is_decoded = is_decoded or (at > 0 and n_tok == 1)
        yield "decode" if at and n_tok == 1 else "verify" if is_decoded else "prefill"


def cpp_masks(spec: str, budget: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, calls: list[int],
              layer: int = 3, every: int = 1) -> Iterator[np.ndarray]:
    """What each call's queries (every so many of them) attend to by the C++ selector: bool [n_q, rows, n_keys].

    q [n_q, n, d], k and v [n_kv, n, d].
    """
    from kvscope._load import native

    n_q, group = q.shape[0], q.shape[0] // k.shape[0]
    run = native.Run(spec, layer + 1, n_q, k.shape[0], q.shape[2], sum(calls), scale, [budget], dense_layers=0)
    for n_tok, phase in zip(calls, phases(calls)):
        begin, end = run.n_keys, run.n_keys + n_tok
        run.begin_call(phase, n_tok)
        (selection,) = run.layer_call(layer, *(np.ascontiguousarray(x) for x in (q[:, begin:end], k[:, :end], v[:, :end])))
        mask = np.zeros((n_q, len(range(0, n_tok, every)), end), bool)
        for head in range(n_q):
            for i, row in enumerate(range(0, n_tok, every)):
                mask[head, i, native.attended(selection, group, head, begin, row)] = True
        yield mask


def twin_masks(spec: str, budget: str, q, k, scale: float, calls: list[int]) -> Iterator[np.ndarray]:
    """The same by the twin in torch, on the device where the tensors q and k lie; tokens before heads in memory, as in models."""
    import torch
    from kvscope.twins import make_twin

    twin = make_twin(spec)
    twin.scale = scale
    end = 0
    for n_tok, phase in zip(calls, phases(calls)):
        end += n_tok
        of_call = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (q[:, end - n_tok : end], k[:, :end]))
        found = twin(*of_call, budget, phase)
        causal = torch.ones(n_tok, end, dtype=torch.bool, device=q.device).tril(end - n_tok)
        mask = causal.expand(q.shape[0], n_tok, end) if found is None else found & causal
        yield mask.expand(q.shape[0], n_tok, end).cpu().numpy()


def saved() -> tuple[np.ndarray, np.ndarray, float, dict[str, dict], dict[tuple[str, str], list[np.ndarray]]]:
    """q, k (float32), score scale, what the methods can do (native.caps), and the C++ masks of every spec and budget."""
    with np.load(LISTS) as file:
        q, k = file["q"].astype("f4"), file["k"].astype("f4")
        facts = json.loads(str(file["facts"]))
        masks = {}
        for at, (spec, budget) in enumerate(facts["cases"]):
            bits, end, part = np.unpackbits(file["masks"][at]), 0, []
            used = 0
            for n_tok in facts["calls"]:
                end += n_tok
                n = q.shape[0] * n_tok * end
                part.append(bits[used : used + n].reshape(q.shape[0], n_tok, end).astype(bool))
                used += n
            masks[spec, budget] = part
    assert facts["calls"] == CALLS
    return q, k, facts["scale"], facts["caps"], masks


def write() -> None:
    import tempfile

    import kvscope as kvs
    from kvscope._load import native

    with tempfile.TemporaryDirectory() as folder:
        kvs.run("record", f"{folder}/draft.h5", model="draft", max_tokens=sum(CALLS) - 8, decode=8, progress=False)
        trace = kvs.open(f"{folder}/draft.h5")
        q, k, v = (x[:].astype("f2") for x in (trace[3].q, trace[3].k, trace[3].v))
        scale = trace.score_scale
    floats = [x.astype("f4") for x in (q, k, v)]
    cases = [(spec, budget) for spec in SPECS for budget in BUDGETS]
    masks = [np.packbits(np.concatenate([mask.ravel() for mask in cpp_masks(*case, *floats, scale, CALLS)])) for case in cases]
    caps = {spec: native.caps(spec) for spec in ["full", *SPECS]}
    LISTS.parent.mkdir(exist_ok=True)
    np.savez_compressed(LISTS, q=q, k=k, masks=np.stack(masks), facts=json.dumps(
        {"cases": cases, "calls": CALLS, "scale": scale, "caps": caps, "source": "layer 3 of the embedded model draft"}))
    print(f"{LISTS}: {LISTS.stat().st_size} bytes, {len(cases)} cases")


if __name__ == "__main__":
    write()
