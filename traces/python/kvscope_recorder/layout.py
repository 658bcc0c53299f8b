"""Lays a whole trace file out with h5py before its first tensor is written: every dataset at its place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from h5py import h5a, h5d, h5p, h5s, h5t

from .dimensions import Dimensions
from .schema import FORMAT, ArraySpec, TraceInfo, features_of, trace_arrays

MAX_TEXT_BYTES = 16384  # longer provenance is cut: HDF5 limits attributes


@dataclass
class Layout:
    """Where the arrays of a file lie: byte offsets of their contiguous data."""

    arrays: list[ArraySpec]
    offsets: dict[str, int]

    def at(self, path: str) -> int:
        return self.offsets[path]


def _half(exponent_bits: int, bias: int) -> h5t.TypeFloatID:
    mantissa_bits = 15 - exponent_bits
    kind = h5t.IEEE_F32LE.copy()
    kind.set_fields(15, mantissa_bits, exponent_bits, 0, mantissa_bits)
    kind.set_precision(16)
    kind.set_ebias(bias)
    kind.set_size(2)
    return kind


def _file_type(name: str) -> h5t.TypeID:
    if name == "f16":
        return _half(5, 15)
    if name == "bf16":
        return _half(8, 127)
    return {"f32": h5t.IEEE_F32LE, "i32": h5t.STD_I32LE, "i64": h5t.STD_I64LE, "u64": h5t.STD_U64LE, "u8": h5t.STD_U8LE}[name]


def _set_text(node: h5py.HLObject, name: str, text: str, capacity: int = 1) -> None:
    """A fixed-length UTF-8 attribute padded with zero bytes; rewrites in place if it exists."""
    value = text.encode("utf-8", "replace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore").encode()
    key = name.encode()
    if h5a.exists(node.id, key):
        attribute = h5a.open(node.id, key)
        kind = attribute.get_type()
    else:
        kind = h5t.C_S1.copy()
        kind.set_size(max(len(value), capacity))
        kind.set_cset(h5t.CSET_UTF8)
        kind.set_strpad(h5t.STR_NULLPAD)
        attribute = h5a.create(node.id, key, kind, h5s.create(h5s.SCALAR))
    attribute.write(np.array(value, dtype=f"S{kind.get_size()}"), mtype=kind)


def _set_number(node: h5py.HLObject, name: str, value: int | float) -> None:
    kind = h5t.IEEE_F64LE if isinstance(value, float) else h5t.STD_I64LE
    attribute = h5a.create(node.id, name.encode(), kind, h5s.create(h5s.SCALAR))
    attribute.write(np.array(value, dtype="f8" if isinstance(value, float) else "i8"))


def _create(named: Dimensions, path: str, kind: str, dims: tuple[int, ...], axes: str, units: str) -> h5py.Dataset:
    """A contiguous dataset with its place in the file, not filled, without times. Its axes are named unless it is a table of checksums."""
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    creation = h5p.create(h5p.DATASET_CREATE)
    creation.set_layout(h5d.CONTIGUOUS)
    creation.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5d.FILL_TIME_NEVER)
    creation.set_obj_track_times(False)
    space = h5s.create_simple(dims)
    dataset = h5py.Dataset(h5d.create(named.file.id, path.encode(), _file_type(kind), space, creation, lcpl=links))
    for name, text in (
        ("axes", axes),
        ("dtype_logical", kind),
        ("units", units),
        ("encoding-type", "array"),
        ("encoding-version", "0.2.0"),
    ):
        _set_text(dataset, name, text)
    if not path.startswith("/checksums/"):
        named.name(path, axes, dims)
    return dataset


def _offset(dataset: h5py.Dataset) -> int:
    return dataset.id.get_offset() or 0  # an empty array has no place, and nothing is written to it


def _write_header(file: h5py.File, info: TraceInfo) -> None:
    texts = {
        "format": FORMAT,
        "schema_version": info.schema_version,
        "features": ",".join(features_of(info)),
        "seed": str(info.seed),
        "dtype": info.dtype,
        "score_stage": "post-rope",
        "mask": "causal",
    }
    provenance = ("model_name", "model_family", "rope_kind", "created", "writer", "command_line", "host", "text_source")
    texts |= {name: getattr(info, name) for name in (*provenance, "tokenizer_hash")}
    for name, text in texts.items():
        _set_text(file, name, text)
    for name, capacity in (("status", 16), ("uuid", 36), ("content_hash", 40)):
        _set_text(file, name, getattr(info, name), capacity)
    for name in ("n_layers", "n_q", "n_kv", "d_head", "d_model", "n_vocab", "n_tokens", "n_prompt", "chunk"):
        _set_number(file, name, int(getattr(info, name)))
    _set_number(file, "rows_begin", info.rows[0])
    _set_number(file, "rows_end", info.rows[1])
    _set_number(file, "attn_topk", info.capture.attn_topk)
    _set_number(file, "page_size", info.capture.page_size)
    _set_number(file, "token_text_capacity", info.token_text_capacity)
    _set_number(file, "qk_norm", int(info.qk_norm))
    if info.schema_version != "1.0":
        _set_number(file, "n_experts_per_token", info.n_experts_per_token)
    if info.index is not None:
        index = info.index
        names = ("index_heads", "index_key_heads", "index_width", "index_gates", "index_lists", "index_selected", "index_block")
        for name, value in zip(names, index[1:]):
            _set_number(file, name, int(value))
    _set_number(file, "score_scale", float(np.float32(info.score_scale)))
    if info.score_cap:
        _set_number(file, "score_cap", float(np.float32(info.score_cap)))
    _set_number(file, "rope_theta", float(info.rope_theta))
    _set_number(file, "rope_factor", float(info.rope_factor))


def _write_small_arrays(named: Dimensions, info: TraceInfo) -> None:
    def put(path: str, kind: str, values: np.ndarray, axes: str, units: str) -> h5py.Dataset:
        dataset = _create(named, path, kind, values.shape, axes, units)
        if values.size:
            dataset[...] = values
        return dataset

    def indices(path: str, values: tuple[int, ...], axes: str, units: str) -> None:
        put(path, "i64", np.array(values, dtype="i8"), axes, units)

    indices("/recorded/layers", info.layers, "slot", "layer")
    indices("/recorded/q_heads", info.q_heads, "slot", "query head")
    indices("/recorded/kv_heads", info.kv_heads, "slot", "KV head")
    indices("/q_head", info.q_heads, "q_head", "query head")  # these three are coordinates, for other programs
    indices("/kv_head", info.kv_heads, "kv_head", "KV head")
    indices("/row", tuple(range(*info.rows)), "row", "token")
    if info.index is not None:
        indices("/recorded/index_layers", info.index.layers, "slot", "layer")
    units = put("/units", "i64", np.array(info.units, dtype="i8").reshape(-1, 3), "unit,field", "token")
    _set_text(units, "fields", "begin,end,is_decode")
    if info.model_config:
        put("/model/config_json", "u8", np.frombuffer(info.model_config, dtype="u1"), "byte", "1")
    if info.windows:
        indices("/model/windows", info.windows, "layer", "token")
    if info.rotation is not None:
        put("/model/rope_frequencies", "f32", info.rotation.frequencies, "layer,pair", "radian/token")
        put("/model/rope_amplitudes", "f32", info.rotation.amplitudes, "layer", "1")
    if info.sinks is not None:
        put("/model/sinks", "f32", info.sinks, "layer,q_head", "nat")
    if info.layer_kinds:
        kinds = put("/model/layer_kinds", "i64", np.array(info.layer_kinds, dtype="i8"), "layer,field", "1")
        _set_text(kinds, "fields", "has_rope,n_experts")


def create_layout(path: Path, info: TraceInfo) -> Layout:
    """Makes the file at `path` (which must not exist) and returns where its arrays lie."""
    arrays = trace_arrays(info)
    offsets: dict[str, int] = {}
    n_units = len(info.units)
    # The oldest file format: HDF5 1.8 and later read it, and it keeps no times of groups.
    with h5py.File(path, "x", libver=("earliest", "v110")) as file:
        _write_header(file, info)
        named = Dimensions(file)
        _write_small_arrays(named, info)

        def place(name: str, kind: str, dims: tuple[int, ...], axes: str, units: str) -> h5py.Dataset:
            dataset = _create(named, name, kind, dims, axes, units)
            offsets[name] = _offset(dataset)
            return dataset

        for spec in arrays:
            heads = (spec.n_heads,) if spec.has_heads else ()
            place(spec.checksum_path, "u64", (n_units, *heads), "unit,head" if heads else "unit", "xxh3-64")
        if info.token_text_capacity > 0:
            place("/token_bytes", "u8", (info.token_text_capacity,), "byte", "1")
            place("/token_offsets", "i64", (info.n_tokens + 1,), "edge", "byte")
            place("/checksums/token_text", "u64", (n_units,), "unit", "xxh3-64")
        _set_text(file["/checksums"], "algorithm", "xxh3-64")
        place("/progress", "i64", (1,), "one", "unit")[...] = 0
        for spec in arrays:
            dataset = place(spec.path, spec.type, spec.dims, spec.axes, spec.units)
            if spec.type != "i32":
                _set_number(dataset, "n_nan", 0)  # a writer refuses NaN and Inf, so there are none
                _set_number(dataset, "n_inf", 0)
        named.write()
    return Layout(arrays, offsets)


def seal(path: Path, info: TraceInfo) -> None:
    """Rewrites status, uuid and content hash in place; no other byte of the metadata moves."""
    with h5py.File(path, "r+") as file:
        for name in ("uuid", "content_hash", "status"):
            _set_text(file, name, getattr(info, name))
