"""What goes wrong, by whose fault it is. Every class here is an Error, and also what Python calls such a fault."""

from __future__ import annotations

import re


class Error(Exception):
    """Everything that kvscope raises of itself. The message is a sentence: where, what was expected, what was found."""

    def _said(self, pattern: str) -> str | None:
        found = re.search(pattern, str(self))
        return found[1].strip() if found else None

    @property
    def where(self) -> str | None:
        """The file, option or method that the sentence begins with; None if it names none."""
        return self._said(r"^([^\s:][^:]*?): ")

    @property
    def expected(self) -> str | None:
        """What was expected; None if the sentence does not say."""
        return self._said(r"\bexpected (.+?)(?:,? (?:but )?found |; |$)")

    @property
    def found(self) -> str | None:
        """What was found instead; None if the sentence does not say."""
        return self._said(r"\bfound (.+?)(?:; |: expected|, expected|$)")


class UsageError(Error, ValueError):
    """A wrong argument, option or shape."""


class InputError(Error, OSError):
    """A file that is missing, damaged or cannot be written."""


class CommandError(Error, RuntimeError):
    """A command failed in another way; `code` is its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[CommandError], tuple[str, int]]:
        return CommandError, (str(self), self.code)


class SelectorError(Error, RuntimeError):
    """An own selector raised; the message has the call's layer, phase and positions, __cause__ the exception itself.

    The local variables of its frames are cleared: arrays of a call lie in memory that the engine uses again.
    """
