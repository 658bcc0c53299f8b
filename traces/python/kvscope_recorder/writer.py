"""Writes a trace file: OUT.part while it grows, OUT once it is whole.

HDF5 lays the file out once (layout.py) and closes it; from then on only raw bytes are written at known offsets,
so the metadata are whole at every moment. A unit counts once /progress says so. A run whose length is not
known beforehand is planned, and planned anew (`replan`) when it turns out otherwise.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from array import array
from pathlib import Path

import numpy as np
import xxhash

from .errors import ConfigError, RecordError
from .layout import Layout, create_layout, seal
from .schema import ArraySpec, TraceInfo, derive_uuid, hash_contents, positions_of

_COPY_BYTES = 8 << 20


def check_output(out: Path, overwrite: bool) -> None:
    """Raises ConfigError if `out` cannot become a trace."""
    if out.is_dir():
        raise ConfigError(f"cannot write {out}: it is a folder, expected a file name")
    if out.suffix == ".part":
        raise ConfigError(f"cannot write {out}: names that end in .part are for files that are not whole yet")
    if not out.parent.is_dir():
        raise ConfigError(f"cannot write {out}: there is no folder {out.parent}")
    if out.exists() and not overwrite:
        raise ConfigError(f"{out} exists; choose another name or pass overwrite=True")


def _is_being_recorded(part: Path) -> bool:
    fd = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(fd)
    return False


def _publish(part: Path, out: Path, overwrite: bool) -> None:
    """Renames a whole file to its name, after its bytes are on the device."""
    fd = os.open(part, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    if overwrite:
        os.replace(part, out)
    else:
        try:
            os.link(part, out)  # unlike rename, this never replaces a file that appeared meanwhile
            os.unlink(part)
        except FileExistsError as error:
            raise ConfigError(f"{out} appeared while recording; the trace is in {part}") from error
        except OSError:  # a file system without hard links
            if out.exists():
                raise ConfigError(f"{out} appeared while recording; the trace is in {part}") from None
            os.rename(part, out)
    folder = os.open(out.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some file systems cannot sync folders
            os.fsync(folder)
    finally:
        os.close(folder)


class _Growing:
    """One array while it is being filled."""

    def __init__(self, spec: ArraySpec) -> None:
        self.spec = spec
        self.n_filled = 0  # positions of the running unit
        self.running = [xxhash.xxh3_64() for _ in range(spec.n_heads)]  # of the running unit
        self.table = array("Q")  # [committed units, heads]


class TraceWriter:
    """Writes one trace. Call begin, then per unit: append..., append_tokens, commit; at last finish or abandon."""

    def __init__(self, out: Path, overwrite: bool = False) -> None:
        check_output(out, overwrite)
        self.out = out
        self.part = out.with_name(out.name + ".part")
        self.overwrite = overwrite
        self.n_committed = 0
        self.bytes_written = 0
        self._info: TraceInfo | None = None
        self._layout = Layout([], {})
        self._arrays: dict[str, _Growing] = {}
        self._fd = -1
        self._tokens = array("i")
        self._text_table = array("Q")
        self._n_text = 0

    @property
    def info(self) -> TraceInfo:
        if self._info is None:
            raise RecordError(f"{self.out}: nothing was begun")
        return self._info

    def begin(self, info: TraceInfo) -> None:
        """Lays out OUT.part for the plan `info`. Raises ConfigError if it is in use, left over or does not fit."""
        check_output(self.out, self.overwrite)
        if self.part.exists():
            if _is_being_recorded(self.part):
                raise ConfigError(f"{self.part} is being recorded by another process")
            if not self.overwrite:
                raise ConfigError(
                    f"{self.part} is left over from a recording that did not end: save it with "
                    f"'kvscope recover {self.part}', delete it, or pass overwrite=True"
                )
            self.part.unlink()
        self._info = info
        self._layout = create_layout(self.part, info)
        self._arrays = {spec.path: _Growing(spec) for spec in self._layout.arrays}
        self._open()
        self._check_space(info)

    def _open(self) -> None:
        self._fd = os.open(self.part, os.O_RDWR | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # no locks here: recording works, only unguarded
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _check_space(self, info: TraceInfo) -> None:
        needed = os.fstat(self._fd).st_size
        disk = os.statvfs(self.part)
        free = disk.f_bavail * disk.f_frsize
        if needed > free:
            raise ConfigError(
                f"{self.out}: {info.n_tokens} tokens need {needed / 2**30:.2f} GiB, the disk has {free / 2**30:.2f} GiB: "
                "record fewer layers, heads or rows, or no dense attention"
            )

    # ---- a unit --------------------------------------------------------------------------------------

    def _put(self, offset: int, data: bytes | memoryview | np.ndarray) -> None:
        view = memoryview(data).cast("B")
        self.bytes_written += len(view)
        while len(view):
            n = os.pwrite(self._fd, view, offset)
            view, offset = view[n:], offset + n

    def append(self, path: str, rows: np.ndarray) -> None:
        """Writes `rows`, [heads, n, row] or without the axes that the array lacks, after those the unit has already.

        Rows hold the bits of the stored type, C-contiguous. Raises RecordError if the shape does not fit the plan.
        """
        info, growing = self.info, self._arrays[path]
        spec, unit = growing.spec, info.units[self.n_committed]
        first, last = positions_of(spec, info, unit.begin, unit.end)
        width = spec.filled_row_size(unit.end)
        n = rows.shape[1] if spec.has_heads else rows.shape[0]
        block = np.ascontiguousarray(rows).reshape(spec.n_heads, n, -1) if rows.size else None
        if growing.n_filled + n > last - first or (block is not None and block.shape[2] != width):
            raise RecordError(
                f"{path}: rows of shape {list(rows.shape)} for unit {unit.begin} to {unit.end}, "
                f"expected {spec.n_heads} heads, at most {last - first - growing.n_filled} positions, rows of {width}"
            )
        if block is None:
            growing.n_filled += n
            return
        start = self._layout.at(path)
        row_bytes = spec.row_size * spec.itemsize
        position = first + growing.n_filled
        for head in range(spec.n_heads):
            place = start + (head * spec.n_positions + position) * row_bytes
            if width == spec.row_size:
                self._put(place, block[head])
            else:
                for i in range(n):
                    self._put(place + i * row_bytes, block[head, i])
            growing.running[head].update(block[head].data)
        growing.n_filled += n

    def append_tokens(self, ids: np.ndarray, texts: list[bytes] | None) -> None:
        """The ids (i32) of the unit's tokens, and the bytes of each if the trace holds text."""
        self.append("/tokens", ids)
        self._tokens.extend(ids.tolist())
        if self.info.token_text_capacity == 0:
            return
        text = b"".join(texts or [])
        lengths = [len(piece) for piece in texts or []]
        index = np.cumsum([self._n_text, *lengths], dtype="i8")
        begin = self.info.units[self.n_committed].begin
        self._put(self._layout.at("/token_bytes") + self._n_text, text)
        self._put(self._layout.at("/token_offsets") + 8 * begin, index)
        digest = xxhash.xxh3_64(index.tobytes())
        digest.update(text)
        self._put(self._layout.at("/checksums/token_text") + 8 * self.n_committed, struct.pack("<Q", digest.intdigest()))
        self._text_table.append(digest.intdigest())
        self._n_text = int(index[-1])

    def commit(self) -> None:
        """Ends the unit: from here on it survives a kill. Raises RecordError if an array is not whole."""
        info = self.info
        unit = info.units[self.n_committed]
        for path, growing in self._arrays.items():
            first, last = positions_of(growing.spec, info, unit.begin, unit.end)
            if growing.n_filled != last - first:
                raise RecordError(
                    f"{path}: tokens {unit.begin} to {unit.end} brought {growing.n_filled} of {last - first} positions"
                )
        for growing in self._arrays.values():
            values = array("Q", [digest.intdigest() for digest in growing.running])
            place = self._layout.at(growing.spec.checksum_path) + 8 * self.n_committed * len(values)
            self._put(place, memoryview(values))
            growing.table.extend(values)
            growing.n_filled = 0
            for digest in growing.running:
                digest.reset()
        self.n_committed += 1
        self._put(self._layout.at("/progress"), struct.pack("<q", self.n_committed))

    # ---- another plan --------------------------------------------------------------------------------

    def replan(self, info: TraceInfo) -> None:
        """Moves the whole units into a layout for another plan that begins with the same units."""
        temporary = self.out.with_name(self.out.name + ".rewrite.part")
        layout = self._copy(temporary, info)
        os.replace(temporary, self.part)
        os.close(self._fd)
        self._info, self._layout = info, layout
        for spec in layout.arrays:
            self._arrays[spec.path].spec = spec
        self._open()

    def _copy(self, target: Path, info: TraceInfo) -> Layout:
        """A file at `target` for the plan `info` that holds the committed units."""
        target.unlink(missing_ok=True)
        try:
            layout = create_layout(target, info)
            out = os.open(target, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._copy_into(out, layout, info)
            finally:
                os.close(out)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return layout

    def _copy_into(self, out: int, layout: Layout, info: TraceInfo) -> None:
        done = self.info.units[self.n_committed - 1].end if self.n_committed else 0
        for spec in layout.arrays:
            growing = self._arrays[spec.path]
            _, n = positions_of(spec, info, 0, done)
            self._copy_array(out, growing.spec, self._layout.at(spec.path), spec, layout.at(spec.path), n)
            os.pwrite(out, growing.table.tobytes(), layout.at(spec.checksum_path))
        if info.token_text_capacity > 0 and done > 0:
            for path, n_bytes in (("/token_bytes", self._n_text), ("/token_offsets", 8 * (done + 1))):
                self._copy_bytes(out, self._layout.at(path), layout.at(path), n_bytes)
            os.pwrite(out, self._text_table.tobytes(), layout.at("/checksums/token_text"))
        os.pwrite(out, struct.pack("<q", self.n_committed), layout.at("/progress"))

    def _copy_array(self, out: int, old: ArraySpec, old_at: int, new: ArraySpec, new_at: int, n: int) -> None:
        old_row, new_row = old.row_size * old.itemsize, new.row_size * new.itemsize
        for head in range(new.n_heads):
            source, target = old_at + head * old.n_positions * old_row, new_at + head * new.n_positions * new_row
            if old_row == new_row:
                self._copy_bytes(out, source, target, n * old_row)
            else:
                for i in range(n):
                    self._copy_bytes(out, source + i * old_row, target + i * new_row, min(old_row, new_row))

    def _copy_bytes(self, out: int, source: int, target: int, n_bytes: int) -> None:
        while n_bytes > 0:
            block = os.pread(self._fd, min(n_bytes, _COPY_BYTES), source)
            if not block:
                raise RecordError(f"{self.part}: ended early; did another program cut it?")
            os.pwrite(out, block, target)
            source, target, n_bytes = source + len(block), target + len(block), n_bytes - len(block)

    # ---- the end -------------------------------------------------------------------------------------

    def finish(self, status: str, info: TraceInfo) -> TraceInfo:
        """Makes OUT of the whole units. `info` is the plan cut to them; returns it with hash and uuid.

        Raises OSError if the disk is full (OUT.part then still holds everything).
        """
        tables = [growing.table.tobytes() for growing in self._arrays.values()]
        if info.units == self.info.units:
            info = info.replace(token_text_capacity=self.info.token_text_capacity)
        elif info.token_text_capacity > 0:
            info = info.replace(token_text_capacity=max(self._n_text, 1))
        content = hash_contents(info, self._tokens.tobytes(), tables, self._text_table.tobytes())
        info = info.replace(status=status, content_hash=content)
        info = info.replace(uuid=derive_uuid(info))
        source = self.part
        same_shape = (info.units, info.n_prompt, info.rotation) == (self.info.units, self.info.n_prompt, self.info.rotation)
        if not (same_shape and self._seal(info)):  # write a second file with the true shapes
            source = self.out.with_name(self.out.name + ".rewrite.part")
            self._copy(source, info)
        _publish(source, self.out, self.overwrite)
        self._close()
        self.part.unlink(missing_ok=True)
        self._info = info
        return info

    def _seal(self, info: TraceInfo) -> bool:
        """Completes OUT.part in place; False if a program that looks at it holds a lock against that."""
        self._close()  # our own lock goes with it
        try:
            seal(self.part, info)
        except BlockingIOError:
            self._open()
            return False
        return True

    def abandon(self) -> str:
        """Leaves OUT.part for recovery if a unit is whole, else nothing. Returns a sentence that says so."""
        if self._fd < 0:
            return ""
        self._close()
        if self.n_committed == 0:
            self.part.unlink(missing_ok=True)
            return "no unit was whole yet, so nothing is kept"
        return (
            f"the {self.n_committed} units recorded before are safe in {self.part}: "
            f"'kvscope recover {self.part}' makes a trace of them"
        )

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
