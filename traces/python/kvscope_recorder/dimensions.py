"""Names of axes by HDF5's convention of dimension scales, from which xarray and netCDF have the names of dimensions.

The same as the native writer makes (traces/h5_dimensions.cpp): one scale in the root group for each name and length.
"""

from __future__ import annotations

import h5py
import numpy as np
from h5py import h5a, h5d, h5p, h5r, h5s, h5t

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
_MOST_BACK_REFERENCES = 3500  # an attribute holds 64 KiB


def _put_text(dataset: h5d.DatasetID, name: str, text: str) -> None:
    kind = h5t.C_S1.copy()
    kind.set_size(len(text) + 1)
    h5a.create(dataset, name.encode(), kind, h5s.create(h5s.SCALAR)).write(np.array(text.encode(), f"S{len(text) + 1}"), mtype=kind)


class Dimensions:
    """The named axes of one file: name() for every array, then write() once."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self._arrays: list[tuple[str, list[str], tuple[int, ...]]] = []
        self._scales: dict[tuple[str, int], str] = {}  # paths, by axis and length
        self._users: dict[str, list[tuple[h5py.Reference, int]]] = {}

    def name(self, path: str, axes: str, dims: tuple[int, ...]) -> None:
        self._arrays.append((path, axes.split(","), dims))

    def write(self) -> None:
        for path, axes, dims in self._arrays:
            if [path] == [f"/{axis}" for axis in axes]:  # its values are coordinates
                self._mark(path, path[1:])
                self._scales[axes[0], dims[0]] = path
        for path, axes, dims in self._arrays:
            if path not in self._users:
                self._attach(path, axes, dims)
        fields = np.dtype({"names": ["dataset", "dimension"], "formats": [h5py.ref_dtype, "<i4"], "offsets": [0, 8], "itemsize": 16})
        for path, users in self._users.items():
            if 0 < len(users) <= _MOST_BACK_REFERENCES:
                self.file[path].attrs.create("REFERENCE_LIST", np.array(users, fields), dtype=fields)

    def _mark(self, path: str, name: str) -> None:
        dataset = h5d.open(self.file.id, path.encode())
        _put_text(dataset, "CLASS", "DIMENSION_SCALE")
        _put_text(dataset, "NAME", name)
        self._users[path] = []

    def _attach(self, path: str, axes: list[str], dims: tuple[int, ...]) -> None:
        scales = [self._scale_of(path, axis, length) for axis, length in zip(axes, dims, strict=True)]
        references = np.empty(len(scales), object)
        dataset = self.file[path]
        for at, scale in enumerate(scales):
            references[at] = np.array([h5r.create(self.file.id, scale.encode(), h5r.OBJECT)], h5py.ref_dtype)
            self._users[scale].append((dataset.ref, at))
        dataset.attrs.create("DIMENSION_LIST", references, dtype=h5py.vlen_dtype(h5py.ref_dtype))

    def _scale_of(self, path: str, axis: str, length: int) -> str:
        """The path of an axis' scale. Where its name has another length already, it is named after the array that asks."""
        if (axis, length) in self._scales:
            return self._scales[axis, length]
        name = f"{axis}_of_{path.rsplit('/', 1)[1]}" if any(known == axis for known, _ in self._scales) else axis
        scale = self._scales[axis, length] = f"/{name}"
        creation = h5p.create(h5p.DATASET_CREATE)
        creation.set_obj_track_times(False)
        creation.set_alloc_time(h5d.ALLOC_TIME_LATE)
        h5d.create(self.file.id, scale.encode(), h5t.STD_U8LE, h5s.create_simple((length,)), creation)
        self._mark(scale, f"{NO_VARIABLE}{length:10}")
        return scale
