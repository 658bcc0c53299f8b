"""The recorder for Hugging Face transformers models (kvscope[transformers]); kvscope_recorder is the same by its old name."""

from __future__ import annotations

try:
    from kvscope_recorder import (CaptureSet, ConfigError, DataError, Recorder, RecordError, RecordWarning,
                                  UnsupportedModelError, record)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"kvscope.record needs {error.name}, which is not installed: pip install 'kvscope[transformers]' brings torch and "
        "transformers", name=error.name) from error

__all__ = ["CaptureSet", "ConfigError", "DataError", "RecordError", "RecordWarning", "Recorder", "UnsupportedModelError", "record"]
