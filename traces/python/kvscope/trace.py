"""Recorded traces with lazy arrays: a slice reads what it covers, through the readers of the analyses."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ._load import native
from .errors import InputError, UsageError
from .opened import OpenedFile

if TYPE_CHECKING:
    from xarray import DataArray

    from .result import Result

#: Axes, unit and meaning of each array of a layer.
ARRAYS = {
    "q": (("q_head", "pos", "channel"), "1", "queries as they enter the dot product (after norm and RoPE)"),
    "k": (("kv_head", "pos", "channel"), "1", "keys as they enter the dot product (after norm and RoPE)"),
    "v": (("kv_head", "pos", "channel"), "1", "values"),
    "lse": (("q_head", "pos"), "nat", "log-sum-exp of the scaled visible scores"),
}


#: Methods of arrays that write into them: of one that is read from a file they would change a copy that nobody sees.
_IN_PLACE = {"fill", "itemset", "partition", "put", "resize", "setfield", "setflags", "sort"}


class LazyArray(np.lib.mixins.NDArrayOperatorsMixin):
    """One tensor of one layer, indexed by true heads and absolute positions; NumPy indexing reads what it needs.

    array[3] is head 3; array[3, 100:200] a range of positions; np.asarray(array) all of it; f32 whatever is stored.
    Arithmetic, NumPy's functions and an array's own methods (mean, astype, reshape, ...) read all of it, each time anew:
    keep `k = array[:]` where several follow.
    """

    def __init__(self, trace: Trace, name: str, layer: int) -> None:
        self._trace, self.name, self.layer = trace, name, layer
        axes, self.units, self.long_name = ARRAYS[name]
        self.dims = axes
        self.heads = trace.q_heads if axes[0] == "q_head" else list(trace._opened().kv_heads_of(layer))
        self.first = trace.rows[0] if axes[0] == "q_head" else 0
        self.end = trace.rows[1] if axes[0] == "q_head" else trace.n_tokens

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.heads), self.end - self.first) + ((self._trace._opened().shape_of(self.layer)[1],) if "channel" in self.dims else ())

    @property
    def ndim(self) -> int:
        return len(self.shape)

    dtype = np.dtype("float32")

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of all of it as f32, in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[head] for head in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyArray, (self._trace, self.name, self.layer)

    def _positions(self, index: Any) -> tuple[int, int, Any]:
        """The range to read, and what to take of it. Indices count from the first recorded position."""
        n = self.end - self.first
        if isinstance(index, slice):
            begin, stop, step = index.indices(n)
            if step == 1:
                return self.first + begin, self.first + max(begin, stop), slice(None)
        if isinstance(index, (int, np.integer)):
            at = int(index) + (n if index < 0 else 0)
            if not 0 <= at < n:
                raise IndexError(f"{self.name}: position {index}: expected one of {n}")
            return self.first + at, self.first + at + 1, 0
        return self.first, self.end, index

    def __getitem__(self, key: Any) -> np.ndarray:
        key = key if isinstance(key, tuple) else (key,)
        if key and key[0] is Ellipsis:
            return np.asarray(self)[key]
        heads, rest = (key[0] if key else slice(None)), key[1:]
        begin, end, taken = self._positions(rest[0] if rest else slice(None))
        chosen = np.asarray(self.heads)[heads]
        if chosen.ndim == 0:
            return self._read(int(chosen), begin, end)[(taken, *rest[1:])]
        if len(chosen) == 0:
            return np.empty((0, *self.shape[1:]), np.float32)
        return np.stack([self._read(int(head), begin, end)[(taken, *rest[1:])] for head in chosen])

    def _read(self, head: int, begin: int, end: int) -> np.ndarray:
        return getattr(self._trace._opened(), f"read_{self.name}")(self.layer, head, begin, end)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"{self.name} of layer {self.layer} is read from a file: expected copy=None or copy=True")
        out = self[:]
        return out if dtype is None else out.astype(dtype, copy=False)

    def to_numpy(self) -> np.ndarray:
        """All of it, read now."""
        return self[:]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(one, LazyArray) for one in options.get("out", ())):
            raise UsageError(f"{self.name} of layer {self.layer} is read from a file and cannot be written: expected a copy, as array[:]")
        arrays = [np.asarray(one) if isinstance(one, LazyArray) else one for one in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __getattr__(self, name: str) -> Any:
        if name in _IN_PLACE:
            raise AttributeError(f"{name}: {self.name} is read from a file and cannot be written: expected a copy, as array[:].{name}(...)")
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}: np.asarray(...) is the array")
        return getattr(np.asarray(self), name)

    def __dlpack__(self, **options: Any) -> Any:
        return np.asarray(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def to_xarray(self) -> DataArray:
        """An xarray.DataArray with coordinates, unit and meaning."""
        import xarray

        coordinates = {self.dims[0]: self.heads, "pos": np.arange(self.first, self.end)}
        return xarray.DataArray(np.asarray(self), dims=self.dims, coords=coordinates, name=self.name,
                                attrs={"units": self.units, "long_name": self.long_name, "layer": self.layer})

    def __repr__(self) -> str:
        return f"<{self.name} of layer {self.layer}: {list(self.shape)} ({', '.join(self.dims)}), {self.units}: {self.long_name}>"


class Layer:
    """One recorded layer: q, k, v, lse (LazyArray) and rows of its attention."""

    def __init__(self, trace: Trace, index: int) -> None:
        self._trace, self.index = trace, index
        self.window: int | None = trace._opened().info.window_of(index)
        #: KV heads of the model, channels, how scores follow from q.k, and the layer whose keys it attends to: an earlier one
        #: where layers share them.
        self.n_kv, self.d_head, self.score_scale, self.score_cap, keys_of = trace._opened().shape_of(index)
        self.keys_of: int = index if keys_of < 0 else keys_of

    def __reduce__(self) -> tuple[Any, ...]:
        return Layer, (self._trace, self.index)

    @property
    def q(self) -> LazyArray:
        """Queries [q_head, pos, channel]."""
        return LazyArray(self._trace, "q", self.index)

    @property
    def k(self) -> LazyArray:
        """Keys [kv_head, pos, channel]."""
        return LazyArray(self._trace, "k", self.index)

    @property
    def v(self) -> LazyArray:
        """Values [kv_head, pos, channel]."""
        return LazyArray(self._trace, "v", self.index)

    @property
    def lse(self) -> LazyArray:
        """Log-sum-exp [q_head, pos]."""
        return LazyArray(self._trace, "lse", self.index)

    def attention(self, q_head: int, positions: Any) -> np.ndarray:
        """Exact attention of queries at `positions` (one or several), [n, n_tokens] f64; 0 where a query does not look.

        Made from q and k; a row sums to 1, less where an attention sink takes a part.
        """
        wanted = np.atleast_1d(np.asarray(positions, dtype=np.int64))
        rows = self._trace._opened().attention_rows(self.index, int(q_head), wanted.tolist())
        return rows[0] if np.ndim(positions) == 0 else rows

    def __repr__(self) -> str:
        kind = "full attention" if self.window is None else f"a window of {self.window}"
        return f"<layer {self.index} of {self._trace.name}: {kind}>"


class Trace(OpenedFile):
    """A recorded trace, open for reading. trace[4].k[0, 100:200] are keys of layer 4, KV head 0.

    trace[-1] is the model's last layer, trace[0:8] a list of those of the first eight that are recorded. `with kvs.Trace(path)
    as trace:` closes the file; without it the file closes when nobody refers to the trace. Pickled and copied traces open the
    same path again (multiprocessing, joblib, dask), and refuse a file that is another recording by then.
    """

    n_layers: int
    n_q: int
    n_kv: int
    d_head: int
    n_tokens: int
    n_prompt: int
    score_scale: float
    score_cap: float
    model: str
    family: str
    uuid: str
    writer: str
    created: str
    text_source: str
    status: str
    file_bytes: int
    warnings: list[str]

    def __init__(self, path: str | os.PathLike[str], allow_partial: bool = False) -> None:
        self.path = os.fspath(path)
        self.name = os.path.basename(self.path)
        self._allow_partial = allow_partial
        self._file = native.Trace.open(os.fsencode(self.path), allow_partial)
        info = self._file.info
        self.layers: list[int] = info.layers
        self.q_heads: list[int] = info.q_heads
        self.kv_heads: list[int] = info.kv_heads
        self.rows: tuple[int, int] = info.rows
        self.model, self.family = info.model_name, info.model_family
        for field in Trace.__annotations__.keys() - {"model", "family"}:
            setattr(self, field, getattr(info if hasattr(info, field) else self._file, field))

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_same, (os.path.abspath(self.path), self._allow_partial, self.uuid)

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.n_q // self.n_kv

    @cached_property
    def tokens(self) -> np.ndarray:
        """Token ids, [n_tokens]."""
        return self._opened().tokens()

    @cached_property
    def token_texts(self) -> list[str]:
        """The text of each token; empty if the recording had no tokenizer."""
        return [text.decode("utf-8", "replace") for text in self._opened().token_bytes()]

    @property
    def text(self) -> str:
        return b"".join(self._opened().token_bytes()).decode("utf-8", "replace")

    def logits(self, begin: int | None = None, end: int | None = None) -> np.ndarray:
        """The model's logits at positions [begin, end) of the recorded rows (all of them by default), [n, n_vocab] f32, in nats.

        They are stored by `capture="logits"`. Raises UsageError for rows that are not recorded and for a trace without logits.
        """
        return self._opened().read_logits(self.rows[0] if begin is None else begin, self.rows[1] if end is None else end)

    @property
    def info(self) -> dict[str, Any]:
        """Everything that kvscope info knows about the file."""
        from .commands import run

        return run("info", self.path, json=True).json

    @overload
    def __getitem__(self, layer: int) -> Layer: ...
    @overload
    def __getitem__(self, layer: slice) -> list[Layer]: ...
    def __getitem__(self, layer: int | slice) -> Layer | list[Layer]:
        if isinstance(layer, slice):
            return [Layer(self, index) for index in range(*layer.indices(self.n_layers)) if index in self.layers]
        index = operator.index(layer)
        index += self.n_layers if index < 0 else 0
        if index not in self.layers:
            raise UsageError(f"{self.name}: layer {layer} is not recorded: expected one of {self.layers}")
        return Layer(self, index)

    def __iter__(self) -> Iterator[Layer]:
        return (self[layer] for layer in self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def _facts(self) -> dict[str, str]:
        decoded = self.n_tokens - self.n_prompt
        sizes = dict.fromkeys(f"{layer.n_kv} KV heads, {layer.d_head} channels" for layer in self)
        part = "" if len(self.layers) == self.n_layers else f", recorded {self.layers}"
        return {
            "model": f"{self.model} ({self.family})",
            "layers": f"{self.n_layers}{part}",
            "heads": f"{self.n_q} query heads, " + " or ".join(sizes),
            "tokens": f"{self.n_prompt} of the prompt" + (f" + {decoded} decoded" if decoded else ""),
            "text": self.text_source or "-",
            "file": f"{self.path}, {self.file_bytes / 2**20:.1f} MiB, {self.status}",
            "written": f"{self.created} by {self.writer}",
        }

    def __repr__(self) -> str:
        facts = self._facts()
        return f"<kvscope trace {self.name}: {facts['model']}, {facts['layers']} layers, {facts['heads']}, {facts['tokens']}>"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(str(value))}</td></tr>"
                       for name, value in self._facts().items())
        start = escape(self.text[:160].replace("\n", " "))
        return f"<table>{rows}</table>" + (f"<p><i>{start} ...</i></p>" if start else "")


def _open_same(path: str, allow_partial: bool, uuid: str) -> Trace:
    """The trace that was pickled."""
    trace = Trace(path, allow_partial)
    if trace.uuid != uuid:
        raise InputError(f"{path}: expected the recording {uuid} that was pickled, found {trace.uuid}: pickle it again")
    return trace


def open(path: str | os.PathLike[str], *, allow_partial: bool = False) -> Trace | Result:  # noqa: A001 - kvs.open
    """Opens a trace (Trace), or a result of an analysis, sweep or simulation (Result): told apart by what the file holds.

    allow_partial  also a recording that did not end

    Trace(path) and Result(path) say which, to those who know and to type checkers.
    """
    from .result import Result, is_result

    return Result(path) if is_result(path) else Trace(path, allow_partial)
