"""Which keys the presses of kvpress keep on small made-up prompts: writes tests/golden/conformance.

    python3 tests/golden/make_conformance.py [--env FOLDER]

Installs kvpress 0.5.5 (NVIDIA, Apache-2.0) and what it needs into a virtual environment (FOLDER, else a temporary one
that is removed again; PIP_INDEX_URL may name an index with PyTorch for CPUs), and asks its presses through their
public `score` and `compress`. Only data are written:

inputs.h5      per input what one attention layer sees of a prompt of T tokens: hidden [T, width] (before the
               projections), w_q [n_q * d, width], w_o [width, n_q * d], q [n_q, T, d] and k [n_kv, T, d] after RoPE,
               v [n_kv, T, d]; q_filters [n_kv, d] of Q-Filters' recipe. q and q_filters are float32, the others float16
METHOD/kept.json   cases: input, options of the press, its scores [n_kv][T], and per compression ratio the kept keys
               [n_kv][...]. Scores of a press that wraps one without having scores are those of the press inside, of
               all keys. think: the channels that are left

Presses run in float64 (their own softmaxes in float32 where they say so). A case is refused if float32 gives other
lists: what is kept must not hang on rounding. Where the scores at the border are equal, the case says "tied", and the
order of torch decides it.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv

PINNED = ["kvpress==0.5.5", "transformers==5.2.0", "torch==2.13.0", "h5py", "numpy"]
HERE = pathlib.Path(__file__).resolve().parent / "conformance"
INSIDE = "KVSCOPE_CONFORMANCE_INSIDE"
ROPE_THETA = 10000.0
WINDOW = 8  # of SnapKV, in all cases
RATIOS = (0.25, 0.5, 0.75)
VARIANTS = ("critical-adakv", "keydiff-blocks")  # second files in a method's folder


def run_inside(folder):
    """This script again, in an environment with kvpress."""
    python = pathlib.Path(folder) / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PINNED], check=True)
    subprocess.run([python, __file__], check=True, env={**os.environ, INSIDE: "1"})


# ---- the layer -------------------------------------------------------------------------------------------------------


def attention_layer(tensors, dtype):
    """A Llama attention layer with the input's projections; presses read W_q, W_o, RoPE and the shape from it."""
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    n_q, n_tok, d = tensors["q"].shape
    width = tensors["hidden"].shape[1]
    config = LlamaConfig(hidden_size=width, num_attention_heads=n_q, num_key_value_heads=tensors["k"].shape[0],
                         head_dim=d, rope_theta=ROPE_THETA, attn_implementation="sdpa", max_position_embeddings=4096)
    layer = LlamaAttention(config, layer_idx=0).to(dtype)
    layer.rotary_emb = LlamaRotaryEmbedding(config)
    with torch.no_grad():
        layer.q_proj.weight.copy_(torch.from_numpy(tensors["w_q"]))
        layer.o_proj.weight.copy_(torch.from_numpy(tensors["w_o"]))
    return layer


class Question:
    """One input as a press sees it after the attention of a prefill."""

    def __init__(self, tensors, dtype):
        import torch

        as_batch = lambda name: torch.from_numpy(tensors[name]).to(dtype).unsqueeze(0)
        self.layer = attention_layer(tensors, dtype)
        self.hidden, self.keys, self.values = as_batch("hidden"), as_batch("k"), as_batch("v")
        positions = torch.arange(self.hidden.shape[1]).unsqueeze(0)
        self.kwargs = {"hidden_states": self.hidden,
                       "position_embeddings": self.layer.rotary_emb(self.hidden, positions)}

    def attention_weights(self):
        """[1, n_q, T, T] of the layer's eager attention."""
        import torch
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, eager_attention_forward

        n_tok = self.hidden.shape[1]
        q = self.layer.q_proj(self.hidden).view(1, n_tok, -1, self.layer.head_dim).transpose(1, 2)
        q = apply_rotary_pos_emb(q, q, *self.kwargs["position_embeddings"])[0]
        causal = torch.full((n_tok, n_tok), -torch.inf, dtype=q.dtype).triu(1)[None, None]
        return eager_attention_forward(self.layer, q, self.keys, self.values, causal, self.layer.scaling)[1]

    def arguments(self, press):
        from kvpress import ObservedAttentionPress

        weights = self.attention_weights() if isinstance(press, ObservedAttentionPress) else None
        return self.layer, self.hidden, self.keys.clone(), self.values.clone(), weights, self.kwargs

    def scores(self, press):
        return press.score(*self.arguments(press))[0].double().tolist()

    def kept(self, press):
        """[n_kv] ascending positions: by the rows that are left, or by what Ada-KV masks."""
        self.layer.masked_key_indices = None
        keys, _ = press.compress(*self.arguments(press))
        n_kv, n_tok = self.keys.shape[1:3]
        if self.layer.masked_key_indices is not None:
            _, heads, places = self.layer.masked_key_indices
            masked = set(zip(heads.tolist(), places.tolist()))
            return [[j for j in range(n_tok) if (h, j) not in masked] for h in range(n_kv)]
        rows = lambda x: [tuple(row) for row in x.tolist()]
        kept = []
        for h in range(n_kv):
            place = {row: j for j, row in enumerate(rows(self.keys[0, h]))}
            assert len(place) == n_tok, "two keys are equal: which one stayed cannot be told"
            kept.append(sorted(place[row] for row in rows(keys[0, h])))
        return kept

    def whole_channels(self, press):
        """[n_kv] channels that ThinK leaves."""
        keys, _ = press.compress(*self.arguments(press))
        return [[c for c in range(keys.shape[3]) if keys[0, h, :, c].any()] for h in range(keys.shape[1])]


# ---- inputs ----------------------------------------------------------------------------------------------------------


def rotated_queries(tensors):
    """[n_q, T, d] of the input's hidden states, by transformers."""
    import torch
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    n_tok = tensors["hidden"].shape[0]
    layer = attention_layer(tensors, torch.float64)
    hidden = torch.from_numpy(tensors["hidden"]).double().unsqueeze(0)
    q = layer.q_proj(hidden).view(1, n_tok, -1, layer.head_dim).transpose(1, 2)
    cos, sin = layer.rotary_emb(hidden, torch.arange(n_tok).unsqueeze(0))
    return apply_rotary_pos_emb(q, q, cos, sin)[0][0].detach().float().numpy()


def random_input(seed, n_q, n_kv, d, n_tok, width):
    import numpy as np

    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    tensors = {"hidden": normal(n_tok, width) + 0.5 * normal(1, width),  # a mean that is not 0
               "w_q": normal(n_q * d, width) * np.float32(1.5 / np.sqrt(width)),
               "w_o": normal(width, n_q * d) * np.float32(1 / np.sqrt(n_q * d)),
               "q": np.zeros((n_q, n_tok, d), np.float32), "k": normal(n_kv, n_tok, d), "v": normal(n_kv, n_tok, d)}
    return finished(tensors)


def finished(tensors):
    """All but q rounded to numbers that float16 holds, so that the file is small; q of what is left of hidden, w_q."""
    import numpy as np

    rounded = {name: value.astype(np.float16).astype(np.float32) for name, value in tensors.items()}
    rounded["q"] = rotated_queries(rounded)
    return rounded


def window_direction(tensors, kv_head, rows):
    """The mean of the last queries of a KV head's group, as a unit vector."""
    import numpy as np

    q = tensors["q"]
    group = q.shape[0] // tensors["k"].shape[0]
    mean = q[kv_head * group:(kv_head + 1) * group, -rows:].mean((0, 1))
    return mean / np.linalg.norm(mean)


def planted_input(seed):
    """A sink with a long key and a short value, two needles per head that the last queries look for, short keys, a value
    that is long where nobody looks, and a last key that its own query does not look at."""
    tensors = random_input(seed, 4, 2, 16, 128, 24)
    k, v = tensors["k"], tensors["v"]
    k[:, 0] *= 6
    v[:, 0] *= 0.05
    for head in range(2):
        for needle, length in ((17 + 3 * head, 8), (70 + 5 * head, 7)):
            k[head, needle] = length * window_direction(tensors, head, WINDOW)
        k[head, [30, 31, 90 + head]] *= 0.2
        v[head, 45 + head] *= 8
        k[head, -1] = -4 * window_direction(tensors, head, 1)
    return finished(tensors)


def starved_input(seed):
    """The second KV head looks at its own window alone: where heads compete for a budget it gets the floor."""
    tensors = random_input(seed, 4, 2, 16, 96, 24)
    tensors["k"][1, -2 * WINDOW:] += 9 * window_direction(tensors, 1, WINDOW)
    tensors["k"][1, :-WINDOW] -= 14 * window_direction(tensors, 1, WINDOW)
    return finished(tensors)


def tiny_model(dtype):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(32)
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                         num_hidden_layers=1, vocab_size=97, rope_theta=ROPE_THETA, attn_implementation="sdpa",
                         initializer_range=0.3, max_position_embeddings=4096)
    return LlamaForCausalLM(config).to(dtype).eval(), torch.randint(0, 97, (1, 100))


def model_input():
    """What the layer of a small random Llama sees of random tokens."""
    import torch
    from transformers import DynamicCache

    model, tokens = tiny_model(torch.float32)
    layer = model.model.layers[0]
    cache, seen = DynamicCache(), {}
    hook = layer.self_attn.register_forward_pre_hook(
        lambda _, __, kwargs: seen.update(hidden=kwargs["hidden_states"]), with_kwargs=True)
    with torch.no_grad():
        model(tokens, past_key_values=cache)
    hook.remove()
    of = lambda x: x.detach().numpy().copy()
    tensors = {"hidden": of(seen["hidden"][0]), "w_q": of(layer.self_attn.q_proj.weight),
               "w_o": of(layer.self_attn.o_proj.weight), "k": of(cache.layers[0].keys[0]),
               "v": of(cache.layers[0].values[0])}
    tensors["q"] = tensors["k"].repeat(2, 0)  # for its shape
    return tensors


def q_filters(tensors):
    """The recipe of Q-Filters (arXiv 2503.02812) on the input's own queries, all of them: per query head the first right
    singular vector, turned so that most queries lie against it; the mean over the group. [n_kv, d]"""
    import numpy as np

    filters = []
    for head in tensors["q"].astype(np.float64):
        u, _, vh = np.linalg.svd(head, full_matrices=False)
        filters.append(-vh[0] if (u[:, 0] > 0).mean() > 0.5 else vh[0])
    n_kv = tensors["k"].shape[0]
    return np.stack(filters).reshape(n_kv, -1, filters[0].size).mean(1).astype(np.float32)


def make_inputs():
    inputs = {"random": random_input(1, 4, 2, 16, 96, 24), "planted": planted_input(2),
              "grouped": random_input(3, 6, 2, 32, 61, 24), "starved": starved_input(4), "model": model_input()}
    check_hooks(inputs["model"])
    inputs["model"] = finished(inputs["model"])
    for tensors in inputs.values():
        tensors["q_filters"] = q_filters(tensors)
    return inputs


# ---- presses ---------------------------------------------------------------------------------------------------------


def q_filter_press(tensors, ratio):
    import torch
    from kvpress import QFilterPress

    press = QFilterPress(compression_ratio=ratio)
    press.q_filters = torch.from_numpy(tensors["q_filters"]).unsqueeze(0)  # [n_layers, n_kv, d], instead of the hub's
    return press


def presses():
    """Per method: what makes the press of (input, ratio, options), its options, and the inputs if not all."""
    import kvpress as kp

    plain = lambda kind: lambda _, ratio, **options: kind(compression_ratio=ratio, **options)
    around = lambda kind: lambda _, ratio, window_size, kernel_size, **options: kind(
        press=kp.SnapKVPress(compression_ratio=ratio, window_size=window_size, kernel_size=kernel_size), **options)
    in_blocks = lambda _, ratio, block_size: kp.BlockPress(kp.KeyDiffPress(compression_ratio=ratio), block_size)
    window = {"window_size": WINDOW, "kernel_size": 5}
    return {
        "snapkv": (plain(kp.SnapKVPress), [window, {"window_size": 16, "kernel_size": 7}]),
        "tova": (plain(kp.TOVAPress), [{}]),
        "keydiff": (plain(kp.KeyDiffPress), [{}]),
        "keydiff-blocks": (in_blocks, [{"block_size": 16}, {"block_size": 7}]),
        "h2o": (plain(kp.ObservedAttentionPress), [{}]),
        "streamingllm": (plain(kp.StreamingLLMPress), [{"n_sink": 4}, {"n_sink": 0}]),
        "knorm": (plain(kp.KnormPress), [{}]),
        "expected-attention": (plain(kp.ExpectedAttentionPress), [
            {"n_future_positions": 512, "n_sink": 4, "use_covariance": True, "use_vnorm": True, "epsilon": 0.0},
            {"n_future_positions": 64, "n_sink": 2, "use_covariance": True, "use_vnorm": True, "epsilon": 0.01},
            {"n_future_positions": 512, "n_sink": 4, "use_covariance": False, "use_vnorm": False, "epsilon": 0.0}]),
        "lagkv": (plain(kp.LagKVPress), [{"n_sink": 4, "lag_size": 16, "cross_scoring": False},
                                         {"n_sink": 4, "lag_size": 16, "cross_scoring": True},
                                         {"n_sink": 4, "lag_size": 64, "cross_scoring": False}]),
        "qfilters": (q_filter_press, [{}]),
        "adakv": (around(kp.AdaKVPress), [{**window, "alpha_safeguard": 0.2}, {**window, "alpha_safeguard": 0.0}]),
        "critical": (around(kp.CriticalKVPress), [{**window, "epsilon": 1e-4, "first_stage_ratio": 0.5}]),
        "critical-adakv": (around(kp.CriticalAdaKVPress), [
            {**window, "alpha_safeguard": 0.2, "epsilon": 1e-4, "first_stage_ratio": 0.5}]),
    }


def is_tied(scores, kept):
    """True if a key that stayed and one that went have the same score."""
    for head, places in zip(scores, kept):
        lost = [s for j, s in enumerate(head) if j not in set(places)]
        if lost and max(lost) == min(head[j] for j in places):
            return True
    return False


def smallest_gap(scores, kept):
    """Between what stayed and what went, as a share of the scores' spread below the forced ones."""
    gaps = []
    for head, places in zip(scores, kept):
        lost = [s for j, s in enumerate(head) if j not in set(places)]
        border = min(head[j] for j in places)
        spread = max((abs(s) for s in lost), default=0.0) or 1.0
        gaps.append((border - max(lost)) / spread if lost else 1.0)
    return min(gaps)


def cases_of(method, make_press, all_options, inputs):
    import torch

    cases = []
    for options in all_options:
        for name, tensors in inputs.items():
            for ratio in RATIOS:
                press = make_press(tensors, ratio, **options)
                question = Question(tensors, torch.float64)
                kept = question.kept(press)
                has_score = hasattr(press, "score")
                scores = question.scores(press if has_score else press.press)  # of all keys at once
                is_open = has_score and is_tied(scores, kept)
                where = f"{method}, input {name}, ratio {ratio}, options {options}"
                if not is_open:
                    if Question(tensors, torch.float32).kept(make_press(tensors, ratio, **options)) != kept:
                        raise SystemExit(f"{where}: float32 and float64 keep different keys; take another seed")
                    if has_score and smallest_gap(scores, kept) < 1e-5:
                        raise SystemExit(f"{where}: the border is {smallest_gap(scores, kept)} wide; take another seed")
                run = {"compression_ratio": ratio, "tied": is_open, "kept": kept}
                if cases and cases[-1]["input"] == name and cases[-1]["scores"] == scores:
                    cases[-1]["runs"].append(run)
                else:
                    cases.append({"input": name, "options": options, "scores": scores, "runs": [run]})
    return cases


def think_cases(inputs):
    import torch
    from kvpress import ThinKPress

    cases = []
    for name, tensors in inputs.items():
        for options in ({"key_channel_compression_ratio": r, "window_size": w} for r in (0.3, 0.5) for w in (8, 32)):
            kept = Question(tensors, torch.float64).whole_channels(ThinKPress(**options))
            if Question(tensors, torch.float32).whole_channels(ThinKPress(**options)) != kept:
                raise SystemExit(f"think, input {name}: float32 and float64 drop different channels")
            cases.append({"input": name, "options": options, "kept_channels": kept})
    return cases


def check_hooks(tensors):
    """Inside a model, by the press's own hook, the same keys stay as by Question."""
    import torch
    from transformers import DynamicCache

    model, tokens = tiny_model(torch.float32)
    question = Question(tensors, torch.float32)
    for method, (make_press, all_options) in presses().items():
        if method in ("qfilters", "adakv", "critical-adakv", "h2o"):
            continue  # filters from the hub; masked, not dropped; weights of eager attention alone
        press = make_press(tensors, 0.5, **all_options[0])
        cache = DynamicCache()
        with torch.no_grad(), press(model):
            model(tokens, past_key_values=cache)
        expected = question.kept(press)
        for head, places in enumerate(expected):
            rows = {tuple(row) for row in question.keys[0, head, places].tolist()}
            found = {tuple(row) for row in cache.layers[0].keys[0, head].tolist()}
            assert rows == found, f"{method}: the hook keeps other keys than compress()"


def write(path, what):
    """JSON with one case a line."""
    head = json.dumps({k: v for k, v in what.items() if k != "cases"}, indent=1)[:-2]
    cases = ",\n  ".join(json.dumps(case) for case in what["cases"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{head},\n "cases": [\n  {cases}\n ]\n}}\n')


def main():
    import h5py
    import kvpress
    import numpy as np
    import torch
    from importlib.metadata import version

    torch.set_grad_enabled(False)
    inputs = make_inputs()
    HERE.mkdir(exist_ok=True)
    with h5py.File(HERE / "inputs.h5", "w") as file:
        file.attrs["rope_theta"] = ROPE_THETA
        for name, tensors in inputs.items():
            for key, value in tensors.items():
                file[f"{name}/{key}"] = value if key in ("q", "q_filters") else value.astype(np.float16)
    about = {"program": f"kvpress {version('kvpress')}", "licence": "Apache-2.0", "rope_theta": ROPE_THETA,
             "made_by": f"tests/golden/make_conformance.py (torch {torch.__version__.split('+')[0]}, "
                        f"transformers {version('transformers')})"}
    for method, (make_press, options) in presses().items():
        press = type(make_press(inputs["random"], 0.5, **options[0])).__name__
        cases = cases_of(method, make_press, options, inputs)
        folder, _, variant = method.partition("-") if method in VARIANTS else (method, "", "")
        write(HERE / folder / f"kept{'_' * bool(variant)}{variant}.json", {**about, "press": press, "cases": cases})
    write(HERE / "think" / "kept.json", {**about, "press": kvpress.ThinKPress.__name__, "cases": think_cases(inputs)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", help="folder of a virtual environment to install into, or that has it all")
    arguments = parser.parse_args()
    if os.environ.get(INSIDE):
        main()
    else:
        folder = arguments.env or tempfile.mkdtemp()
        try:
            run_inside(folder)
        finally:
            if not arguments.env:
                shutil.rmtree(folder)
