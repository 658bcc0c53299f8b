"""The exceptions of the recorder; each message says what, where, what was expected and what to do."""

from __future__ import annotations

from kvscope.errors import Error


class RecordError(Error, RuntimeError):
    """A recording that cannot go on; the base of the other errors here."""


class ConfigError(RecordError):
    """What was asked for does not fit the model or contradicts itself."""


class UnsupportedModelError(RecordError):
    """The model computes something that trace schema version 1 cannot hold, or hides it from us."""


class DataError(RecordError):
    """A number that no trace may hold: NaN, Inf, or a value too large for the storage type."""


class RecordWarning(UserWarning):
    """The trace will be right as far as it goes, but not all that one may expect of it."""
