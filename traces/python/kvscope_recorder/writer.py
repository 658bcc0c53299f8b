"""Writes a trace file with kvscope's own writer: OUT.part while it grows, OUT once it is whole.

A call survives a kill once it is committed. A run whose length is not known beforehand is planned, and planned anew
(`replan`) when it turns out otherwise.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kvscope._load import native
from kvscope.errors import InputError, UsageError

from .errors import ConfigError, DataError, RecordError


def check_output(out: Path, overwrite: bool) -> None:
    """Raises ConfigError if `out` cannot become a trace."""
    try:
        native.check_trace_output(os.fsencode(out), overwrite)
    except InputError as error:
        raise ConfigError(_in_words_of_python(error)) from error


def _in_words_of_python(error: Exception) -> str:
    """The sentence without options of the command line."""
    sentence = re.sub(r"; --\w+ .* reads it .*", "", str(error)).replace("go on with it (--resume), ", "")
    return sentence.replace("ask to overwrite it", "pass overwrite=True")


@contextlib.contextmanager
def _usage_as(kind: type[RecordError]) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise kind(str(error)) from error


class TraceWriter:
    """Writes one trace: begin, then per forward call append..., append_tokens, commit; at last finish or abandon."""

    def __init__(self, out: Path, overwrite: bool = False) -> None:
        check_output(out, overwrite)
        self.out = out
        self.part = out.with_name(out.name + ".part")
        self._native = native.TraceWriter(os.fsencode(out), overwrite)
        self._is_open = False

    def begin(self, info: native.TraceInfo) -> None:
        """Lays out OUT.part for the plan `info`. Raises ConfigError if it is in use, left over or does not fit."""
        try:
            self._native.begin(info)
        except (InputError, UsageError) as error:
            raise ConfigError(_in_words_of_python(error)) from error
        self._is_open = True
        needed, disk = self.part.stat().st_size, os.statvfs(self.part)
        free = disk.f_bavail * disk.f_frsize
        if needed > free:
            raise ConfigError(
                f"{self.out}: {info.n_tokens} tokens need {needed / 2**30:.2f} GiB, the disk has {free / 2**30:.2f} GiB: "
                "record fewer layers, heads or rows, or no dense attention"
            )

    def append(self, path: str, rows: np.ndarray) -> None:
        """Writes `rows`, [heads, n, row] or without the axes that the array lacks, after those the call has already.

        Rows hold the bits of the stored type (bf16 as uint16). Raises DataError for NaN and Inf, RecordError for a shape
        that does not fit the plan.
        """
        try:
            with _usage_as(RecordError):
                self._native.append(path, np.ascontiguousarray(rows))
        except ValueError as error:
            raise DataError(str(error)) from error

    def append_tokens(self, ids: np.ndarray, texts: list[bytes] | None) -> None:
        """The ids (i32) of the call's tokens, and the bytes of each if the trace holds text."""
        with _usage_as(RecordError):
            self._native.write_tokens(np.ascontiguousarray(ids), texts or [])

    def commit(self) -> None:
        """Ends the call: from here on it survives a kill. Raises RecordError if an array is not whole."""
        with _usage_as(RecordError):
            self._native.commit()

    def replan(self, info: native.TraceInfo) -> None:
        """Moves the whole calls into a layout for another plan that begins with the same calls."""
        with _usage_as(ConfigError):
            self._native.replan(info)

    def finish(self, status: str, info: native.TraceInfo, moved_scores: list[float]) -> native.TraceInfo:
        """Makes OUT of the whole calls. `info` is the plan cut to them; returns it with hash and uuid. moved_scores: nats by which
        storing q and k moved scores at most, of each recorded layer; not looked at unless info has room for them.

        Raises OSError if the disk is full (OUT.part then still holds everything).
        """
        with _usage_as(ConfigError):
            finished = self._native.finish(status, info, moved_scores)
        self._close()
        return finished

    def abandon(self) -> str:
        """Leaves OUT.part for recovery if a call is whole, else nothing. Returns a sentence that says so."""
        if not self._is_open:
            return ""
        hint = str(self._native.recovery_hint)
        self._close()
        return hint if self.part.exists() else ""

    def _close(self) -> None:
        del self._native
        self._is_open = False
