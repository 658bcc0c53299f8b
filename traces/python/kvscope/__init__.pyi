"""What type checkers and editors know of the package: its names, and where each is."""
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Literal

from ._commands import analyze as analyze, figure as figure, run as run, simulate as simulate, sweep as sweep
from .commands import Analysis as Analysis, Outcome as Outcome, selectors as selectors
from .conformance import selftest as selftest
from .errors import CommandError as CommandError, Error as Error, InputError as InputError, SelectorError as SelectorError
from .errors import UsageError as UsageError
from .explorer import show as show
from .export import export as export
from .figures import Figure as Figure
from .lists import Lists as Lists, select as select
from .own import OwnSelector as OwnSelector, selector as selector, top as top
from .policy import Policy
from .recorder import record as record
from .result import Result as Result, open_result as open_result
from .trace import Trace as Trace, open as open

__version__: str
_PolicyPhase = Literal["prefill", "decode"]

class _Policy:
    @staticmethod
    def attn_implementation(spec: str | OwnSelector, dense_layers: int | None = None, threads: int = 1,
                            engine: Literal["auto", "cpp", "torch"] = "auto", *, budget: float | str | None = None,
                            phases: _PolicyPhase | Iterable[_PolicyPhase] | None = None) -> str:
        """Registers a policy and returns its name for attn_implementation= of from_pretrained."""
    def __call__(self, model: Any, spec: str | OwnSelector, *, budget: float | str | None = None,
                 phases: _PolicyPhase | Iterable[_PolicyPhase] | None = None, dense_layers: int | None = None, threads: int = 1,
                 engine: Literal["auto", "cpp", "torch"] = "auto") -> AbstractContextManager[Policy]:
        """Inside the block every layer of `model` with full attention attends to what the method chooses."""

policy: _Policy
