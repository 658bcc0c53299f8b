"""Loads the native module, once, and says where what comes with the package is."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def set_places() -> None:
    """For the native module, the explorer and workers: models, font, program and Python of this package. A build tree has none."""
    here = Path(__file__).parent
    for name, path in (("KVSCOPE_DATA", here / "samples"), ("KVSCOPE_FONT", here / "fonts" / "DejaVuSans.ttf"),
                       ("KVSCOPE_COMMAND", here / "bin" / "kvscope")):
        if path.exists():
            os.environ.setdefault(name, str(path))
    os.environ.setdefault("KVSCOPE_PYTHON", sys.executable)


set_places()
try:
    from . import _native as native
except ImportError as error:
    raise ImportError(
        f"kvscope's native module could not be loaded ({error}). Expected kvscope/_native beside {Path(__file__).parent}: "
        "install the package (pip install . in the sources), or build the target kvscope_python and name its folder, "
        "build/release/python/kvscope, in KVSCOPE_NATIVE"
    ) from error

__all__ = ["native"]
