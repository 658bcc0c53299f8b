"""Results of analyses, sweeps and simulations, from HDF5, CSV or JSON: rows as a DataFrame, arrays as xarray."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ._load import native
from .columns import about as about_columns
from .errors import UsageError
from .opened import OpenedFile

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import DataArray, Dataset


def is_result(path: str | os.PathLike[str]) -> bool:
    """True for tables (CSV, JSON), and for HDF5 files that say so of themselves."""
    try:
        with open(path, "rb") as file:
            if not file.read(8) == b"\x89HDF\r\n\x1a\n":
                return True
    except OSError:
        return False  # the reader of traces has the sentence
    try:
        native.Result.open(os.fsencode(path))
    except (OSError, ValueError):
        return False
    return True


class Result(OpenedFile):
    """A result file. `arrays` lists what it holds; result["NAME"] is one array (an xarray.DataArray); `rows` the table."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = native.Result.open(os.fsencode(self.path))
        self.kind: str = self._file.kind
        self.command_line: str = self._file.command_line
        self.writer: str = self._file.writer
        self.created: str = self._file.created
        self.arrays: dict[str, dict[str, Any]] = {array["name"]: array for array in self._file.arrays}

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, (os.path.abspath(self.path),)

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads(self._opened().summary)

    @property
    def config(self) -> Any:
        return json.loads(self._opened().config)

    @property
    def rows(self) -> DataFrame:
        """The table as a DataFrame; attrs["columns"] says what each column is, attrs["units"] in which unit."""
        import pandas

        self._opened()
        columns = {}
        for name, column in native.read_rows(os.fsencode(self.path)).items():
            columns[name] = pandas.Categorical.from_codes(*column).astype(str) if isinstance(column, tuple) else column
        table = pandas.DataFrame(columns)
        table.attrs = {"kind": self.kind, "command_line": self.command_line, **about_columns(columns)}
        return table

    def read(self, name: str) -> np.ndarray:
        """An array as NumPy, f64."""
        return self._opened().read(name)

    def __getitem__(self, name: str) -> DataArray:
        import xarray

        if name not in self.arrays:
            raise UsageError(f"{self.path}: no array {name}: expected one of {', '.join(self.arrays)}")
        about = self.arrays[name]
        axes = _distinct(about["axes"], len(about["shape"]))
        coordinates = {axis: (axis, self.read(axis)) for axis, n in zip(axes, about["shape"])
                       if axis != name and self.arrays.get(axis, {}).get("shape") == [n]}
        return xarray.DataArray(self.read(name), dims=axes, coords=coordinates, name=name,
                                attrs={"units": about["units"], "long_name": about["long_name"]})

    def to_xarray(self) -> Dataset:
        """All arrays as one xarray.Dataset; rows/NAME (the table's columns) are left to `rows`."""
        import xarray

        arrays = {name: self[name].drop_vars(list(self[name].coords)) for name in self.arrays if not name.startswith("rows/")}
        data: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for name, array in arrays.items():  # axes of one name and different lengths stay apart
            renamed = {axis: f"{axis}_of_{name}" for axis, n in array.sizes.items() if sizes.setdefault(axis, n) != n}
            renamed |= {axis: f"{axis}_axis" for axis in array.dims if axis == name and array.ndim > 1}
            data[name] = array.rename(renamed)
        return xarray.Dataset(data, attrs={"kind": self.kind, "command_line": self.command_line, "writer": self.writer})

    def __repr__(self) -> str:
        lines = [f"<kvscope result {os.path.basename(self.path)}: {self.kind}, {self.command_line or 'no command'}>"]
        lines += [f"  {name} {about['shape']} ({', '.join(about['axes'])}) [{about['units']}] {about['long_name']}"
                  for name, about in self.arrays.items() if not name.startswith("rows/")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        cells = "".join(
            f"<tr><td style='text-align:left'><code>{escape(name)}</code></td><td>{about['shape']}</td>"
            f"<td>{escape(', '.join(about['axes']))}</td><td>{escape(about['units'])}</td>"
            f"<td style='text-align:left'>{escape(about['long_name'])}</td></tr>"
            for name, about in self.arrays.items() if not name.startswith("rows/"))
        head = f"<p><b>{escape(self.kind)}</b> {escape(self.command_line)}</p>"
        return f"{head}<table><tr><th>array</th><th>shape</th><th>axes</th><th>unit</th><th>is</th></tr>{cells}</table>"


def _distinct(axes: list[str], rank: int) -> list[str]:
    """Names of all axes, each once: [q_head, q_head] becomes [q_head, q_head_2]."""
    out: list[str] = []
    for at in range(rank):
        name = axes[at] if at < len(axes) and axes[at] else f"axis_{at}"
        out.append(name if name not in out else f"{name}_{at + 1}")
    return out


def open_result(path: str | os.PathLike[str]) -> Result:
    """Opens a result of an analysis, a sweep or a simulation (.h5, .csv, .json)."""
    return Result(path)
