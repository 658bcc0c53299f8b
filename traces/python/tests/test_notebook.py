"""The example notebook runs: from a model to a figure in ten cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("kvscope._native", reason="the native module was not built")
from conftest import SAMPLES  # noqa: E402


def test_from_a_model_to_a_figure(tmp_path, monkeypatch):
    notebook = json.loads((Path(__file__).parents[1] / "examples" / "model_to_figure.ipynb").read_text(encoding="utf-8"))
    assert len(notebook["cells"]) == 10
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODEL", str(SAMPLES / "draft"))
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)  # noqa: S102 - as a reader would
    assert (tmp_path / "mass.pdf").read_bytes().startswith(b"%PDF")
    assert 0 < names["policy"].kept < 0.9
