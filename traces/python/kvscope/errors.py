"""What goes wrong, by whose fault it is."""

from __future__ import annotations

from ._load import native

#: A wrong argument, option or shape; a ValueError.
UsageError: type[ValueError] = native.UsageError
#: A file that is missing, damaged or cannot be written; an OSError.
InputError: type[OSError] = native.InputError


class CommandError(RuntimeError):
    """A command failed in another way; `code` is its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class SelectorError(RuntimeError):
    """An own selector raised; the message has the call's layer, phase and positions, __cause__ the exception itself.

    The local variables of its frames are cleared: arrays of a call lie in memory that the engine uses again.
    """
