"""Loads the native module, once, and says where the embedded models are."""

from __future__ import annotations

import os
from pathlib import Path

_SAMPLES = Path(__file__).parent / "samples"
if _SAMPLES.is_dir():  # a wheel has them; a build tree's module knows the sources
    os.environ.setdefault("KVSCOPE_DATA", str(_SAMPLES))

try:
    from . import _native as native
except ImportError as error:
    raise ImportError(
        f"kvscope's native module could not be loaded ({error}). Expected kvscope/_native beside {Path(__file__).parent}: "
        "install the package (pip install ./traces/python), or build the target kvscope_python and name its folder, "
        "build/release/python/kvscope, in KVSCOPE_NATIVE"
    ) from error

__all__ = ["native"]
