"""Reads a kvscope trace with h5py alone: python read_trace.py trace.h5"""
import sys

import h5py

with h5py.File(sys.argv[1], "r") as f:
    print(f.attrs["model_name"].decode(), f.attrs["status"].decode(), f.attrs["n_tokens"], "tokens")
    layer = f[f"/layers/{f['/recorded/layers'][-1]}"]
    q = layer["q"][0].astype("f4")  # query head 0: [rows, d_head]
    k = layer["k"][0].astype("f4")  # KV head 0: [n_tokens, d_head]
    last = f.attrs["rows_end"] - 1  # a row sees the keys up to its own position
    score = f.attrs["score_scale"] * k[: last + 1] @ q[-1]
    print("row", last, "looks most at token", score.argmax(), "lse", layer["lse"][0, -1])
