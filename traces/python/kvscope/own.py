"""Own selectors in Python: a decorated function chooses keys, and runs wherever a method of kvscope does."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ._load import native
from .errors import SelectorError, UsageError

if TYPE_CHECKING:
    from ._native import CallBudget, Selection

Owner = Literal["kv_head", "q_head", "layer"]
Phase = Literal["prefill", "decode", "verify"]
BudgetKind = Literal["tokens", "ratio", "pages", "p"]

#: Own selectors that look at more than a call's tensors: at what they kept, or at all of the call (its number, other methods).
_REMEMBERING: set[str] = set()

#: What a function may ask for by the names of its parameters; `call` is all of it, `memory` a dict of the sequence.
CALL_FIELDS = ("q", "k", "v", "alive", "budget", "layer", "phase", "step", "pos_begin", "n_tok", "n_keys", "n_q", "n_kv",
               "d_head", "group", "score_scale", "score_cap", "sinks")


def as_numpy(array: Any) -> np.ndarray:
    """An array of NumPy, PyTorch, CuPy, JAX ... as NumPy: by DLPack, without a copy where it lies on the CPU."""
    if isinstance(array, np.ndarray):
        return array
    if getattr(array, "requires_grad", False):
        array = array.detach()
    if "bfloat16" in str(getattr(array, "dtype", "")):
        array = array.float() if hasattr(array, "float") else array.astype("float32")  # NumPy has no bfloat16
    device = getattr(array, "__dlpack_device__", None)
    if device is not None and int(device()[0]) not in (1, 3):  # neither CPU nor pinned memory
        array = array.cpu() if hasattr(array, "cpu") else array.get() if hasattr(array, "get") else np.asarray(array)
    if hasattr(array, "__dlpack__"):
        return np.from_dlpack(array)
    return np.asarray(array)


@overload
def top(scores: Any, budget: CallBudget) -> Selection: ...
@overload
def top(scores: Any, budget: int) -> Any: ...
def top(scores: Any, budget: CallBudget | int) -> Any:
    """The keys with the best scores; among equal scores the lowest position wins.

    scores  [owners, keys] or [keys], higher is better, -inf is no candidate, NaN is an error
    budget  call.budget: the answer of a selector, with as many past keys as the budget buys, dead keys and the call's own
            left out; or a number: arrays of positions, ascending, one per row (one array for [keys])
    """
    numbers = as_numpy(scores)
    if np.iscomplexobj(numbers):
        raise UsageError("kvs.top: expected real scores, found complex numbers")
    values = np.ascontiguousarray(numbers, dtype=np.float64)
    if isinstance(budget, native.CallBudget):
        return budget.top(values)
    if values.ndim not in (1, 2):
        raise UsageError(f"kvs.top: expected scores of one or two axes, found shape {list(values.shape)}")
    if int(budget) < 0:
        raise UsageError(f"kvs.top: expected a number of keys, at least 0, found {budget}")
    if np.isnan(values).any():
        raise UsageError("kvs.top: expected numbers, found NaN among the scores")
    rows = native.top(np.atleast_2d(values), int(budget))
    return rows[0] if values.ndim == 1 else rows


class OwnSelector:
    """A function that was registered; str(it) is what the command line calls it, it(**options) another variant."""

    def __init__(self, function: Callable[..., Any], spec: str) -> None:
        self.function, self.spec = function, spec
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, **options: Any) -> OwnSelector:
        """The same function with options set: sweep(trace, [mine, mine(alpha=0.5)])."""
        if not options:
            return self
        words = ",".join(f"{name.replace('_', '-')}={value}" for name, value in options.items())
        return OwnSelector(self.function, f"{self.spec.split(':')[0]}:{words}")

    def __str__(self) -> str:
        return self.spec

    def __repr__(self) -> str:
        return f"<kvscope selector {self.spec}>"


@overload
def selector(function: Callable[..., Any], /) -> OwnSelector: ...
@overload
def selector(*, name: str | None = None, budgets: Iterable[BudgetKind] = ..., owner: Owner = ..., phases: Iterable[Phase] = ...,
             dense_layers: int = 0, page_size: int = 1, needs_values: bool = False,
             cost: Callable[..., Any] | None = None) -> Callable[[Callable[..., Any]], OwnSelector]: ...
def selector(function: Callable[..., Any] | None = None, *, name: str | None = None,
             budgets: Iterable[BudgetKind] = ("tokens", "ratio"), owner: Owner = "kv_head",
             phases: Iterable[Phase] = ("prefill", "decode"), dense_layers: int = 0, page_size: int = 1, needs_values: bool = False,
             cost: Callable[..., Any] | None = None) -> Any:
    """Registers a function as a selection method.

    name     what tables and the command line call it [the function's name, with dashes]
    budgets  kinds that it understands: tokens, ratio, pages, p
    owner    who has a list: kv_head (the group shares it), q_head, layer
    phases   where it chooses: prefill, decode, verify; elsewhere attention is dense
    dense_layers  leading layers that stay dense
    page_size     tokens per page, for budgets of pages
    needs_values  v must be there
    cost          cost(call) -> (FLOPs of scoring, bytes read to score, bytes of metadata); without it those columns are empty

    The function names what it wants: `call`, or fields of it (q [n_q, n_tok, d], k [n_kv, n_keys, d], v, alive [n_kv, n_keys],
    budget, layer, phase, ...), or `memory`, a dict that is empty at the start of every sequence. Parameters with defaults are
    options of the method ("mine:alpha=0.5"). Arrays are read-only windows on the engine's memory, good during the call.

    It returns one of
      scores  a float array [owners, keys]: the best past keys within the budget, lowest position among equals. It is then asked
              once for all budgets, unless it looks at the budget
      keys    integer positions of past keys, one array per owner, or a boolean mask [owners, keys]
      kvs.top(scores, budget), or call.builtin("quest"): the answer of a method of kvscope to this call
      None    everything visible
    The call's own keys are in every list at no price. A list that breaks the rules is an error that names it.
    """
    if function is None:
        return lambda decorated: selector(decorated, name=name, budgets=budgets, owner=owner, phases=phases,
                                          dense_layers=dense_layers, page_size=page_size, needs_values=needs_values, cost=cost)
    spec = name or function.__name__.replace("_", "-").strip("-")
    wanted, options = _parameters(spec, function)

    def parse(texts: dict[str, str]) -> dict[str, Any]:
        values = {}
        for option, text in texts.items():
            key = option.replace("-", "_")
            if key not in options:
                raise UsageError(f"selector {spec} has no option {option}: known: {', '.join(options) or 'none'}")
            values[key] = _parsed(spec, option, text, type(options[key]))
        return values

    def ask(call: Any, values: dict[str, Any], memory: dict[str, Any]) -> Any:
        try:
            return _answer(function(*[_field(call, field, memory) for field in wanted], **values), spec)
        except Exception as error:
            where = repr(call).removeprefix("<kvscope call: ").removesuffix(">")
            _forget_locals(error)
            raise SelectorError(f"selector {spec}: {type(error).__name__}: {error}; {where}") from error
        finally:
            del call

    listed = [[option.replace("_", "-"), "", str(default), _expected(type(default))] for option, default in options.items()]
    doc = inspect.getdoc(function) or ""
    native.put_selector(spec, spec, doc.split("\n")[0] or "own selector in Python", list(phases), owner, list(budgets),
                        dense_layers, page_size, needs_values or "v" in wanted, listed, parse, ask, cost)
    (_REMEMBERING.add if {"memory", "call", "step"} & set(wanted) else _REMEMBERING.discard)(spec)
    return OwnSelector(function, spec)


def remembers(spec: str) -> bool:
    """True if a stage of "mine:alpha=1+quest" is an own selector whose answers may depend on earlier calls."""
    return any(stage.split(":")[0].split("@")[0] in _REMEMBERING for stage in spec.split("+"))


def _parameters(spec: str, function: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """What the function wants of a call, and its options with their defaults."""
    wanted, options = [], {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            if type(parameter.default) not in (bool, int, float, str):
                raise UsageError(f"selector {spec}: option {parameter.name}: expected a default that is a number, a text or a "
                                 f"truth value, found {parameter.default!r}")
            options[parameter.name] = parameter.default
        elif parameter.name in CALL_FIELDS or parameter.name in ("call", "memory"):
            wanted.append(parameter.name)
        else:
            raise UsageError(f"selector {spec}: parameter {parameter.name}: expected call, memory, one of {', '.join(CALL_FIELDS)}, "
                             "or a default that makes it an option")
    return wanted, options


def _field(call: Any, field: str, memory: dict[str, Any]) -> Any:
    return call if field == "call" else memory if field == "memory" else getattr(call, field)


def _expected(kind: type) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}[kind]


def _parsed(spec: str, option: str, text: str, kind: type) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False, "True": True, "False": False}[text]
        return kind(text)
    except (KeyError, ValueError):
        raise UsageError(f'selector {spec}: {option}: expected {_expected(kind)}, found "{text}"') from None


def _answer(said: Any, spec: str) -> Any:
    """What the function returned, as the native side takes it."""
    if said is None or isinstance(said, native.Selection):
        return said
    if isinstance(said, (list, tuple)) and (not said or not np.isscalar(said[0])):
        return "keys", [_positions(as_numpy(keys), spec) for keys in said]
    array = np.atleast_2d(as_numpy(said))
    if array.ndim != 2:
        raise UsageError(f"expected scores, positions or a mask of shape [owners, keys], found shape {list(array.shape)}")
    if array.dtype == np.bool_:
        return "keys", [np.flatnonzero(row) for row in array]
    if np.issubdtype(array.dtype, np.integer):
        return "keys", [_positions(row, spec) for row in array]
    if not np.issubdtype(array.dtype, np.floating):
        raise UsageError(f"expected scores (floating), positions (integers) or a mask (bool), found {array.dtype}")
    return "scores", np.ascontiguousarray(array, dtype=np.float64)


def _positions(keys: np.ndarray, spec: str) -> np.ndarray:
    if keys.size == 0:
        return np.empty(0, np.int64)
    if not np.issubdtype(keys.dtype, np.integer):
        raise UsageError(f"expected positions of keys as integers, found {keys.dtype}")
    return np.ascontiguousarray(keys.ravel(), dtype=np.int64)


def _forget_locals(error: BaseException | None) -> None:
    """Clears the local variables of an exception's frames, and of those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
