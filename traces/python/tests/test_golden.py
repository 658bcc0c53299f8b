"""Every golden family: the recorder's file against the float64 reference and against the native recorder's file."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch
from conftest import GOLDEN, IS_FIVE, array, golden_folders, load

from kvscope_recorder import record

TOLERANCE = 2e-4


def reference_lse(golden: h5py.File, layer: int, scale: float, cap: float) -> np.ndarray:
    """score - log(probability) of each row's own key: with sinks, the sink's share is in it."""
    q, k, attn = (golden[f"/layers/{layer}/{name}"][...].astype("f8") for name in ("q", "k", "attn"))
    group = q.shape[0] // k.shape[0]
    rows = np.arange(q.shape[1])
    score = scale * np.einsum("htd,htd->ht", q, np.repeat(k, group, axis=0))
    score = cap * np.tanh(score / cap) if cap else score
    return score - np.log(attn[:, rows, rows])


@pytest.fixture(scope="module", params=golden_folders())
def recorded(request, tmp_path_factory):
    """(family, path of the trace of its golden tokens)"""
    name = request.param
    path = tmp_path_factory.mktemp(name) / "trace.h5"
    with h5py.File(GOLDEN / name / "golden.h5") as golden:
        ids = torch.from_numpy(golden["/tokens"][...].astype("i8"))[None]
    if name.endswith("mxfp4") and not IS_FIVE:
        pytest.skip("transformers 4 computes packed MXFP4 weights on an accelerator only")
    try:
        # transformers 4 takes sdpa for Gemma 2, too, which leaves its soft caps out.
        caps = {} if IS_FIVE or not name.startswith("gemma2") else {"attn_implementation": "eager"}
        model = load(GOLDEN / name, dtype=torch.float32, **caps)
    except (ImportError, ValueError) as error:  # weights packed in a way that needs an accelerator
        pytest.skip(f"transformers cannot load {name} here: {error}")
    with record(model, path, capture="attn,logits"), torch.no_grad():
        model(ids)
    return name, path


def test_equals_the_reference(recorded):
    name, path = recorded
    with h5py.File(GOLDEN / name / "golden.h5") as golden, h5py.File(path) as trace:
        assert trace.attrs["status"] == b"complete" and trace.attrs["dtype"] == b"f32"
        np.testing.assert_array_equal(trace["/tokens"], golden["/tokens"])
        np.testing.assert_allclose(trace["/logits"], golden["/logits"], atol=2e-3)
        assert len(golden["/layers"]) == len(trace["/recorded/layers"])
        for layer in golden["/layers"]:
            for what in ("q", "k", "v", "attn"):
                at = f"/layers/{layer}/{what}"
                np.testing.assert_allclose(array(trace, at), golden[at], atol=TOLERANCE, rtol=0, err_msg=at)
            lse = reference_lse(golden, int(layer), trace.attrs["score_scale"], trace.attrs.get("score_cap", 0.0))
            np.testing.assert_allclose(trace[f"/layers/{layer}/lse"], lse, atol=TOLERANCE, rtol=1e-5)


def test_verify_passes(recorded, kvscope):
    name, path = recorded
    with h5py.File(path) as trace:
        has_sinks = b"sinks" in trace.attrs["features"]
    info = kvscope("info", path)
    if has_sinks and "unknown feature 'sinks'" in info.stdout + info.stderr:
        pytest.skip("this kvscope reads schema version 1.0, without attention sinks")
    kvscope("verify", path)


def test_equals_the_native_recorder(recorded, kvscope, tmp_path, write_ids):
    name, path = recorded
    native_path = tmp_path / "native.h5"
    with h5py.File(path) as trace:
        ids = write_ids(torch.from_numpy(trace["/tokens"][...]))
        result = kvscope("record", "--model", GOLDEN / name, "--tokens", ids, "-o", native_path, ok=False)
        if result.returncode != 0 and "model_type" in result.stderr:
            pytest.skip(f"this kvscope does not run {name}")
        assert result.returncode == 0, result.stderr
        with h5py.File(native_path) as native:
            for attribute in ("n_layers", "n_q", "n_kv", "d_head", "d_model", "n_vocab", "score_scale", "n_tokens",
                              "n_prompt", "model_family", "rope_kind", "rope_theta", "rope_factor", "qk_norm"):
                assert trace.attrs[attribute] == native.attrs[attribute], attribute
            assert set(native.attrs) - set(trace.attrs) <= {"n_experts_per_token", "model_hash"}  # 0, and not known
            for optional in ("/model/sinks", "/model/layer_kinds"):
                if optional in trace and optional in native:
                    np.testing.assert_array_equal(trace[optional], native[optional])
            for numbers in ("/model/rope_frequencies", "/model/rope_amplitudes"):
                np.testing.assert_allclose(trace[numbers], native[numbers], rtol=1e-6)
            np.testing.assert_array_equal(trace["/model/windows"], native["/model/windows"])
            np.testing.assert_array_equal(trace["/model/config_json"], native["/model/config_json"])
            scales = [{name: node.shape for name, node in file.items() if node.attrs.get("CLASS") == b"DIMENSION_SCALE"}
                      for file in (trace, native)]
            both = set(scales[0]) & set(scales[1])
            assert both >= {"q_head", "kv_head", "row", "token", "dim", "unit", "layer"}
            assert [scales[0][name] for name in both] == [scales[1][name] for name in both]
            for layer in native["/recorded/layers"]:
                for what in ("q", "k", "v", "lse"):
                    at = f"/layers/{layer}/{what}"
                    assert trace[at].shape == native[at].shape and trace[at].dtype == native[at].dtype
                    ours, theirs = ({name: value for name, value in file[at].attrs.items() if name != "DIMENSION_LIST"}
                                    for file in (trace, native))
                    assert ours == theirs
                    dims = [[dim[0].name for dim in file[at].dims] for file in (trace, native)]
                    assert dims[0] == dims[1] and f"/{dims[0][-1][1:]}" in trace
                    np.testing.assert_allclose(array(trace, at), array(native, at), atol=TOLERANCE, rtol=1e-5, err_msg=at)
