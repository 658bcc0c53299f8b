"""What traces and results have in common as open files."""

from __future__ import annotations

from typing import Any, TypeVar

from .errors import UsageError

Self = TypeVar("Self", bound="OpenedFile")


class OpenedFile:
    """A file that is open for reading: closed by close(), by the end of a `with` block, or when nobody refers to it."""

    path: str
    _file: Any = None

    def _opened(self) -> Any:
        if self._file is None:
            raise UsageError(f"{self.path} is closed: open it again")
        return self._file

    def close(self) -> None:
        """Closes the file; what is read of it later is refused. Arrays that were read stay."""
        self._file = None

    @property
    def closed(self) -> bool:
        return self._file is None

    def __enter__(self: Self) -> Self:
        self._opened()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __fspath__(self) -> str:
        return self.path
