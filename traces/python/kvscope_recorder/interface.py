"""Stands between transformers models and their attention functions, for the models that are being recorded.

A model looks its attention function up in an AttentionInterface by the name of its implementation (sdpa, eager,
flash_attention_2, ...) at every call. While a recorder is active, the entry of that name leads here; calls of other
models pass through. In transformers 4, eager attention is looked up in the model's own source file instead, so the
entry is the function of that name there. The model, its configuration and its masks stay as they are.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch

from .advice import outside_of_interface
from .errors import UnsupportedModelError
from .wrapped import bridges_of, watch

#: (module, query, key, value, attention_mask, ...) -> (output, weights or None)
AttentionFunction = Callable[..., tuple[torch.Tensor, Any]]

_ABSENT = object()


class Listener(Protocol):
    """Sees the attention calls of the modules it was attached to."""

    def attend(self, function: AttentionFunction, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any: ...


class _Entry:
    """One entry of one interface, redirected as long as somebody listens."""

    def __init__(self, interface: Any, name: str) -> None:
        self.interface = interface
        self.name = name
        self.listeners: dict[int, Listener] = {}
        local = getattr(interface, "_local_mapping", interface)
        self._before = local.get(name, _ABSENT)
        self._original = interface[name] if name in interface else None
        interface[name] = self._call

    # Dynamo would trace into the recorder; a graph break here keeps compiled models working.
    @torch.compiler.disable
    def _call(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        function = self._original or _eager_of(module)
        listener = self.listeners.get(id(module))
        if listener is None:
            return function(module, *args, **kwargs)
        return listener.attend(function, module, *args, **kwargs)

    def restore(self) -> None:
        if self._before is _ABSENT:
            del self.interface[self.name]
        else:
            self.interface[self.name] = self._before


_entries: dict[tuple[int, str], _Entry] = {}


def _namespace(module: torch.nn.Module, name: str) -> Any:
    """What `name` means in the source file of the module's class, or None."""
    for kind in type(module).__mro__:
        found = getattr(sys.modules.get(kind.__module__), name, None)
        if found is not None:
            return found
    return None


def _eager_of(module: torch.nn.Module) -> AttentionFunction:
    """Eager attention is no entry of the interface: each model's source file brings its own."""
    function = _namespace(module, "eager_attention_forward")
    if function is None:
        raise UnsupportedModelError(
            f"{type(module).__name__}: no eager_attention_forward found; load the model with attn_implementation='sdpa'"
        )
    return function


def _where_it_is_looked_up(module: torch.nn.Module, name: str) -> tuple[Any, str]:
    """The mapping, and the key in it, in which `module` finds its attention function at every call."""
    interface = _namespace(module, "ALL_ATTENTION_FUNCTIONS")
    if name == "eager" and not hasattr(interface, "get_interface"):  # transformers 4
        names = inspect.unwrap(type(module).forward).__globals__
        if "eager_attention_forward" in names:
            return names, "eager_attention_forward"
    return interface, name


def attention_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules that know their layer and whose source file uses the attention interface.

    Raises UnsupportedModelError if there are none.
    """
    found = [
        module
        for module in model.modules()
        if isinstance(getattr(module, "layer_idx", None), int)
        and hasattr(module, "config")
        and _namespace(module, "ALL_ATTENTION_FUNCTIONS") is not None
    ]
    if not found:
        raise UnsupportedModelError(outside_of_interface(model))
    return found


def cache_of(arguments: dict[str, Any]) -> Any:
    """The cache among the arguments of a call, by its name since transformers 5.24 or by the older one; None without."""
    return next((arguments[name] for name in ("cache", "past_key_values") if arguments.get(name) is not None), None)


def shares_keys(model: torch.nn.Module) -> bool:
    """True if layers attend to the keys of earlier ones (Gemma 3n, Gemma 4)."""
    return any(getattr(module, "is_kv_shared_layer", False) for module in model.modules())


def with_all_queries(arguments: dict[str, Any], n: int) -> dict[str, Any]:
    """The arguments of a call of n tokens, by which every layer gets all queries: Gemma 4's layers with the keys of others leave out
    those that no logit needs, unless logits_to_keep names their positions one by one."""
    kept = arguments.get("logits_to_keep")
    return {**arguments, "logits_to_keep": torch.arange(n)[-kept:]} if kept and isinstance(kept, int) else arguments


def attach(model: torch.nn.Module, listener: Listener) -> Callable[[], None]:
    """Lets `listener` see the model's attention calls; returns what ends that. Raises UnsupportedModelError."""
    attached: list[tuple[_Entry, int]] = []
    watched: list[Callable[[], None]] = []
    bridges = bridges_of(model)

    def detach() -> None:
        for entry, key in attached:
            entry.listeners.pop(key, None)
            if not entry.listeners and _entries.pop((id(entry.interface), entry.name), None):
                entry.restore()
        attached.clear()
        for stop in watched:
            stop()
        watched.clear()

    for module in attention_modules(model):
        name = module.config._attn_implementation
        if name is None or str(name).startswith("paged|"):
            detach()
            raise UnsupportedModelError(f"attention implementation {name!r} cannot be recorded: use sdpa or eager")
        interface, name = _where_it_is_looked_up(module, name)
        key = (id(interface), name)
        if key not in _entries:
            _entries[key] = _Entry(interface, name)
        entry = _entries[key]
        if id(module) in entry.listeners:
            detach()
            raise UnsupportedModelError(f"{type(model).__name__} is being recorded already: one recorder at a time")
        entry.listeners[id(module)] = listener
        attached.append((entry, id(module)))
        if id(module) in bridges:
            watched.append(watch(bridges[id(module)], module, listener.attend))
    return detach
