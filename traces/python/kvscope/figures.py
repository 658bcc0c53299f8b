"""Figures of the command line, inline in notebooks and saved as vectors."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from . import signatures
from .commands import run


class Figure:
    """A drawn figure: shows itself in notebooks; save("mass.pdf") writes .svg, .pdf, .png or .tex."""

    def __init__(self, name: str, results: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.name, self._results, self._options = name, results, options
        with tempfile.TemporaryDirectory(prefix="kvscope-") as folder:
            self._files = self._written(Path(folder), "svg")
            self.svg: str = (Path(folder) / f"{name}.svg").read_text(encoding="utf-8")

    def _written(self, folder: Path, ending: str) -> Path:
        inputs = [_file_of(result, folder / f"input-{at}") for at, result in enumerate(self._results)]
        out = folder / f"{self.name}.{ending}"
        run("figure", self.name, *inputs, out=str(out), overwrite=True, progress=False, **self._options)
        return out

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the figure; the ending says the format. An existing file is replaced when the new one is whole."""
        target = Path(path)
        with tempfile.TemporaryDirectory(prefix="kvscope-", dir=target.parent) as folder:
            written = self._written(Path(folder), target.suffix.lstrip(".") or "svg")
            os.replace(written, target)
        return target

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<kvscope figure {self.name}>"


def _file_of(result: Any, stem: Path) -> str:
    """The file that a result lies in; a DataFrame is written as a table."""
    if hasattr(result, "to_csv"):
        target = stem.with_suffix(".csv")
        result.to_csv(target, index=False)
        return str(target)
    return os.fspath(result)


def figure(name: str, *results: Any, **options: Any) -> Figure:
    """Draws a figure (kvscope figures lists them) from results: files, kvs.open results, analyses with out=, DataFrames.

    options  those of kvscope figure: metric, selector, budget, layers, heads, phase, venue, theme, width, height, title, ...
    """
    return Figure(name, results, options)


signatures.describe(figure, signatures.table()["figure"])

__all__ = ["Figure", "figure"]
