"""What somebody does first: a recording, a sweep, a figure. Run where nothing but the package is installed."""

import sys
from pathlib import Path

import kvscope as kvs

kvs.run("record", "draft.h5", model="draft", max_tokens=512, overwrite=True, progress=False)
table = kvs.sweep("draft.h5", ["quest", "streamingllm", "oracle-topk"], budgets=[16, 64, 256], progress=False)
kvs.figure("budget", table, metric="mass").save("mass.svg")
kvs.figure("budget", table, metric="mass").save("mass.pdf")
sizes = [Path(name).stat().st_size for name in ("mass.svg", "mass.pdf")]
if min(sizes) < 2000 or not 0.1 < table["mass_mean"].min() <= table["mass_mean"].max() <= 1:
    sys.exit(f"first_figure.py: expected a drawn figure and shares of attention, found {sizes} bytes and\n{table}")
print(f"kvscope {kvs.__version__} on Python {sys.version.split()[0]}: {sizes[0]} bytes of SVG, {sizes[1]} of PDF")
