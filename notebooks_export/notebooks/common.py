# Cells that every notebook of kvscope begins with: versions, identity of the files, pictures, reading tensors.

# %% checks
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import h5py
import numpy as np
from IPython.display import SVG, display


def text(value):
    """Attributes are bytes in h5py, padded with zeros by the format."""
    return value.decode().rstrip("\0") if isinstance(value, bytes) else str(value)


def version_of(module):
    return tuple(int(part) for part in module.__version__.split(".")[:2])


for module, least in ((np, (1, 20)), (h5py, (3, 0))):
    assert version_of(module) >= least, f"{module.__name__} {module.__version__} is older than {least[0]}.{least[1]}"
assert sys.version_info >= (3, 8), sys.version
print("python", sys.version.split()[0], "| numpy", np.__version__, "| h5py", h5py.__version__, "| notebook by", WRITTEN_BY)


def check_file(path):
    """Opens a file of kvscope and asserts that it is the one this notebook was written about."""
    file = h5py.File(path, "r")
    expected = EXPECTED.get(path, {})
    kind = text(file.attrs["format"])
    version = text(file.attrs["version" if kind == "kvscope-result" else "schema_version"])
    assert kind in ("kvscope-result", "kvscope-trace"), f"{path}: format {kind}"
    assert version.split(".")[0] == "1", f"{path}: {kind} {version}, this notebook reads version 1"
    status = text(file.attrs["status"]) if kind == "kvscope-trace" else "complete"
    for name, wanted in expected.items():
        found = text(file.attrs[name])
        if status == "recording" or not wanted:
            continue  # uuid and hash of a partial file are not written yet
        assert found == wanted, f"{path}: {name} is {found}, the notebook was written about {wanted}"
    print(f"{path}: {kind} {version}, {status}", text(file.attrs.get("uuid", b"")))
    return file


def check_table(path):
    """The rows of a CSV or JSON result as arrays by column; asserts that it is the one this notebook was written about."""
    with open(path, newline="", encoding="utf-8") as file:
        if path.endswith(".json"):
            rows = json.load(file)["rows"]
            header = list(rows[0])
            lines = [["" if row.get(name) is None else str(row[name]) for name in header] for row in rows]
        else:
            header, *lines = list(csv.reader(file))
    columns = {}
    for name, cells in zip(header, zip(*lines)):
        try:
            columns[name] = np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            columns[name] = np.array(cells, dtype=object)
    wanted = EXPECTED.get(path, {}).get("config_hash", "")
    found = lines[0][header.index("config_hash")]
    assert not wanted or found == wanted, f"{path}: config_hash is {found}, the notebook was written about {wanted}"
    print(f"{path}: {len(lines)} rows")
    return columns


def rows_of(file):
    """The arrays rows/* of a result file; text columns are numbers of the summary's categories."""
    columns = {name: file["rows"][name][()] for name in file["rows"]}
    for name, words in json.loads(text(file["summary"][()]))["categories"].items():
        columns[name] = np.array(words, dtype=object)[columns[name]]
    return columns


def task_of(kind):
    """"simulate-passkey" is task passkey."""
    return kind.partition("simulate-")[2] or kind


def kvscope_figure(kind, path, **options):
    """Shows what `kvscope figure` draws of a result; KVSCOPE names the program where it is not on the PATH."""
    words = ["figure", kind, path, *(f"--{name}={value}" for name, value in options.items())]
    print("kvscope", *words)
    program = os.environ.get("KVSCOPE") or shutil.which("kvscope")
    if program is None:
        print("kvscope is not on the PATH: this command draws the figure")
        return
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([program, *words, "--format", "svg", "--out", folder], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr.strip())
        for file in pathlib.Path(folder).glob("*.svg"):
            display(SVG(filename=str(file)))


results = {}  # open files by kind
paths = {}  # of all results, by task
rows_of_results = {}  # their rows, for results that are tables
for path in RESULTS:
    if path.endswith((".csv", ".json")):
        table = check_table(path)
        rows_of_results[f"simulate-{table['task'][0]}"] = table
        paths[table["task"][0]] = path
        continue
    file = check_file(path)
    results[text(file.attrs["kind"])] = file
    paths[task_of(text(file.attrs["kind"]))] = path
    if "rows" in file:
        rows_of_results[text(file.attrs["kind"])] = rows_of(file)

traces = []
for path in TRACES:
    if os.path.exists(path):
        traces.append(check_file(path))
    else:
        print(f"{path}: not here; what needs the trace is skipped")
        traces.append(None)

for kind, file in results.items():
    uuids = [text(uuid) for uuid in file.attrs["trace_uuids"]] if "trace_uuids" in file.attrs else []
    for trace, uuid in zip(traces, uuids):
        if trace is None:
            continue
        own = text(trace.attrs["uuid"])
        if text(trace.attrs["status"]) == "recording":
            print(f"{trace.filename}: still being recorded or cut short, its identity cannot be checked")
        else:
            assert own == uuid, f"result {kind} is about trace {uuid}, found {own}"
    print(f"result {kind}: {text(file.attrs['command_line'])}")


# %% reading
def bf16_view(bits):
    """uint16 bit patterns of bfloat16 as float32: the same number has the bits in its upper half."""
    return (np.asarray(bits, dtype=np.uint32) << 16).view(np.float32)


def read_head(dataset, slot):
    """dataset[slot] of a [head, row, dim] tensor as float32. bf16 is read as stored and widened here, which is some 25 times
    faster than HDF5's own conversion."""
    if text(dataset.attrs.get("dtype_logical", b"")) != "bf16":
        return dataset[slot].astype(np.float32)
    bits = np.empty(dataset.shape[1:], dtype=np.uint16)
    space = dataset.id.get_space()
    space.select_hyperslab((slot,) + (0,) * bits.ndim, (1,) + bits.shape)
    dataset.id.read(h5py.h5s.create_simple(bits.shape), space, bits, dataset.id.get_type())
    return bf16_view(bits)


class Trace:
    """What a notebook needs of a trace; of a partial file only the calls that are whole."""

    def __init__(self, file):
        self.file = file
        self.layers = list(file["/recorded/layers"][()])
        self.q_heads = list(file["/recorded/q_heads"][()])
        self.n_q = int(file.attrs["n_q"])
        alike = [int(file.attrs["n_kv"]), float(file.attrs["score_scale"]), float(file.attrs.get("score_cap", 0.0))]
        self.shapes = {layer: alike for layer in self.layers}  # n_kv, scale and cap of each layer
        if "/model/layer_shapes" in file:
            heads, scores = file["/model/layer_shapes"][()], file["/model/layer_scores"][()]
            self.shapes = {layer: [int(heads[layer, 0]), *map(float, scores[layer])] for layer in self.layers}
        self.windows = file["/model/windows"][()] if "/model/windows" in file else np.zeros(int(file.attrs["n_layers"]), int)
        self.rows_begin = int(file.attrs["rows_begin"])
        self.n_tokens = int(file.attrs["n_tokens"])
        if text(file.attrs["status"]) == "recording":
            n_calls = int(file["/progress"][0])
            self.n_tokens = int(file["/units"][n_calls - 1, 1]) if n_calls > 0 else 0
            print(f"{file.filename}: {n_calls} whole calls, {self.n_tokens} tokens")
        self.rows_end = min(int(file.attrs["rows_end"]), self.n_tokens)
        self.n_prompt = min(int(file.attrs["n_prompt"]), self.n_tokens)
        self._cache = {}

    def _read(self, name, layer, slot):
        key = (name, layer, slot)
        if key not in self._cache:
            if len(self._cache) > 8:
                self._cache.clear()  # a few heads at a time: traces can be larger than memory
            self._cache[key] = read_head(self.file[f"/layers/{layer}/{name}"], slot)
        return self._cache[key]

    def q(self, layer, q_head):
        """[rows, d_head]; row i is position rows_begin + i."""
        return self._read("q", layer, self.q_heads.index(q_head))[: self.rows_end - self.rows_begin]

    def k(self, layer, q_head):
        """[tokens, d_head]: the keys that this query head sees."""
        kv_heads = sorted({head // self.group(layer) for head in self.q_heads})
        return self._read("k", layer, kv_heads.index(q_head // self.group(layer)))[: self.n_tokens]

    def group(self, layer):
        """Query heads per KV head."""
        return self.n_q // self.shapes[layer][0]

    def has_row(self, pos):
        return self.rows_begin <= pos < self.rows_end

    def scores(self, layer, q_head, pos, is_capped=True):
        """First visible key, and the scaled scores of the visible ones in float64."""
        window = int(self.windows[layer])
        first = max(0, pos + 1 - window) if window > 0 else 0
        q = self.q(layer, q_head)[pos - self.rows_begin].astype(np.float64)
        _, scale, cap = self.shapes[layer]
        scores = scale * (self.k(layer, q_head)[first : pos + 1].astype(np.float64) @ q)
        return first, cap * np.tanh(scores / cap) if cap and is_capped else scores

    def attention(self, layer, q_head, pos):
        """First visible key, and the softmax over the visible ones."""
        first, scores = self.scores(layer, q_head, pos)
        weights = np.exp(scores - scores.max())
        return first, weights / weights.sum()


traces = [Trace(file) if file is not None else None for file in traces]
n_checked = 0


def check_close(name, ours, program, rtol=1e-5, atol=1e-6):
    """Asserts that a number recomputed here equals the program's."""
    global n_checked
    if np.size(ours) == 0:
        return
    np.testing.assert_allclose(ours, program, rtol=rtol, atol=atol, err_msg=name)
    n_checked += 1
    worst = float(np.max(np.abs(np.asarray(ours, float) - np.asarray(program, float))))
    print(f"equal: {name} ({np.size(ours)} numbers, largest difference {worst:.1e})")


def config_of(file):
    return json.loads(text(file["config"][()]))


def summary_of(file):
    return json.loads(text(file["summary"][()]))
