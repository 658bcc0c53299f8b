#!/usr/bin/env python3
"""QuoKA and Quest on the GPU beside the fastest dense attention that PyTorch has, on the same tensors.

    cmake --build --preset release --target bench_cuda_selection
    python tests/bench/cuda_selection.py --library build/release/tests/libbench_cuda_selection.so

Each figure is one CUDA graph of several layers with keys of their own (together more than the second-level cache holds),
started 60 times between events: time per layer, min / median / max. Dense: every way that runs, some without the causal
mask of the chunk, which is less work; the fastest library's counts, and the ratio to our own is shown beside it. Ratio:
medians.
"""
import argparse
import ctypes
import json
import statistics
import sys
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

P = ctypes.c_void_p
N_Q, N_KV, D = 24, 8, 128
OURS = "kvscope"
EAGER = False


class Shape(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int) for n in ("n_batch", "n_q", "n_kv", "d_head", "capacity", "is_bf16")]


class Rows(ctypes.Structure):
    _fields_ = [("q", P), ("k", P), ("v", P), ("n_past", P), ("out", P), ("lse", P), ("n_tok", ctypes.c_int),
                ("n_splits", ctypes.c_int)]


class Api:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)

    def call(self, name, *args):
        function = getattr(self.lib, name)
        function.restype = ctypes.c_char_p
        answer = function(*args)
        if answer is not None:
            raise RuntimeError(f"{name}: {answer.decode()}")

    def make(self, name, *args):
        made = P()
        self.call(name, *args, ctypes.byref(made))
        return made


def stream():
    return P(torch.cuda.current_stream().cuda_stream)


def timed(work, n_layers, n_runs=60):
    """Microseconds per layer of a graph of work(layer): (min, median, max)."""
    if EAGER:  # once, for a profiler
        for layer in range(n_layers):
            work(layer)
        torch.cuda.synchronize()
        return 0.0, 1e-9, 0.0
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            for layer in range(n_layers):
                work(layer)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in range(n_layers):
            work(layer)
    for _ in range(5):
        graph.replay()
    times = []
    for _ in range(n_runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / n_layers)
    return min(times), statistics.median(times), max(times)


class Layers:
    def __init__(self, n_layers, n_batch, n_ctx, n_tok, seed=0):
        torch.manual_seed(seed)
        new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
        self.n, self.n_batch, self.n_ctx, self.n_tok = n_layers, n_batch, n_ctx, n_tok
        self.q = [new(n_batch, N_Q, n_tok, D) for _ in range(n_layers)]
        self.k = [new(n_batch, N_KV, n_ctx, D) for _ in range(n_layers)]
        self.v = [new(n_batch, N_KV, n_ctx, D) for _ in range(n_layers)]
        self.out = [torch.empty_like(q) for q in self.q]
        self.lse = [torch.empty(n_batch, N_Q, n_tok, device="cuda") for _ in range(n_layers)]
        self.n_past = torch.full((n_batch,), n_ctx - n_tok, device="cuda", dtype=torch.int32)
        self.zeros = torch.zeros_like(self.n_past)
        self.shape = Shape(n_batch, N_Q, N_KV, D, n_ctx, 1)

    def rows(self, i, n_splits=0):
        return Rows(self.q[i].data_ptr(), self.k[i].data_ptr(), self.v[i].data_ptr(), self.n_past.data_ptr(),
                    self.out[i].data_ptr(), self.lse[i].data_ptr(), self.n_tok, n_splits)


def dense_ways(api, x):
    """name -> work(layer); the query heads of a group as rows of one head ("packed") read keys once."""
    group = N_Q // N_KV
    packed = [q.view(x.n_batch, N_KV, group * x.n_tok, D) for q in x.q]

    def sdpa(backend, q, mask=None, gqa=True):
        def work(i):
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q[i], x.k[i], x.v[i], attn_mask=mask, enable_gqa=gqa)
        return work

    ways = {}
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        name = backend.name.split("_")[0].lower()
        if x.n_tok > 1 and backend == SDPBackend.FLASH_ATTENTION:
            ways[f"{name}, causal"] = sdpa(backend, x.q, causal_lower_right(x.n_tok, x.n_ctx))
        if x.n_tok > 1 and backend == SDPBackend.CUDNN_ATTENTION:
            mask = torch.ones(x.n_tok, x.n_ctx, device="cuda", dtype=torch.bool).tril(x.n_ctx - x.n_tok)
            ways[f"{name}, causal as a mask"] = sdpa(backend, x.q, mask)
        ways[f"{name}, no mask"] = sdpa(backend, x.q)
        ways[f"{name}, no mask, packed"] = sdpa(backend, packed, gqa=False)
    for n_splits in ((0, 4, 6) if x.n_tok > 1 else (0, 8, 16)):
        ways[f"{OURS}, causal, {n_splits or 'automatic'} splits"] = (
            lambda i, n=n_splits: api.call("attend_dense", x.shape, x.rows(i, n), stream()))
    return ways


def show(label, times, extra=""):
    print(f"  {label:44s} {times[0]:8.1f} {times[1]:8.1f} {times[2]:8.1f} us {extra}", flush=True)


def fastest_dense(api, x):
    """(name, times) of the fastest library's kernel, and of ours."""
    best, own = None, None
    for name, work in dense_ways(api, x).items():
        try:
            times = timed(work, x.n)
        except Exception as error:  # a backend that refuses the shape is no competitor
            torch.cuda.synchronize()
            print(f"  dense {name:38s} does not run: {str(error).splitlines()[0][:90]}", flush=True)
            continue
        show("dense " + name, times)
        if name.startswith(OURS):
            own = (name, times) if own is None or times[1] < own[1][1] else own
        elif best is None or times[1] < best[1][1]:
            best = (name, times)
    return best, own


def in_torch(x, budget, n_queries=16):
    """QuoKA's lists of layer 0 in f32 torch: {(kv_head): set of keys}."""
    q, k = x.q[0][0].float(), x.k[0][0, :, : x.n_ctx - x.n_tok].float()
    cosine = F.cosine_similarity(q.double(), q.double().mean(1, keepdim=True), dim=-1)
    picks = cosine.argsort(dim=1, stable=True)[:, :n_queries]
    unit = F.normalize(q.gather(1, picks[..., None].expand(-1, -1, D)), dim=-1)
    slots = unit.view(N_KV, N_Q // N_KV, n_queries, D).mean(1)
    scores = torch.einsum("hsd,htd->hst", slots.double(), F.normalize(k.double(), dim=-1)).amax(1)
    return scores, scores.topk(budget, dim=1).indices


def read_ints(api, address, n):
    host = (ctypes.c_int * n)()
    api.call("read_device", host, address, ctypes.c_size_t(4 * n))
    return list(host)


def quoka(api, n_ctx, results, n_layers):
    x = Layers(n_layers, 1, n_ctx, 128)
    print(f"QuoKA, 1024 keys, {n_ctx} tokens, chunk 128, n_q {N_Q}, n_kv {N_KV}, d {D}, bf16, {n_layers} layers")
    methods = [api.make("quoka_make", x.shape, 16, 1024) for _ in range(x.n)]
    for i, method in enumerate(methods):
        api.call("quoka_append", method, P(x.k[i].data_ptr()), P(x.zeros.data_ptr()), n_ctx, stream())
    choose = lambda i: api.call("quoka_choose", methods[i], x.rows(i), stream())

    def whole(i, n_splits=0):
        choose(i)  # notes the norms of the chunk's keys, too
        api.call("quoka_attend", methods[i], x.rows(i, n_splits), stream())
    until = lambda step: lambda i: api.call("quoka_choose_until", methods[i], x.rows(i), step, stream())
    own = timed(whole, x.n)
    show("quoka: choice and attention", own)
    for step, name in enumerate(("queries", "queries and scores", "choice: queries, scores and lists")):
        show(f"quoka: {name}", timed(until(step), x.n))
    for n_splits in (0, 1, 2, 4, 6):
        show(f"quoka: attention, {n_splits or 'automatic'} splits",
             timed(lambda i: api.call("quoka_attend", methods[i], x.rows(i, n_splits), stream()), x.n))
    scores, expected = in_torch(x, 1024)
    items, counts = P(), P()
    api.call("quoka_lists", methods[0], ctypes.byref(items), ctypes.byref(counts))
    found = read_ints(api, items, N_KV * 1024)
    swapped = sum(len(set(found[h * 1024:(h + 1) * 1024]) ^ set(expected[h].tolist())) for h in range(N_KV))
    print(f"  lists of layer 0 beside torch in f64: {swapped} keys differ of {N_KV * 1024}")
    keys = torch.tensor(found).view(N_KV, 1024).cuda().long()
    tail = torch.arange(n_ctx - 128, n_ctx, device="cuda").expand(N_KV, -1)
    keys = torch.cat([keys, tail], 1)
    gather = lambda t: t[0].gather(1, keys[..., None].expand(-1, -1, D)).float().repeat_interleave(N_Q // N_KV, 0)
    mask = torch.ones(128, 1152, device="cuda", dtype=torch.bool).tril(1024)
    answer = F.scaled_dot_product_attention(x.q[0][0].float(), gather(x.k[0]), gather(x.v[0]), attn_mask=mask)
    print(f"  attention over these lists beside torch in f32: {(x.out[0][0].float() - answer).abs().max() / answer.abs().max():.1e}")
    report(f"quoka {n_ctx}", own, fastest_dense(api, x), results)
    for method in methods:
        api.lib.quoka_free(method)


def quest(api, n_batch, n_ctx, results, n_layers):
    x = Layers(n_layers, n_batch, n_ctx, 1)
    print(f"Quest, 2048 tokens, decode at {n_ctx}, batch {n_batch}, n_q {N_Q}, n_kv {N_KV}, d {D}, bf16, {n_layers} layers")
    best_own = None
    for owner, name in ((2, "list per KV head, largest bound"), (1, "list per KV head, sum"), (0, "list per query head")):
        methods = [api.make("quest_make", x.shape, 16, 2048, owner) for _ in range(x.n)]
        for i, method in enumerate(methods):
            api.call("quest_append", method, P(x.k[i].data_ptr()), P(x.zeros.data_ptr()), n_ctx, stream())

        def whole(i, n_splits=0):
            api.call("quest_append", methods[i], P(x.k[i].data_ptr()), P(x.n_past.data_ptr()), 1, stream())
            api.call("quest_choose", methods[i], x.rows(i), stream())
            api.call("quest_attend", methods[i], x.rows(i, n_splits), stream())
        apart = timed(whole, x.n)
        show(f"quest, {name}, separate calls", apart)
        step = lambda i, n_blocks=0: api.call("quest_step", methods[i], x.rows(i, n_blocks), stream())
        own = timed(step, x.n)
        show(f"quest, {name}, step", own)
        for n_blocks in (4, 8) if n_batch == 1 else (1, 2):
            show(f"  step, {n_blocks} blocks", timed(lambda i: step(i, n_blocks), x.n))
        show("  choice", timed(lambda i: api.call("quest_choose", methods[i], x.rows(i), stream()), x.n))
        for n_splits in (1, 2, 4, 8):
            show(f"  attention, {n_splits} splits",
                 timed(lambda i: api.call("quest_attend", methods[i], x.rows(i, n_splits), stream()), x.n))
        if owner != 0 and (best_own is None or own[1] < best_own[1]):
            best_own = own
        for method in methods:
            api.lib.quest_free(method)
    report(f"quest {n_ctx} batch {n_batch}", best_own, fastest_dense(api, x), results)


def report(name, own, dense, results):
    best, ours = dense
    ratio = best[1][1] / own[1]
    print(f"  == {name}: {own[1]:.1f} us against {best[1][1]:.1f} us ({best[0]}): {ratio:.2f}x; "
          f"against {ours[1][1]:.1f} us ({ours[0]}): {ours[1][1] / own[1]:.2f}x", flush=True)
    results[name] = {"us": own, "dense_us": best[1], "dense": best[0], "ratio": ratio, "own_dense_us": ours[1]}


def ceiling():
    x = torch.empty(1 << 30, device="cuda", dtype=torch.int32)
    y = torch.empty_like(x)
    read = timed(lambda i: x.view(torch.int64).max(), 1, 10)
    copy = timed(lambda i: y.copy_(x), 1, 10)
    print(f"ceilings: copy {8 * x.numel() / copy[1] / 1e6:.2f} TB/s read and written, "
          f"largest of all {4 * x.numel() / read[1] / 1e6:.2f} TB/s read", flush=True)


def main():
    global EAGER, N_Q
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--only", default="", help="part of a figure's name: quoka, quest, 32768, ...")
    parser.add_argument("--n-q", type=int, default=N_Q, help="query heads, a multiple of the 8 KV heads: 32 is Llama-3.1-8B")
    parser.add_argument("--json", default="")
    parser.add_argument("--eager", action="store_true", help="every kernel once, without graphs and times: for a profiler")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # torch says of each backend why it does not run
    EAGER, N_Q = args.eager, args.n_q
    api = Api(args.library)
    print(torch.cuda.get_device_name(0), "torch", torch.__version__, flush=True)
    results = {}
    ceiling()
    figures = [(f"quoka {n}", lambda n=n, l=l: quoka(api, n, results, l)) for n, l in ((32768, 6), (131072, 3))]
    figures += [(f"quest batch {b}", lambda b=b, l=l: quest(api, b, 32768, results, l)) for b, l in ((1, 6), (16, 2))]
    for name, figure in figures:
        if args.only and args.only not in name:
            continue
        try:
            figure()
        except Exception as error:
            print(f"  {name} failed: {error}", flush=True)
        torch.cuda.empty_cache()
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=1)
    print(json.dumps(results))


if __name__ == "__main__":
    sys.exit(main())
