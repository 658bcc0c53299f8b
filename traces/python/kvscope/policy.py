"""A selection inside a transformers model: with kvs.policy(model, "quest@tokens=1024"): model.generate(...).

The model keeps its cache, its masks and its weights; in every layer with full attention the method chooses the keys, and
torch's attention sees these alone. The C++ engine chooses, on copies of q and k on the CPU; for tensors on a GPU a twin in
torch does, where there is one (kvscope/twins.py). Where the method does not choose (sliding
layers, its dense layers, phases it rests in, `full`) the call goes to transformers' own sdpa function unchanged, so its
results are sdpa's bit by bit. This is for judging methods, not for speed: the attention is dense under a mask.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._load import native
from .errors import UsageError

try:
    import torch

    from .twins import TWINS, make_twin
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
except ImportError as error:
    raise ImportError(f"kvs.policy needs torch and transformers 4.57 or newer with the attention and mask interfaces ({error}): "
                      "pip install 'kvscope[transformers]'") from error

_MAX_TOKENS = 1 << 24


def _split(spec: Any) -> tuple[str, str]:
    """("quest:page-size=32", "tokens=1024"); the budget of the last stage of a stack is the policy's."""
    text = str(spec)
    last = text.rsplit("+", 1)[-1]
    if "@" not in last:
        return text, "tokens=1024"
    method, budget = text.rsplit("@", 1)
    return method, budget if "=" in budget else f"tokens={budget}"


class Policy:
    """A method with its budget, and what it keeps of the sequences that run."""

    def __init__(self, spec: Any, dense_layers: int | None = None, threads: int = 1, engine: str = "auto") -> None:
        self.spec, self.budget = _split(spec)
        if engine not in ("auto", "cpp", "torch"):
            raise UsageError(f"policy {spec}: engine: expected auto, cpp or torch, found {engine}")
        self.engine = engine
        self.has_twin = self.spec != "full" and self._has_twin(engine)
        self.dense_layers, self.threads = dense_layers, threads
        self.caps = native.caps(self.spec)
        if self.caps["budgets"] and "@" not in str(spec).rsplit("+", 1)[-1]:
            raise UsageError(f'policy {spec}: expected METHOD@BUDGET, as "{spec}@tokens=1024": the method takes a budget')
        for need, words in (("needs_draft", "needs a draft model"), ("needs_calibration", "learns from a text first"),
                            ("cross_layer", "hands lists from layer to layer")):
            if self.caps[need]:
                raise UsageError(f"policy {spec}: the method {words}, which is not possible inside a transformers model: expected "
                                 "another one (kvscope simulate runs it)")
        self._runs: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        self._twins: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()
        #: Keys attended to and keys visible, summed over queries and query heads of the layers with full attention.
        self.attended = self.visible = 0

    def _has_twin(self, engine: str) -> bool:
        """Whether torch has the method with these options; where it was asked for, it has to."""
        try:
            if make_twin(self.spec) is not None:
                return True
            why = f"torch has no such method: expected one of {', '.join(TWINS)}"
        except ValueError as error:
            why = str(error)
        if engine == "torch":
            raise UsageError(f'policy {self.spec}: {why}, or engine="cpp"')
        return False

    @property
    def kept(self) -> float:
        """Share of the visible keys that were attended to, over the layers with full attention."""
        return self.attended / self.visible if self.visible else 1.0

    @torch.compiler.disable
    def attend(self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None,
               dropout: float = 0.0, **kwargs: Any) -> tuple[Any, None]:
        """The entry of transformers' attention interface."""
        def plain() -> tuple[Any, None]:
            return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)

        if self.spec == "full" or kwargs.get("sliding_window") is not None or getattr(module, "sliding_window", None):
            return plain()
        self._refuse(module, query, key, kwargs)
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        bias = None
        for row in range(query.shape[0]):
            bias = self._select(module, row, query, key, value, attention_mask, scale, bias)
        if bias is None:
            return plain()
        group = query.shape[1] // key.shape[1]
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1), attn_mask=bias.to(query.dtype),
            dropout_p=dropout, scale=scale)
        return out.transpose(1, 2).contiguous(), None

    def _refuse(self, module: Any, query: Any, key: Any, kwargs: dict[str, Any]) -> None:
        name = type(module).__name__
        if kwargs.get("s_aux") is not None or getattr(module, "sinks", None) is not None:
            raise UsageError(f"policy {self.spec}: {name} has attention sinks, which sdpa does not know: expected a model without")
        if kwargs.get("softcap") is not None:
            raise UsageError(f"policy {self.spec}: {name} caps its scores, which sdpa does not know: expected a model without")
        if kwargs.get("cu_seq_lens_q") is not None:
            raise UsageError(f"policy {self.spec}: the sequences are packed: expected one per row of the batch")
        if not query.is_floating_point() or query.dtype != key.dtype:
            raise UsageError(f"policy {self.spec}: expected q and k of one floating type, found {query.dtype} and {key.dtype}")
        if not isinstance(getattr(module, "layer_idx", None), int):
            raise UsageError(f"policy {self.spec}: {name} does not say which layer it is (layer_idx), so its keys cannot be told apart")

    def _span(self, mask: Any, row: int, n_tok: int, n_key: int) -> tuple[int, int]:
        """Columns [first, end) of this row's keys, none of a row whose tokens are all padding yet.

        Raises UsageError unless the mask is causal with padding in front.
        """
        if mask is None:  # causal: aligned at the begin of an empty static cache, else at the end
            return 0, n_tok if n_tok > 1 else n_key
        seen = mask[row, 0] if mask.dtype == torch.bool else mask[row, 0] == 0
        columns = torch.nonzero(seen[-1]).flatten()
        if not len(columns):
            return 0, 0
        first, end = int(columns[0]), int(columns[-1]) + 1
        own = torch.arange(end - n_tok, end, device=seen.device)
        at = torch.arange(n_key, device=seen.device)
        expected = (at >= first) & (at <= own[:, None])
        real = own >= first
        if not torch.equal(seen[real], expected[real]):
            raise UsageError(f"policy {self.spec}: the mask of batch row {row} is not causal with padding in front: expected plain "
                             "text, padded on the left")
        return first, end

    def _run_of(self, module: Any, row: int, pos_begin: int, k: Any, n_q: int, scale: float) -> Any:
        """The row's run, brought to pos_begin: new for a new sequence, cut back where a cache was cropped."""
        runs = self._runs.setdefault(module, [])
        runs.extend([None] * (row + 1 - len(runs)))
        run = runs[row]
        if run is None or pos_begin == 0:
            n_kv, _, d = k.shape
            run = runs[row] = native.Run(self.spec, module.layer_idx + 1, n_q, n_kv, d, _MAX_TOKENS, scale, [self.budget],
                                         dense_layers=self.dense_layers, f32=True, n_threads=self.threads)
        if run.n_keys > pos_begin:
            run.rollback(pos_begin)
        if run.n_keys < pos_begin:  # the cache was filled before the policy began
            if self.caps["permanent"] or self.caps["needs_probs"]:
                raise UsageError(f"policy {self.spec}: the cache holds {pos_begin} tokens of which the method has seen {run.n_keys}: "
                                 "expected the whole sequence inside the policy, since its choice depends on what came before")
            n_missing = pos_begin - run.n_keys
            run.set_open(False)
            run.begin_call("prefill", n_missing)
            run.layer_call(module.layer_idx, k.new_zeros((n_q, n_missing, k.shape[2])).numpy(), k[:, :pos_begin].contiguous().numpy(),
                           k[:, :pos_begin].contiguous().numpy())
            run.set_open(True)
        return run

    def _select(self, module: Any, row: int, query: Any, key: Any, value: Any, mask: Any, scale: float, bias: Any) -> Any:
        """Adds what the row's queries may not see to bias [batch, n_q, n_tok, n_key]; None while nothing is hidden."""
        n_q, n_tok, n_key = query.shape[1], query.shape[2], key.shape[2]
        first, end = self._span(mask, row, n_tok, n_key)
        if first == end:
            return bias
        n_pad = max(0, first - (end - n_tok))  # queries that are padding themselves
        n_own = n_tok - n_pad
        pos_begin = end - first - n_own
        phase = "prefill" if pos_begin == 0 or n_own > 1 else "decode"
        if self.has_twin and (self.engine == "torch" or (self.engine == "auto" and query.is_cuda)):
            twin = self._twin_of(module, row, pos_begin)
            twin.scale = scale
            dense = twin.dense_layers if self.dense_layers is None else self.dense_layers
            seen = None if module.layer_idx < dense else twin(query[row, :, n_pad:].detach(), key[row, :, first:end].detach(),
                                                              self.budget, phase == "decode")
            if seen is not None:
                seen = torch.where(seen, 0.0, float("-inf"))
            return self._hide(seen, row, query, key, mask, bias, n_pad, first, end)
        k = key[row, :, first:end].detach().float().cpu().contiguous()
        run = self._run_of(module, row, pos_begin, k, n_q, scale)
        q = query[row, :, n_pad:].detach().float().cpu().contiguous()
        v = value[row, :, first:end].detach().float().cpu().contiguous()
        if v.shape != k.shape:
            if self.caps["needs_values"]:
                raise UsageError(f"policy {self.spec}: the method reads values, and the model's are {v.shape[2]} wide where keys have "
                                 f"{k.shape[2]} channels: expected equal widths")
            v = k
        run.begin_call(phase, n_own)
        (selection,) = run.layer_call(module.layer_idx, q.numpy(), k.numpy(), v.numpy())
        if selection.has_summaries:
            raise UsageError(f"policy {self.spec}: the method adds pseudo-keys, which torch's attention cannot take: expected a method "
                             "of lists alone (kvscope simulate runs it)")
        chosen = None
        if not selection.is_dense:
            chosen = torch.from_numpy(_list_bias(selection, n_q, key.shape[1], n_own, end - first)).to(query.device)
        return self._hide(chosen, row, query, key, mask, bias, n_pad, first, end)

    def _twin_of(self, module: Any, row: int, pos_begin: int) -> Any:
        """The row's twin in torch, new for a new sequence."""
        twins = self._twins.setdefault(module, {})
        if pos_begin == 0 or row not in twins:
            if pos_begin > 0 and self.caps["permanent"]:
                raise UsageError(f"policy {self.spec}: the cache holds {pos_begin} tokens that the method has not seen: expected the whole "
                                 "sequence inside the policy, since its choice depends on what came before")
            twins[row] = make_twin(self.spec)
        twins[row].rollback(pos_begin)
        return twins[row]

    def _hide(self, chosen: Any, row: int, query: Any, key: Any, mask: Any, bias: Any, n_pad: int, first: int, end: int) -> Any:
        """bias with the row's choice added: chosen [n_q, n_own, n_keys], 0 or a log-weight, -inf for keys left out; None = all."""
        n_batch, n_q, n_tok, _ = query.shape
        n_own, n_keys = n_tok - n_pad, end - first
        n_visible = n_q * n_own * (2 * n_keys - n_own + 1) // 2
        self.visible += n_visible
        if chosen is None:
            self.attended += n_visible
        if chosen is None and bias is None and row == n_batch - 1:
            return None
        if bias is None:
            bias = torch.full((n_batch, n_q, n_tok, key.shape[2]), 0.0)
            bias[:] = self._causal(mask, n_batch, n_tok, key.shape[2])
            bias = bias.to(query.device)
        if chosen is None:
            return bias
        part = bias[row, :, n_pad:, first:end]
        part += chosen
        self.attended += int((part > float("-inf")).sum())
        return bias

    @staticmethod
    def _causal(mask: Any, n_batch: int, n_tok: int, n_key: int) -> Any:
        """What every query sees without a method: [batch or 1, 1, n_tok, n_key], 0 and -inf."""
        if mask is None:
            offset = 0 if n_tok > 1 else n_key - 1
            seen = torch.arange(n_key) <= torch.arange(n_tok)[:, None] + offset
            return torch.where(seen, 0.0, float("-inf"))[None, None]
        seen = mask if mask.dtype == torch.bool else mask == 0
        blind = ~seen.any(-1, keepdim=True)  # queries that are padding: any key, so that no NaN arises
        return torch.where(seen | blind, 0.0, float("-inf")).float().cpu()


def _list_bias(selection: Any, n_q: int, n_kv: int, n_tok: int, n_ctx: int) -> Any:
    """[n_q, n_tok, n_ctx]: log-weight of chosen keys, -inf elsewhere."""
    import numpy as np

    keys, begins, weights = selection.keys, selection.begins, selection.log_weights
    bias = np.full((n_q, n_tok, n_ctx), -np.inf, np.float32)
    heads = {"q_head": np.arange(n_q), "kv_head": np.arange(n_q) // (n_q // n_kv), "layer": np.zeros(n_q, int)}[selection.owner]
    rows = selection.rows_per_list
    n_blocks = -(-n_tok // rows)
    for head, owner in enumerate(heads):
        for block in range(n_blocks):
            at = owner * n_blocks + block
            part = slice(begins[at], begins[at + 1])
            bias[head, block * rows : (block + 1) * rows, keys[part]] = weights[part] if len(weights) else 0.0
    return bias


def _register(policy: Policy, name: str) -> str:
    """Both interfaces: without an entry of its own for masks, a model would get none and attend to padding."""
    ALL_ATTENTION_FUNCTIONS.register(name, policy.attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, sdpa_mask)
    return name


def attn_implementation(spec: Any, dense_layers: int | None = None, threads: int = 1, engine: str = "auto") -> str:
    """Registers a policy and returns its name, "kvscope:quest@tokens=1024", for attn_implementation= of from_pretrained."""
    return _register(Policy(spec, dense_layers, threads, engine), f"kvscope:{spec}")


@contextmanager
def policy(model: Any, spec: Any, *, dense_layers: int | None = None, threads: int = 1, engine: str = "auto") -> Iterator[Policy]:
    """Inside the block every layer of `model` with full attention attends to what the method chooses.

    spec          METHOD@BUDGET as on the command line: "quest:page-size=32@tokens=1024", an own selector f"{mine}@tokens=64",
                  "full"
    dense_layers  leading layers left dense [the method's own]
    threads       of the method
    engine        who chooses: cpp, torch (a twin), or auto: torch for tensors on a GPU where the method has a twin, else cpp

    Batches (padded on the left), chunked prefill, decode steps, static and dynamic caches, grouped heads. Yields the Policy,
    whose `kept` says what share of the visible keys was attended to.
    """
    chosen = Policy(spec, dense_layers, threads, engine)
    before = model.config._attn_implementation
    if before not in ("sdpa", "eager"):
        raise UsageError(f"policy {spec}: the model's attention is {before}: expected sdpa (or eager), whose masks a policy can read")
    name = _register(chosen, f"kvscope-{id(chosen)}")
    try:
        model.set_attn_implementation(name)
        yield chosen
    finally:
        model.set_attn_implementation(before)
        for interface in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
            interface._global_mapping.pop(name, None)


policy.attn_implementation = attn_implementation  # type: ignore[attr-defined]
