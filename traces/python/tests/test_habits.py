"""What people do with files, arrays and errors without reading a manual."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil

import numpy as np
import pytest

pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("habits") / "draft.h5"
    kvs.run("record", path, model="draft", max_tokens=96, decode=4)
    return path


@pytest.fixture(scope="module")
def result_file(file):
    return kvs.analyze.quoka(file, budget=16, out=str(file.parent / "quoka.h5")).file


def test_traces_and_results_close(file, result_file):
    with kvs.Trace(file) as trace:
        keys = trace[0].k
        kept = keys[0, :4]
        assert not trace.closed
    assert trace.closed and kept.shape[0] == 4
    for read in (lambda: keys[0], lambda: trace.tokens, lambda: trace[0].attention(0, [3])):
        with pytest.raises(kvs.UsageError, match="draft.h5 is closed: open it again"):
            read()
    trace.close()  # again is nothing
    with pytest.raises(kvs.UsageError, match="is closed"), trace:
        pass
    with kvs.open(result_file) as result:
        name = next(iter(result.arrays))
        result.read(name)
    with pytest.raises(kvs.UsageError, match="is closed"):
        result.read(name)
    with pytest.raises(kvs.UsageError, match="is closed"):
        _ = result.rows


def test_layers_are_indexed_as_in_a_list(file):
    trace = kvs.Trace(file)
    assert trace[-1].index == trace.n_layers - 1
    assert [layer.index for layer in trace[1:]] == list(range(1, trace.n_layers))
    assert [layer.index for layer in trace[::-1]] == list(range(trace.n_layers))[::-1]
    assert trace[np.int64(1)].index == 1
    with pytest.raises(kvs.UsageError, match=rf"layer {trace.n_layers} is not recorded"):
        trace[trace.n_layers]
    part = file.parent / "part.h5"
    if not part.exists():
        kvs.run("record", part, model="draft", max_tokens=32, layers="1")
    some = kvs.Trace(part)
    assert [layer.index for layer in some[:]] == [1]
    with pytest.raises(kvs.UsageError, match=rf"layer -{some.n_layers} is not recorded: expected one of"):
        some[-some.n_layers]


def test_arrays_compute(file):
    layer = kvs.Trace(file)[0]
    q, k = layer.q, layer.k
    plain = np.asarray(k)
    assert np.array_equal(k * 2, plain * 2) and np.array_equal(1 - k, 1 - plain) and np.array_equal(-k, -plain)
    assert np.array_equal(k == plain, np.ones(k.shape, bool))
    assert np.array_equal(np.exp(k), np.exp(plain)) and np.array_equal(np.add.reduce(k, axis=1), np.add.reduce(plain, axis=1))
    assert np.array_equal(k.mean(axis=1), plain.mean(axis=1)) and np.mean(k) == plain.mean()
    assert k.astype("float16").dtype == np.float16 and np.array_equal(k.to_numpy(), plain)
    assert np.array_equal(k.transpose(0, 2, 1), plain.transpose(0, 2, 1)) and k.T.shape == plain.T.shape
    assert (k.size, k.nbytes, k.ndim) == (plain.size, plain.nbytes, 3)
    assert np.allclose(q[0] @ k[0].T, np.asarray(q)[0] @ plain[0].T)
    # numpy multiplies an array with its own transpose by another routine: the last bits may differ
    assert np.allclose(k @ k.transpose(0, 2, 1), plain @ plain.copy().transpose(0, 2, 1), rtol=1e-5, atol=1e-4)
    assert [head.shape for head in k] == [plain.shape[1:]] * len(k)
    for write in (lambda: k.sort(), lambda: k.fill(0)):
        with pytest.raises(AttributeError, match="read from a file and cannot be written: expected a copy"):
            write()
    with pytest.raises(kvs.UsageError, match="read from a file and cannot be written: expected a copy"):
        k += 1
    with pytest.raises(AttributeError, match="no attribute 'meen'"):
        _ = k.meen


def test_files_open_in_xarray_with_names(file, result_file):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed: xarray cannot open HDF5 files")
    with xarray.open_dataset(file, engine="h5netcdf", group="/layers/1", phony_dims="sort") as layer, kvs.Trace(file) as trace:
        assert layer.q.dims == ("q_head", "row", "dim") and layer.k.dims == ("kv_head", "token", "dim") and layer.lse.dims == ("q_head", "row")
        assert np.array_equal(layer.k.transpose("token", ...)[3], np.asarray(trace[1].k)[:, 3])
        scores = xarray.dot(layer.q[0], layer.k[0], dim="dim")  # rows and keys stay apart
        assert scores.dims == ("row", "token") and scores.shape == (100, 100)
    with xarray.open_datatree(file, engine="h5netcdf", phony_dims="sort") as tree:
        assert tree["layers/0"].coords["row"].values.tolist() == list(range(100))
        assert tree["layers/0"].ds.sel(row=slice(90, 93), q_head=2).q.shape == (4, trace.d_head)
    with xarray.open_dataset(result_file, engine="h5netcdf", phony_dims="sort") as found, kvs.Result(result_file) as result:
        ours = result.to_xarray()
        top = {name for name in (*ours.data_vars, *ours.coords) if "/" not in name}
        assert top == (set(found.data_vars) | set(found.coords)) - {"config", "summary"}
        for name in ours.data_vars:
            group, _, leaf = name.rpartition("/")
            with xarray.open_dataset(result_file, engine="h5netcdf", group=group or "/", phony_dims="sort") as part:
                plain = [[str(dim).partition("_of_")[0] for dim in array.dims] for array in (part[leaf], ours[name])]
                assert plain[0] == plain[1], name  # which of several lengths has the plain name is another matter
        assert not {name for name in found.sizes if "phony" in name}


def mean_of(array):
    return float(array.mean())


def test_traces_travel_to_other_processes(file, result_file, tmp_path):
    trace = kvs.Trace(file)
    again = pickle.loads(pickle.dumps(trace))
    assert again.uuid == trace.uuid and np.array_equal(again[0].k[0], trace[0].k[0])
    assert copy.deepcopy(trace)[1].index == 1 and copy.copy(trace[0].q).shape == trace[0].q.shape
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(mean_of, [trace[0].k, trace[1].v]) == [mean_of(trace[0].k), mean_of(trace[1].v)]
    result = pickle.loads(pickle.dumps(kvs.Result(result_file)))
    assert result.kind == "quoka"
    moved = tmp_path / "moved.h5"
    shutil.copy(file, moved)
    packed = pickle.dumps(kvs.Trace(moved))
    kvs.run("record", moved, model="draft", max_tokens=16, overwrite=True)
    with pytest.raises(kvs.InputError, match="expected the recording .* that was pickled, found .*: pickle it again"):
        pickle.loads(packed)
    moved.unlink()
    with pytest.raises(kvs.InputError, match="moved.h5"):
        pickle.loads(packed)


def test_errors_are_of_one_family():
    from kvscope_recorder import ConfigError

    for kind, also in ((kvs.UsageError, ValueError), (kvs.InputError, OSError), (kvs.CommandError, RuntimeError),
                       (kvs.SelectorError, RuntimeError), (ConfigError, RuntimeError)):
        assert issubclass(kind, kvs.Error) and issubclass(kind, also)
    with pytest.raises(kvs.Error) as caught:
        kvs.sweep("nowhere.h5", "quest", budgets=64)
    assert isinstance(caught.value, kvs.InputError) and "nowhere.h5" in str(caught.value)
    with pytest.raises(kvs.Error) as caught:
        kvs.run("record", "x.h5", model="draft", chunk=0)
    assert isinstance(caught.value, ValueError) and caught.value.found is not None
    error = kvs.CommandError("it failed", 4)
    assert pickle.loads(pickle.dumps(error)).code == 4
    said = kvs.UsageError("t.h5: layer 9: expected one of 0 to 3, found 9; see kvscope info")
    assert (said.where, said.expected, said.found) == ("t.h5", "one of 0 to 3", "9")
    silent = kvs.InputError("the disk is full")
    assert (silent.where, silent.expected, silent.found) == (None, None, None)
