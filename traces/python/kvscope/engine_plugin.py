"""What vLLM loads in each of its processes (entry point vllm.general_plugins): nothing, unless a recording was asked for."""

from __future__ import annotations

import os


def register() -> None:
    """Starts kvscope_recorder's plug-in where KVSCOPE_VLLM_TRACE names a trace."""
    if os.environ.get("KVSCOPE_VLLM_TRACE"):
        from kvscope_recorder import vllm_plugin

        vllm_plugin.register()
