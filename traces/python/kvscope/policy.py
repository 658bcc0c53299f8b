"""A selection inside a transformers model: with kvs.policy(model, "quest@tokens=1024"): model.generate(...).

The model keeps its cache, its masks and its weights; in every layer with full attention the method chooses the keys, and
torch's attention sees these alone. The C++ engine chooses, on copies of q and k on the CPU; of tensors on a GPU it
has torch compute what most methods ask about them (kvscope/torch_rows.py). Where the method does not choose (layers without
full attention by the configuration's layer_types, its dense layers, phases it rests in) the call goes to transformers' own sdpa function unchanged, so its results are sdpa's bit by bit. Whatever is done
to the cache between calls, the keys attended to are those of a run of its own for each sequence (kvscope/sequences.py tells
them apart), or the call is refused. This is for judging methods, not for speed: the attention is dense under a mask.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from .own import OwnSelector

try:
    import torch

    from .policy_door import TextPart, refuse_cache, refuse_call, warn_if_nothing_chosen
    from .policy_method import Method
    from .sequences import Sequences, marks_of
    from kvscope_recorder import masks
    from kvscope_recorder.interface import cache_of, shares_keys, with_all_queries
    from kvscope_recorder.provenance import attention_kinds, sees_all
    from kvscope_recorder.wrapped import plain_model
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
except ImportError as error:
    raise ImportError(f"kvs.policy needs torch and transformers 4.57 or newer with the attention and mask interfaces ({error}): "
                      "pip install 'kvscope[transformers]'") from error


class Policy(Method):
    """A method inside a model, the sequences that run there, and what it keeps of them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sequences: weakref.WeakKeyDictionary[Any, Sequences] = weakref.WeakKeyDictionary()  # by attention module
        self._counts: dict[tuple[str, int], list[int]] = {}  # by phase and layer: keys attended to, keys visible
        self.cache: Any = None  # of the running forward pass, where it is known
        self.gets_all_queries = False  # also layers that attend to the keys of others
        #: Attention calls of the model, and those of layers without full attention.
        self.n_calls = self.n_left = 0

    def __repr__(self) -> str:
        kept = ", ".join(f"{phase} {share:.1%}" for phase, share in self.kept_by_phase.items())
        return f"<Policy {self.spec}: {'keeps ' + kept if kept else 'has kept nothing yet'}>"

    @property
    def kept(self) -> float:
        """Share of the visible keys that were attended to, over the layers with full attention."""
        return _share(self._counts.values())

    @property
    def kept_by_phase(self) -> dict[str, float]:
        """The same for each phase that ran: prefill, decode, verify (several tokens after decoded ones)."""
        phases = dict.fromkeys(phase for phase, _ in self._counts)
        return {word: _share(counts for (phase, _), counts in self._counts.items() if phase == word) for word in phases}

    @property
    def kept_by_layer(self) -> dict[int, dict[str, float]]:
        """The same for each layer, by phase; the method's dense layers have 1."""
        shares: dict[int, dict[str, float]] = {}
        for (phase, layer), counts in sorted(self._counts.items(), key=lambda item: item[0][1]):
            shares.setdefault(layer, {})[phase] = _share([counts])
        return shares

    @torch.compiler.disable
    def attend(self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None,
               dropout: float = 0.0, **kwargs: Any) -> tuple[Any, None]:
        """The entry of transformers' attention interface."""
        self.n_calls += 1
        if getattr(module, "is_kv_shared_layer", False) and not self.gets_all_queries:
            raise UsageError(f"policy {self.spec}: layers of {type(module).__name__} share keys and may get a prompt's last queries alone: "
                             "expected kvs.policy(model, ...), which sees to it that they get all")
        refuse_call(self.spec, module, query, key, attention_mask, kwargs)
        is_left = kwargs.get("sliding_window") is not None or not sees_all(attention_kinds(module.config)[module.layer_idx])
        self.n_left += is_left
        bias = None
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        if not is_left and self.spec != "full":
            try:
                bias = self._bias(module, query, key, value, attention_mask, scale)
            except BaseException:
                self._sequences.pop(module, None)  # some rows went on, others did not
                raise
        if bias is None:
            return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
        group = query.shape[1] // key.shape[1]
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1), attn_mask=bias.to(query.dtype),
            dropout_p=dropout, scale=scale)
        return out.transpose(1, 2).contiguous(), None

    def _bias(self, module: Any, query: Any, key: Any, value: Any, mask: Any, scale: float) -> Any:
        """What is added to the scores, [n_batch, n_q, n_tok, n_key]; None where every row sees all that it may."""
        n_batch, _, n_tok, _ = query.shape
        spans = [self._span(mask, row, n_tok, key.shape[2]) for row in range(n_batch)]
        marks = [marks_of(key[row, :, first:end]) if end > first else None for row, (first, end) in enumerate(spans)]
        n_past = [max(0, end - n_tok - first) for first, end in spans]
        rows = self._sequences.setdefault(module, Sequences()).go_on(marks, n_past, keeps_states=self.has_history,
                                                                     can_copy=self.can_copy, cache=self.cache)
        bias = None
        for row, sequence in enumerate(rows):
            if sequence is None:
                continue
            first, end = spans[row]
            n_own = end - first - n_past[row]
            chosen = self.choose(module, row, sequence, query[row, :, n_tok - n_own :], key[row, :, first:end],
                                 value[row, :, first:end], scale)
            n_visible = query.shape[1] * n_own * (2 * (end - first) - n_own + 1) // 2
            counts = self._counts.setdefault((sequence.phase, module.layer_idx), [0, 0])
            counts[1] += n_visible
            if chosen is None:
                counts[0] += n_visible
                continue
            if bias is None:
                bias = _causal(mask, n_batch, n_tok, key.shape[2]).repeat(1, query.shape[1], 1, 1).to(query.device)
            part = bias[row, :, n_tok - n_own :, first:end]
            part += chosen.to(query.device)
            counts[0] += int((part > float("-inf")).sum())
        return bias

    def _span(self, mask: Any, row: int, n_tok: int, n_key: int) -> tuple[int, int]:
        """Columns [first, end) of this row's keys, none of a row whose tokens are all padding yet.

        Raises UsageError unless the mask is causal with padding in front.
        """
        if mask is None:  # causal: aligned at the begin of an empty static cache, else at the end
            return 0, n_tok if n_tok > 1 else n_key
        first, end = masks.span_of_keys(mask, row, n_tok, n_key)
        wrong = masks.require_causal(mask, row, range(n_tok), end - n_tok - first, -first, n_key, 0, mask.device)
        if wrong:
            raise UsageError(f"policy {self.spec}: the mask of batch row {row} is not causal with padding in front: {wrong} (positions count "
                             f"from key {first}, the first that its last token sees): expected plain text, one sequence per row, padded on "
                             "the left")
        return first, end


def _share(counts: Iterable[list[int]]) -> float:
    """Of pairs (attended, visible), all together."""
    attended, visible = (sum(numbers) for numbers in zip([0, 0], *counts))
    return attended / visible if visible else 1.0


def _causal(mask: Any, n_batch: int, n_tok: int, n_key: int) -> Any:
    """What every query sees without a method: [n_batch, 1, n_tok, n_key], 0 and -inf."""
    if mask is None:
        offset = 0 if n_tok > 1 else n_key - 1
        seen = torch.arange(n_key) <= torch.arange(n_tok)[:, None] + offset
        return torch.where(seen, 0.0, float("-inf")).expand(n_batch, 1, n_tok, n_key)
    seen = mask if mask.dtype == torch.bool else mask == 0
    blind = ~seen.any(-1, keepdim=True)  # queries that are padding: any key, so that no NaN arises
    return torch.where(seen | blind, 0.0, float("-inf")).float().cpu().expand(n_batch, 1, n_tok, n_key)


def _register(policy: Policy, name: str) -> str:
    """Both interfaces: without an entry of its own for masks, a model would get none and attend to padding."""
    ALL_ATTENTION_FUNCTIONS.register(name, policy.attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, sdpa_mask)
    return name


def attn_implementation(spec: str | OwnSelector, dense_layers: int | None = None, threads: int = 1, engine: str = "auto", *,
                        budget: float | str | None = None, phases: str | Iterable[str] | None = None) -> str:
    """Registers a policy and returns its name, "kvscope:quest@tokens=1024", for attn_implementation= of from_pretrained.

    Nothing looks at the model as kvs.policy does: a model that never asks the interface stays as it is, without a word.
    """
    chosen = Policy(spec, dense_layers, threads, engine, budget, phases)
    words = f"kvscope:{spec}" if budget is None else f"kvscope:{spec}@{chosen.budget}"
    return _register(chosen, words if phases is None else f"{words}:{'+'.join(chosen.phases)}")


@contextmanager
def policy(model: torch.nn.Module, spec: str | OwnSelector, *, budget: float | str | None = None,
           phases: str | Iterable[str] | None = None, dense_layers: int | None = None, threads: int = 1,
           engine: str = "auto") -> Iterator[Policy]:
    """Inside the block every layer of `model` with full attention attends to what the method chooses.

    spec          METHOD@BUDGET as on the command line: "quest:page-size=32@tokens=1024", an own selector f"{mine}@tokens=64",
                  "full" (the model's own attention, untouched)
    budget        in place of @BUDGET: 1024 (tokens), 0.1 (a share of the keys), "pages=8", ...
    phases        where it may choose: "prefill", "decode" (verification of drafts with it), or both [both]
    dense_layers  leading layers left dense [the method's own]
    threads       of the method
    engine        who computes what the method asks about queries and keys: torch, where they lie; cpp, from copies in the host's
                  memory; auto: torch for tensors on a GPU where the method can do without copies, else cpp

    Batches (padded on the left), chunked prefill, decode steps, beams, assisted decoding, caches that are cut back or exchanged,
    static and dynamic ones, grouped heads; what a method cannot follow is refused. Of a model with pictures the text part
    alone. Yields the Policy: `kept` says what share of the visible keys was attended to, `kept_by_phase` and `kept_by_layer` the
    same by phase, and by layer and phase. A method that was never asked, or kept everything, is a warning.
    """
    chosen = Policy(spec, dense_layers, threads, engine, budget, phases)
    if chosen.spec == "full":
        yield chosen
        return
    model = plain_model(model)
    part = TextPart(model, spec)
    passes: list[None] = []

    shares = chosen.gets_all_queries = shares_keys(model)

    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        passes.append(None)
        chosen.cache = cache_of(kwargs)
        refuse_cache(chosen, chosen.cache)
        ids = next((one for one in (kwargs.get("input_ids"), *args[:1], kwargs.get("inputs_embeds")) if one is not None), None)
        return (args, with_all_queries(kwargs, ids.shape[1])) if shares and ids is not None else None

    counter = model.register_forward_pre_hook(before, with_kwargs=True)
    name = _register(chosen, f"kvscope-{id(chosen)}")
    try:
        if not part.set(name):
            raise UsageError(f"policy {spec}: {type(model).__name__} cannot change its attention implementation: expected a model of "
                             "transformers whose attention goes through its interface")
        yield chosen
        if passes:
            warn_if_nothing_chosen(chosen)
    finally:
        counter.remove()
        part.set(part.before)
        for interface in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
            interface._global_mapping.pop(name, None)


policy.attn_implementation = attn_implementation  # type: ignore[attr-defined]
