from ._commands import analyze as analyze, figure as figure, run as run, simulate as simulate, sweep as sweep
from .commands import Analysis as Analysis, Outcome as Outcome, selectors as selectors
from .conformance import selftest as selftest
from .errors import CommandError as CommandError, InputError as InputError, SelectorError as SelectorError
from .errors import UsageError as UsageError
from .explorer import show as show
from .export import export as export
from .figures import Figure as Figure
from .lists import Lists as Lists, select as select
from .own import OwnSelector as OwnSelector, selector as selector, top as top
from .policy import policy as policy
from .recorder import record as record
from .result import Result as Result, open_result as open_result
from .trace import Trace as Trace, open as open

__version__: str
