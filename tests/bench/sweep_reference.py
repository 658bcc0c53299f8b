"""The computation of `kvscope sweep` in NumPy: checks the program's numbers, and how much faster it is.

usage: sweep_reference.py TRACE [--kvscope PROGRAM] [--layer L] [--budgets LIST] [--chunk N] [--rows N] [--threads N]
                          [--rounds N]

Replays one layer's prefill for seven methods (quoka, quest, oracle-topk, sink-recent, sparq, loki, keydiff) times the
budgets, in float64 as the program does. Methods that score once for all budgets do so here too; scores are batched matrix
products, selections are np.argpartition, a row is sorted once for all its Top_k sets, and lists that serve many rows are
gathered once. The program does more in its time (forced share, age histograms, FLOPs, bytes, bootstrap intervals,
start of the process). Every number of COLUMNS is compared with the program's CSV: per query head and for the layer, to 1e-6
of its size (output errors also to 1e-9 absolutely, since they vanish where everything is kept).

Both sides get the same number of threads (--threads also sets OMP_NUM_THREADS and its kin for NumPy's BLAS) and take turns;
speedup is of wall time, cpu_speedup of processor time (the fairer one with one thread on a busy machine).
Prints one JSON object; exit code 1 if a number differs. Needs NumPy and h5py.
"""

import argparse
import csv
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SELECTORS = ["quoka", "quest:dense-layers=0", "oracle-topk", "sink-recent", "sparq:n-channels=16", "loki:rank=16",
             "keydiff"]
COLUMNS = ["mass_mean", "mass_p05", "mass_min", "recall10", "recallk", "output_error", "output_error_rel",
           "output_error_raw", "jaccard", "kept", "union", "churn", "sink_share"]
N_SINK = 4
PAGE = 16
N_QUERIES = 16
RANK = 16


def best(np, scores, k):
    """Positions of the k largest of a vector, ascending."""
    if k >= len(scores):
        return np.arange(len(scores))
    return np.sort(np.argpartition(-scores, k - 1)[:k])


class Layer:
    """One layer of the trace in float64, and what its replay needs."""

    def __init__(self, np, h5py, file, layer, chunk):
        with h5py.File(file, "r") as f:
            group = f[f"/layers/{layer}"]
            self.q = group["q"][...].astype(np.float64)  # [n_q, T, d]
            self.k = group["k"][...].astype(np.float64)  # [n_kv, T, d]
            self.v = group["v"][...].astype(np.float64)
            self.scale = float(f.attrs["score_scale"])
            self.n_prompt = int(f.attrs["n_prompt"])
        self.n_q, _, self.d = self.q.shape
        self.n_kv = self.k.shape[0]
        self.group = self.n_q // self.n_kv
        self.k_norm = np.sqrt((self.k * self.k).sum(-1))
        # Quest: boxes of all full pages of the sequence
        n = self.k.shape[1] // PAGE * PAGE
        pages = self.k[:, :n].reshape(self.n_kv, -1, PAGE, self.d)
        self.page_max, self.page_min = pages.max(2), pages.min(2)
        # Loki (basis=self): principal directions of the first chunk's keys
        first = min(chunk, self.n_prompt)
        self.basis = []
        for head in range(self.n_kv):
            centred = self.k[head, :first] - self.k[head, :first].mean(0)
            self.basis.append(np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :RANK])


def quoka_scores(np, layer, head, q, begin):
    n = min(N_QUERIES, q.shape[1])
    units = q / np.maximum(np.linalg.norm(q, axis=-1, keepdims=True), 1e-12)
    mean = q.mean(1, keepdims=True)
    cosines = (units * (mean / np.maximum(np.linalg.norm(mean, axis=-1, keepdims=True), 1e-12))).sum(-1)
    if q.shape[1] > N_QUERIES:
        picks = np.argsort(cosines, axis=1, kind="stable")[:, :n]
    else:
        picks = np.broadcast_to(np.arange(n), (q.shape[0], n))
    slots = np.take_along_axis(units, picks[:, :, None], 1).mean(0)
    return (slots @ layer.k[head, :begin].T).max(0) / np.maximum(layer.k_norm[head, :begin], 1e-12)


def sparq_scores(np, layer, head, q, begin):
    size = np.abs(q)
    channels = np.sort(np.argpartition(-size.sum((0, 1)), RANK - 1)[:RANK])
    tau = np.sqrt(layer.d * size[:, :, channels].sum(-1) / size.sum(-1))
    mean = (q[:, :, channels] / tau[:, :, None]).mean((0, 1))
    return layer.k[head, :begin][:, channels] @ mean


def loki_scores(np, layer, head, q, begin):
    basis = layer.basis[head]
    return layer.k[head, :begin] @ (basis @ (basis.T @ q.mean((0, 1)))) * layer.scale


def quest_pages(np, layer, head, q, n_pages):
    flat = q.reshape(-1, layer.d)
    return (layer.page_max[head, :n_pages] @ np.maximum(flat, 0).sum(0)
            + layer.page_min[head, :n_pages] @ np.minimum(flat, 0).sum(0))


class Replay:
    """All pairs over all calls of a layer. Results: values[pair, column][q_head, call], mass of every row."""

    def __init__(self, np, layer, budgets, chunk, n_rows):
        self.np, self.layer, self.budgets, self.chunk, self.n_rows = np, layer, budgets, chunk, n_rows
        self.alive = {b: [np.ones(layer.n_prompt, bool) for _ in range(layer.n_kv)] for b in budgets}
        n_calls = -(-layer.n_prompt // chunk)
        self.values = {(s, b): {c: np.full((layer.n_q, n_calls), np.nan) for c in COLUMNS} for s in SELECTORS
                       for b in budgets}
        self.masses = {pair: [] for pair in self.values}
        self.previous = {}

    def run(self):
        for index, begin in enumerate(range(0, self.layer.n_prompt, self.chunk)):
            self.call(index, begin, min(begin + self.chunk, self.layer.n_prompt))

    def shared_lists(self, begin, end):
        """Lists that serve a KV head's whole call: {(selector, budget): [n_kv] positions}."""
        np, layer = self.np, self.layer
        own = np.arange(begin, end)
        lists = {}
        for head in range(layer.n_kv):
            q = layer.q[head * layer.group:(head + 1) * layer.group, begin:end]
            for name, scores_of in (("quoka", quoka_scores), ("sparq:n-channels=16", sparq_scores),
                                    ("loki:rank=16", loki_scores)):
                scores = scores_of(np, layer, head, q, begin) if begin > 0 else np.empty(0)
                for b in self.budgets:
                    lists.setdefault((name, b), []).append(np.concatenate([best(np, scores, b), own]))
            n_pages = begin // PAGE
            scores = quest_pages(np, layer, head, q, n_pages)
            for b in self.budgets:
                n = n_pages if b >= n_pages * PAGE else max(1, b // PAGE)
                pages = best(np, scores, n)
                keys = (pages[:, None] * PAGE + np.arange(PAGE)).ravel()
                lists.setdefault(("quest:dense-layers=0", b), []).append(
                    np.concatenate([keys, np.arange(n_pages * PAGE, end)]))
                n = min(b, begin)
                sinks = np.arange(min(N_SINK, n))
                lists.setdefault(("sink-recent", b), []).append(
                    np.concatenate([sinks, np.arange(begin - (n - len(sinks)), begin), own]))
                lists.setdefault(("keydiff", b), []).append(np.flatnonzero(self.alive[b][head][:end]))
        return lists

    def evict(self, end):
        """KeyDiff after a call: the keys that look least like the mean of all stay."""
        np, layer = self.np, self.layer
        for b in self.budgets:
            for head in range(layer.n_kv):
                keys = np.flatnonzero(self.alive[b][head][:end])
                if len(keys) <= b:
                    continue
                units = layer.k[head, keys] / np.maximum(layer.k_norm[head, keys], 1e-12)[:, None]
                anchor = units.mean(0)
                scores = -(units @ (anchor / max(np.linalg.norm(anchor), 1e-12)))
                self.alive[b][head][keys] = False
                self.alive[b][head][keys[best(np, scores, b)]] = True

    def oracle_cuts(self, begin, end):
        """Scores of every row of the call and the score where Top_k ends: [n_q, n_tok, end], {b: [n_q, n_tok, 1]}."""
        np, layer = self.np, self.layer
        q = layer.q[:, begin:end].reshape(layer.n_kv, -1, layer.d)
        scores = (layer.scale * q @ layer.k[:, :end].transpose(0, 2, 1)).reshape(layer.n_q, end - begin, end)
        n_visible = np.arange(begin + 1, end + 1)
        scores[:, np.arange(end)[None, :] >= n_visible[:, None]] = -np.inf
        places = [end - b for b in self.budgets if b < end]
        ranked = np.partition(scores, places, axis=-1) if places else None
        cuts = {}
        for b in self.budgets:
            cut = ranked[:, :, end - b, None] if b < end else np.full(scores.shape[:2] + (1,), -np.inf)
            cuts[b] = np.where((b >= n_visible)[None, :, None], np.finfo(np.float64).min, cut)
        return scores, cuts

    def call(self, index, begin, end):
        np, layer = self.np, self.layer
        all_scores, cuts = self.oracle_cuts(begin, end)
        n_tok = end - begin
        count = min(self.n_rows, n_tok)
        rows = np.array([i * (n_tok - 1) // (count - 1) for i in range(count)]) if count > 1 else np.array([n_tok - 1])
        n_visible = begin + rows + 1
        scores = all_scores[:, rows]
        ranked = np.sort(scores, axis=-1)
        probs = np.exp(scores - ranked[:, :, -1:])
        probs /= probs.sum(-1, keepdims=True)
        shape = (layer.n_kv, layer.group * count, end)
        output = (probs.reshape(shape) @ layer.v[:, :end]).reshape(layer.n_q, count, layer.d)
        norm = np.linalg.norm(output, axis=-1)
        ten = np.minimum(10, n_visible)
        cut_ten = np.stack([ranked[:, r, end - t] for r, t in enumerate(ten)], 1)[:, :, None]

        def measure(pair, heads, keys, kept, s, p, raw, union):
            """s, p: scores and weights of what the rows keep [heads, rows, n], 0 and -inf where not."""
            n = kept.astype(int)
            place = np.arange(count)[None, :]
            cut_own = np.where(n > 0, ranked[heads, place, np.minimum(end - n, end - 1)], np.inf)[:, :, None]
            k = np.minimum(pair[1], n_visible)
            cut_k = np.stack([ranked[heads.ravel(), r, end - k[r]] for r in range(count)], 1)[:, :, None]
            mass = p.sum(-1)
            in_own = (s >= cut_own).sum(-1)
            y = raw / mass[:, :, None]
            error = np.linalg.norm(y - output[heads.ravel()], axis=-1)
            is_all = n == n_visible[None, :]
            error = np.where(is_all, 0.0, error)
            values = {
                "recall10": (s >= cut_ten[heads.ravel()]).sum(-1) / ten,
                "recallk": (s >= cut_k).sum(-1) / k,
                "output_error": error,
                "output_error_rel": error / norm[heads.ravel()],
                "output_error_raw": np.where(is_all, 0.0, np.linalg.norm(raw - output[heads.ravel()], axis=-1)),
                "jaccard": in_own / (2 * n - in_own),
                "kept": kept,
                "sink_share": np.where(keys < N_SINK, p, 0.0).sum(-1) / mass,
            }
            mass = np.where(is_all, 1.0, np.minimum(mass, 1.0))
            out = self.values[pair]
            out["mass_mean"][heads.ravel(), index] = mass.mean(-1)
            for column, value in values.items():
                out[column][heads.ravel(), index] = value.mean(-1)
            out["union"][heads.ravel(), index] = union
            return mass

        masses = {pair: np.empty((layer.n_q, count)) for pair in self.values}
        for pair, lists in self.shared_lists(begin, end).items():
            for head, keys in enumerate(lists):
                heads = np.arange(head * layer.group, (head + 1) * layer.group)
                s, p = scores[heads][:, :, keys], probs[heads][:, :, keys]
                raw = p @ layer.v[head, keys]
                kept = np.broadcast_to((keys[None, :] < n_visible[:, None]).sum(-1), (layer.group, count))
                masses[pair][heads] = measure(pair, heads[:, None], keys, kept, s, p, raw, len(keys))
                self.churn(pair, heads, index, [keys] * layer.group)
        for b in self.budgets:
            pair = ("oracle-topk", b)
            is_kept = all_scores >= cuts[b]
            union = is_kept.reshape(layer.n_kv, -1, end).any(1).sum(-1)
            mask = is_kept[:, rows]
            p = np.where(mask, probs, 0.0)
            raw = (p.reshape(shape) @ layer.v[:, :end]).reshape(layer.n_q, count, layer.d)
            heads = np.arange(layer.n_q)
            masses[pair] = measure(pair, heads[:, None], np.arange(end), mask.sum(-1), np.where(mask, scores, -np.inf), p,
                                   raw, np.repeat(union, layer.group))
            self.churn(pair, heads, index, [np.flatnonzero(row) for row in is_kept[:, -1]])
        for pair, mass in masses.items():
            self.masses[pair].append(mass)
        self.evict(end)

    def churn(self, pair, heads, index, lists):
        np = self.np
        for head, keys in zip(heads, lists):
            before = self.previous.get((pair, head))
            if before is not None:
                common = len(np.intersect1d(before, keys, assume_unique=True))
                self.values[pair]["churn"][head, index] = (len(before) + len(keys) - 2 * common) / len(keys)
            self.previous[pair, head] = keys

    def table(self):
        """{(selector, budget, q_head or None): {column: number}}: the rows of the program's CSV."""
        np = self.np
        out = {}
        for pair, values in self.values.items():
            masses = np.concatenate(self.masses[pair], axis=1)
            for head in [None, *range(self.layer.n_q)]:
                pick = slice(None) if head is None else slice(head, head + 1)
                row = {column: float(np.nanmean(value[pick])) if np.isfinite(value[pick]).any() else float("nan")
                       for column, value in values.items()}
                row["mass_p05"] = float(np.quantile(masses[pick], 0.05))
                row["mass_min"] = float(masses[pick].min())
                out[(*pair, head)] = row
        return out


def compare(table, csv_file):
    """The largest difference of each column, in units of the tolerance; problems as sentences."""
    worst = dict.fromkeys(COLUMNS, 0.0)
    problems = []
    n_rows = 0
    with open(csv_file, newline="") as f:
        for line in csv.DictReader(f):
            key = (line["selector"], int(float(line["budget"])), int(line["q_head"]) if line["q_head"] else None)
            n_rows += 1
            for column in COLUMNS:
                ours = float(line[column]) if line[column] else float("nan")
                theirs = table[key][column]
                if ours != ours and theirs != theirs:
                    continue
                gap = abs(ours - theirs) / (1e-6 * abs(theirs) + 1e-9)
                worst[column] = max(worst[column], gap)
                if not gap <= 1.0:
                    problems.append(f"{key} {column}: kvscope {ours!r}, NumPy {theirs!r}")
    if n_rows != len(table):
        problems.append(f"{n_rows} rows in the CSV, {len(table)} in NumPy's table")
    return worst, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--kvscope", default=str(ROOT / "build/release/bin/kvscope"))
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--budgets", default="32,64,128,256,512,1024,1536,2048")
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--rows", type=int, default=8, help="measured queries per chunk")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    import h5py  # after the variables: BLAS reads them when it is loaded
    import numpy as np

    budgets = [int(word) for word in args.budgets.split(",")]
    ours, theirs, problems, worst = [], [], [], {}
    ours_cpu, theirs_cpu = [], []

    def child_cpu():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        out = str(pathlib.Path(folder) / "sweep.csv")
        for _ in range(args.rounds):
            start, cpu = time.perf_counter(), child_cpu()
            subprocess.run([args.kvscope, "sweep", args.trace, "--selector", ",".join(SELECTORS), "--budget",
                            args.budgets, "--layers", str(args.layer), "--chunk", str(args.chunk), "--rows-per-chunk",
                            str(args.rows), "--threads", str(args.threads), "--out", out, "--overwrite"],
                           check=True, stdout=subprocess.DEVNULL)
            ours.append(time.perf_counter() - start)
            ours_cpu.append(child_cpu() - cpu)
            start, cpu = time.perf_counter(), time.process_time()
            replay = Replay(np, Layer(np, h5py, args.trace, args.layer, args.chunk), budgets, args.chunk, args.rows)
            replay.run()
            table = replay.table()
            theirs.append(time.perf_counter() - start)
            theirs_cpu.append(time.process_time() - cpu)
            worst, problems = compare(table, out)
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    except (TypeError, KeyError):
        blas = "see numpy.show_config()"
    print(json.dumps({
        "numpy": np.__version__, "blas": blas, "threads": args.threads, "trace": pathlib.Path(args.trace).name,
        "layer": args.layer, "selectors": SELECTORS, "budgets": budgets, "rows_compared": len(table),
        "largest_difference_in_tolerances": worst, "kvscope_seconds": ours, "numpy_seconds": theirs,
        "kvscope_cpu_seconds": ours_cpu, "numpy_cpu_seconds": theirs_cpu,
        "speedup": statistics.median(t / o for o, t in zip(ours, theirs)),
        "cpu_speedup": statistics.median(t / o for o, t in zip(ours_cpu, theirs_cpu)), "differences": problems[:20],
    }, indent=1))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
