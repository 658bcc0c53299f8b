"""What XAttention's and FlexPrefill's public programs choose on made-up numbers: writes prefill_blocks.json.

    python3 tests/golden/make_prefill_blocks.py          (NumPy)

The steps are those of mit-han-lab/x-attention (xattn/src: Xattention.py, utils.py, commit 3185fb2) and
ByteDance-Seed/FlexPrefill (flex_prefill/ops/flex_prefill_attention.py, get_active_blocks, commit e580472), in float64 and
with blocks of 16 where they have 128 (FlexPrefill's `// 128` too). tests/core/selectors/methods/prefill_blocks_test.cpp makes
the same numbers and compares. A choice is one number per block of queries: bit b says that block b of the keys is kept.
"""

import json
import pathlib

import numpy as np

BLOCK, STRIDE, TAU, GAMMA, JS_TAU, MIN_BLOCKS = 16, 4, 0.9, 0.9, 0.1, 2
N_Q, N_KV, D, N_TOKENS = 12, 4, 8, 256


def numbers(seed, count):
    """Multiples of 1/64 in [-2, 2): a linear congruential generator, as in the test."""
    x, out = seed, []
    for _ in range(count):
        x = (1103515245 * x + 12345) % 2**31
        out.append((x // 65536 % 256 - 128) / 64.0)
    return np.array(out)


def tensors(seed):
    q = numbers(seed, N_Q * N_TOKENS * D).reshape(N_Q, N_TOKENS, D)
    k = numbers(seed + 1, N_KV * N_TOKENS * D).reshape(N_KV, N_TOKENS, D)
    q *= np.array([0.25, 0.5, 1.0, 2.0, 3.0, 4.0])[np.arange(N_Q) % 6][:, None, None]  # heads from flat to sharp
    return q, np.repeat(k, N_Q // N_KV, axis=0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def xattention(q, k, first):
    """Of the queries from `first` on, as a chunk that comes after the others. [heads][blocks of queries]"""
    heads, n, d = k.shape
    rows = lambda x, order: np.concatenate([x[:, s::STRIDE] for s in order], -1)
    scores = rows(q[:, first:], range(STRIDE - 1, -1, -1)) @ rows(k, range(STRIDE)).transpose(0, 2, 1)
    scores /= np.sqrt(d) * STRIDE
    own = (first // STRIDE + np.arange(scores.shape[1]))[:, None]
    scores[:, np.arange(n // STRIDE)[None, :] > own] = -np.inf
    per = BLOCK // STRIDE
    sums = softmax(scores).reshape(heads, -1, per, n // BLOCK, per).sum((2, 4))
    n_rows = sums.shape[1]
    forced = np.zeros(sums.shape, bool)
    forced[:, :, 0] = True  # taken back below where the chunk begins at block 0, as in the program
    forced[:, :, first // BLOCK:first // BLOCK + n_rows] = np.eye(n_rows, dtype=bool)
    kept = forced.copy()
    for h in range(heads):
        for r in range(n_rows):
            order = np.argsort(-np.where(forced[h, r], 100000 * (1 + sums[h, r]), sums[h, r]), kind="stable")
            others = np.sort(np.where(forced[h, r], 0, sums[h, r]))[::-1]
            before = np.concatenate([[0, 0, sums[h, r][forced[h, r]].sum()], others[:-2]])[:len(order)]
            before = np.cumsum(before)
            chosen = np.where(before < TAU * sums[h, r].sum(), order, 0)
            kept[h, r, chosen] = True
            kept[h, r, first // BLOCK + r + 1:] = False
    return kept


def cover(x):
    return int((np.cumsum(np.sort(x)[::-1]) <= GAMMA).sum()) + 1


def flexprefill(q, k):
    """[heads] of (is query-aware, [blocks of queries][blocks of keys])"""
    heads, n, d = k.shape
    nb = n // BLOCK
    mean_k = k.reshape(heads, nb, BLOCK, d).mean(2)
    out = []
    for h in range(heads):
        last = q[h, -BLOCK:] / np.sqrt(d)
        qk = last @ k[h].T
        qk[:, -BLOCK:][np.triu(np.ones((BLOCK, BLOCK), bool), 1)] = -np.inf
        qk = softmax(qk)
        slash = np.zeros(n)  # by distance
        for i in range(BLOCK):
            slash[:n - BLOCK + i + 1] += qk[i, :n - BLOCK + i + 1][::-1]
        slash, vertical = slash / BLOCK, qk.mean(0)
        n_vertical = min(max(cover(vertical) // BLOCK + 1, MIN_BLOCKS), nb)
        n_slash = min(max(cover(slash) // BLOCK + 1, MIN_BLOCKS), nb)
        vertical, slash = vertical.reshape(nb, BLOCK).sum(1), slash.reshape(nb, BLOCK).sum(1)
        estimate = softmax(last.mean(0) @ mean_k[h].T)
        m = (estimate + vertical) / 2
        divergence = np.sqrt(0.5 * (estimate * np.log(estimate / m)).sum() + 0.5 * (vertical * np.log(vertical / m)).sum())
        aware = divergence < JS_TAU
        if aware:
            n_vertical = n_slash = MIN_BLOCKS
        vertical[0] = slash[0] = np.inf
        kept = np.zeros((nb, nb), bool)
        for column in np.argsort(-vertical, kind="stable")[:n_vertical]:
            kept[column:, column] = True
        for offset in np.argsort(-slash, kind="stable")[:n_slash]:
            kept[np.arange(offset, nb), np.arange(nb - offset)] = True
        kept[0, 0] = True
        if aware:
            mean_q = q[h].reshape(nb, BLOCK, d).mean(1)
            pairs = mean_q / np.sqrt(d) @ mean_k[h].T
            pairs[np.triu(np.ones((nb, nb), bool), 1)] = -np.inf
            pairs = softmax(pairs).reshape(-1)
            order = np.argsort(-pairs, kind="stable")
            kept.reshape(-1)[order[np.cumsum(pairs[order]) <= GAMMA * nb]] = True
        out.append((bool(aware), kept))
    return out


def bits(kept):
    return [int(sum(1 << int(b) for b in np.flatnonzero(row))) for row in kept]


def main():
    q, k = tensors(7)
    flex = flexprefill(q, k)
    out = {
        "made_by": "tests/golden/make_prefill_blocks.py",
        "xattention_after_128": [bits(head) for head in xattention(q, k, 128)],
        "xattention_from_0": [bits(head) for head in xattention(q, k, 0)],
        "flexprefill": [{"query_aware": aware, "kept": bits(kept)} for aware, kept in flex],
    }
    path = pathlib.Path(__file__).parent / "prefill_blocks.json"
    path.write_text(json.dumps(out) + "\n")
    print(path.name, "query-aware heads:", sum(aware for aware, _ in flex), "of", len(flex))


if __name__ == "__main__":
    main()
