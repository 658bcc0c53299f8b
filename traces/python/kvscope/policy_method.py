"""A method as a policy asks it: which keys a row of an attention call attends to. The C++ engine chooses; what it needs to know
about queries and keys it reads from copies in the host's memory, or has torch compute where they lie (kvscope/torch_rows.py)."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from ._load import native
from .commands import budget_words
from .errors import UsageError
from .lists import caps_of
from .own import remembers
from .sequences import KEPT_ENDS, Sequence
from .torch_rows import TorchRows
from kvscope_recorder.provenance import attention_kinds, sees_all

_MAX_TOKENS = 1 << 24
#: Methods that fit something to the keys of the call in which they are asked: fed anew, they need the calls one by one.
_FITTING = ("pqcache", "magicpig", "loki")


def _split(spec: Any, budget: Any) -> tuple[str, str | None]:
    """("quest:page-size=32", "tokens=1024"); the budget of the last stage of a stack is the policy's."""
    text = str(spec)
    last = text.rsplit("+", 1)[-1]
    if "@" not in last:
        return text, budget_words(budget)
    if budget is not None:
        raise UsageError(f"policy {spec}: a budget stands behind the @ and in budget={budget}: expected one of the two")
    method, words = text.rsplit("@", 1)
    return method, words if "=" in words else f"tokens={words}"


def _phases(spec: Any, phases: str | Iterable[str] | None) -> tuple[str, ...]:
    """Those that the method may choose in; verification of drafts is decoding."""
    words = ("prefill", "decode") if phases is None else (phases,) if isinstance(phases, str) else tuple(phases)
    for word in words:
        if word not in ("prefill", "decode"):
            raise UsageError(f"policy {spec}: phases: expected prefill, decode or both, found {word}")
    if not words:
        raise UsageError(f"policy {spec}: phases: expected prefill, decode or both, found none")
    return words + (("verify",) if "decode" in words else ())


class Method:
    """A method with its budget and the phases in which it may choose."""

    def __init__(self, spec: Any, dense_layers: int | None = None, threads: int = 1, engine: str = "auto", budget: Any = None,
                 phases: str | Iterable[str] | None = None) -> None:
        self.spec, words = _split(spec, budget)
        if engine not in ("auto", "cpp", "torch"):
            raise UsageError(f"policy {spec}: engine: expected auto, cpp or torch, found {engine}")
        self.engine = engine
        self.dense_layers, self.threads = dense_layers, threads
        self.caps = caps_of("policy", self.spec, words)
        #: It does without copies of keys and values.
        self.can_ask_torch = self.spec != "full" and self.caps["host_rows"] != "all"
        if engine == "torch" and not self.can_ask_torch and self.spec != "full":
            raise UsageError(f'policy {spec}: engine: the method looks at the keys itself, with these options: expected engine="cpp" or "auto"')
        if self.caps["budgets"] and words is None:
            raise UsageError(f'policy {spec}: expected METHOD@BUDGET, as "{spec}@tokens=1024", or budget=1024: the method takes a budget')
        if budget is not None and not self.caps["budgets"] and self.spec != "full":
            raise UsageError(f"policy {spec}: budget={budget}: the method takes no budget: expected its options alone (kvscope selectors lists them)")
        self.budget = words or "tokens=1024"
        #: Rows of calls in which it chose.
        self.n_asked = 0
        self.phases = tuple(word for word in _phases(spec, phases) if word in self.caps["phases"])
        self.n_dense = self.caps["dense_layers"] if dense_layers is None else dense_layers
        #: It sees every call, also in phases in which it must not choose.
        self._is_always_open = self.caps["permanent"] or self.caps["needs_probs"]
        #: What the method chooses depends on what it saw and chose before, not on the keys and the calls alone.
        self.has_history = self._is_always_open or self.caps["steps_per_choice"] > 1 or remembers(self.spec)
        self.can_copy = self.has_history and not self.caps["remembers"]
        self._passes = self.caps["cross_layer"]
        if self._passes and self.has_history:
            raise UsageError(f"policy {spec}: the method hands lists from layer to layer and has a history, which is not possible inside "
                             "a transformers model: expected one of the two")
        self._runs: dict[int, Any] = {}  # by row, of the running forward pass, where lists pass from layer to layer
        self._last = (0, 0)  # the layer and row asked last
        self._projections: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # by attention module
        self._is_fitting = any(word.startswith(_FITTING) for word in re.split(r"[^a-z0-9-]+", self.spec))

    def choose(self, module: Any, row: int, sequence: Sequence, q: Any, k: Any, v: Any, scale: float) -> Any:
        """What is added to the scores of q [n_q, n_own, d] with k [n_kv, n_keys, d]: 0 or a log-weight, -inf for keys left out;
        None = nothing is left out."""
        if module.layer_idx < self.n_dense:
            return None
        self._refuse_past(row, sequence, k.shape[1] - q.shape[1])
        is_open = sequence.phase in self.phases
        self.n_asked += is_open
        chosen = self._ask(module, row, sequence, q.detach(), k.detach(), v.detach(), scale, is_open)
        if chosen is not None and not is_open and sequence.phase in self.caps["phases"]:
            raise UsageError(f"policy {self.spec}: {sequence.phase} is not among its phases ({', '.join(self.phases)}), and the method has "
                             "left out keys for good before: expected a method that evicts nothing, a prompt in one call before "
                             "decoding, or all phases")
        return chosen

    def _refuse_past(self, row: int, sequence: Sequence, n_past: int) -> None:
        """Raises UsageError where the past cannot be made up for: a method with a history has to see every call."""
        if sequence.is_doubtful and (self.has_history or self._is_fitting or len(sequence.marks) - n_past > 1):
            raise UsageError(f"policy {self.spec}: row {row} of the batch goes on from {n_past} tokens that came about in several ways (the "
                             "same text in other chunks), or so long ago that they were forgotten, and the method's choice depends on "
                             "their calls: expected fewer sequences in a block")
        if not self.has_history or sequence.state is not None or n_past == 0:
            return
        if sequence.is_double:
            why = "which another row goes on with already (beams)"
        elif sequence.n_known == n_past:
            why = (f"to which it was cut back, where the method's state is not known any more (it is where one of the last {KEPT_ENDS} calls of "
                   "the prompt ended, and wherever nothing was evicted since; not for methods that remember votes)")
        else:
            why = (f"of which the method has followed {sequence.n_known} as they are now (the cache was filled before the policy, reordered, "
                   "exchanged or changed, or too many other sequences ran since)")
        raise UsageError(f"policy {self.spec}: row {row} of the batch goes on from {n_past} tokens, {why}: expected the whole sequence inside "
                         "the policy, one call after the other, since its choice depends on what came before")

    def _ask(self, module: Any, row: int, sequence: Sequence, q: Any, k: Any, v: Any, scale: float, is_open: bool) -> Any:
        if v.shape != k.shape:
            if self.caps["needs_values"]:
                raise UsageError(f"policy {self.spec}: the method reads values, and the model's are {v.shape[2]} wide where keys have "
                                 f"{k.shape[2]} channels: expected equal widths")
            v = k
        layer = module.layer_idx
        run = self._begun(module, row, sequence, q, k, v, scale)
        if not is_open and not self._is_always_open:
            run.skip_call(layer)
            return None
        (selection,) = self._call(run, layer, q, k, v, scale)
        if self.can_copy:
            sequence.keep_end(sum(k.shape[1] - run.n_alive(layer, head) for head in range(k.shape[0])))
        if selection.has_summaries:
            raise UsageError(f"policy {self.spec}: the method adds pseudo-keys, which torch's attention cannot take: expected a method "
                             "of lists alone (kvscope simulate runs it)")
        return None if selection.is_dense else torch.from_numpy(_list_bias(selection, q.shape[0], k.shape[0], q.shape[1], k.shape[1]))

    def _call(self, run: Any, layer: int, q: Any, k: Any, v: Any, scale: float) -> Any:
        """The run's lists for q [n_q, n_tok, d], the last queries of the context k and v [n_kv, n_keys, d]."""
        if self.can_ask_torch and (self.engine == "torch" or (self.engine == "auto" and _is_elsewhere(k))):
            return run.remote_call(layer, TorchRows(q, k, v, scale), _array(q) if self.caps["host_rows"] == "queries" else None)
        if not _is_elsewhere(k):
            return run.layer_call(layer, _array(q), _array(k), _array(v))
        new = slice(run.n_held, None)  # the run holds copies of the others
        return run.next_call(layer, _array(q), _array(k[:, new]), _array(v[:, new]) if self.caps["needs_values"] else None)

    def _begun(self, module: Any, row: int, sequence: Sequence, q: Any, k: Any, v: Any, scale: float) -> Any:
        """The run of a sequence, in its running call. Where lists pass from layer to layer, one for all layers of a forward pass."""
        place, state = (module.layer_idx, row), sequence.state
        if self._passes:
            if place <= self._last:
                self._runs = {}
            self._last, state = place, self._runs.get(row)
            if state is not None:
                return state
        if state is None:
            state = self._new_run(module, sequence, q, k, v, scale)
        state.begin_call(sequence.phase, q.shape[1])
        if self._passes:
            self._runs[row] = state
        else:
            sequence.state = state
        return state

    def _new_run(self, module: Any, sequence: Sequence, q: Any, k: Any, v: Any, scale: float) -> Any:
        """A run that has come to the last call: in one piece where the keys alone matter, else call by call, with queries of zeros."""
        (n_kv, _, d), layer, config = k.shape, module.layer_idx, module.config
        is_left = [not sees_all(kind) for kind in attention_kinds(config)]
        run = native.Run(self.spec, len(is_left), q.shape[0], n_kv, d, _MAX_TOKENS, scale, [self.budget], dense_layers=self.dense_layers,
                         f32=True, n_threads=self.threads, has_window=is_left,
                         model_config=config.to_json_string(use_diff=False) if self.caps["needs_rotation"] else "",
                         projection=self._projection(module, q.shape[0], n_kv, d) if self.caps["needs_projection"] else None)
        *past, _ = sequence.phases()
        n_past = sum(n_tok for n_tok, _, _ in past)
        end = 0
        for n_tok, phase, is_seen in past if self._is_fitting or not past else [(n_past, "prefill", False)]:
            end += n_tok
            run.begin_call(phase, n_tok)
            if is_seen and phase in self.phases:
                self._call(run, layer, q.new_zeros((q.shape[0], n_tok, d)), k[:, :end], v[:, :end], scale)
            else:
                for skipped in range(len(is_left)) if self._passes else (layer,):
                    run.skip_call(skipped)
        return run

    def _projection(self, module: Any, n_q: int, n_kv: int, d: int) -> Any:
        """What the layer makes of values on their way out. Raises UsageError where that is no plain matrix."""
        if module not in self._projections:
            out = next((part for name in ("o_proj", "out_proj", "dense", "c_proj") if (part := getattr(module, name, None)) is not None), None)
            weight = getattr(out, "weight", None)
            if type(out).__name__ == "Conv1D":
                weight = weight.T  # as GPT-2 stores it
            if weight is None or not weight.is_floating_point() or weight.dim() != 2 or weight.shape[1] != n_q * d:
                raise UsageError(f"policy {self.spec}: {type(module).__name__} has no output projection of {n_q} heads of {d} channels that "
                                 "the method could weigh values by: expected o_proj, out_proj, dense or c_proj with a plain weight")
            self._projections[module] = native.projection(_array(weight.detach()), n_q // n_kv)
        return self._projections[module]


def _is_elsewhere(x: Any) -> bool:
    """True for tensors that the C++ engine cannot read in place."""
    return x.device.type != "cpu"


def _array(x: Any) -> Any:
    return x.float().cpu().contiguous().numpy()


def _list_bias(selection: Any, n_q: int, n_kv: int, n_tok: int, n_ctx: int) -> Any:
    """[n_q, n_tok, n_ctx]: log-weight of chosen keys, -inf elsewhere."""
    keys, begins, weights = selection.keys, selection.begins, selection.log_weights
    bias = np.full((n_q, n_tok, n_ctx), -np.inf, np.float32)
    heads = {"q_head": np.arange(n_q), "kv_head": np.arange(n_q) // (n_q // n_kv), "layer": np.zeros(n_q, int)}[selection.owner]
    rows = selection.rows_per_list
    n_blocks = -(-n_tok // rows)
    for head, owner in enumerate(heads):
        for block in range(n_blocks):
            at = owner * n_blocks + block
            part = slice(begins[at], begins[at + 1])
            bias[head, block * rows : (block + 1) * rows][:, keys[part]] = weights[part] if len(weights) else 0.0
    return bias
