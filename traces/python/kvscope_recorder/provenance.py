"""What a trace says about where it comes from: the model's configuration, the tokenizer, the machine, the time."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from kvscope._load import native

from .errors import ConfigError, UnsupportedModelError
from .layers import experts_per_token, kinds_of, sinks_of
from .schema import Rotation

#: layer_types of layers that an indexer makes sparse.
INDEXED_LAYERS = ("indexed_attention", "minimax_m3_sparse", "deepseek_sparse_attention")
#: What transformers calls the layers that a trace can hold (hybrid: attention beside a state space), and those without any
#: softmax; words of transformers 4 are translated.
_SOFTMAX_LAYERS = ("full_attention", "sliding_attention", "hybrid")
_NO_SOFTMAX = ("linear_attention", "conv", "moe", "mlp")
_OLD_WORDS = {"attention": "full_attention"} | dict.fromkeys(("mamba", "mamba2", "recurrent"), "linear_attention")


@dataclass(frozen=True)
class ModelFacts:
    """What config.json says, as far as a trace holds it."""

    name: str
    family: str
    config_json: bytes
    n_layers: int
    d_model: int
    n_vocab: int
    windows: tuple[int, ...]  # per layer; 0 = full attention
    layers: tuple[int, ...]  # those with full or sliding softmax attention, which can be recorded
    left_out: dict[int, str]  # the others, and what config.json calls them
    rope_kind: str
    rope_theta: float
    rope_factor: float
    qk_norm: bool
    sinks: np.ndarray | None  # [n_layers, n_q] f32
    layer_kinds: tuple[tuple[int, int], ...]
    n_experts_per_token: int

    @property
    def unexpected(self) -> dict[int, str]:
        """Layers that are left out although there is softmax attention in them."""
        return {layer: kind for layer, kind in self.left_out.items() if kind not in _NO_SOFTMAX}


def text_config(model: Any) -> Any:
    """The configuration of the language model, which multimodal models nest."""
    config = getattr(model, "config", None)
    if config is None:
        raise UnsupportedModelError(f"{type(model).__name__} has no .config: expected a transformers model")
    return config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config


def attention_kinds(config: Any) -> list[str]:
    """Of each layer what it attends to, in transformers' words (layer_types): full_attention, chunked_attention, ...

    Raises UnsupportedModelError for a configuration without its number of layers.
    """
    # the decoder of an encoder-decoder, alone: num_hidden_layers is then the encoder's
    n_layers = _required(config, "decoder_layers" if getattr(config, "decoder_layers", None) else "num_hidden_layers")
    kinds = list(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or [])
    if not kinds or config.model_type == "mistral":  # whose layers slide whatever layer_types says
        slides = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True) is not False
        return ["sliding_attention" if slides else "full_attention"] * n_layers
    if len(kinds) != n_layers:
        raise UnsupportedModelError(f"config: {len(kinds)} layer_types for {n_layers} layers")
    return [_OLD_WORDS.get(kind, kind) for kind in kinds]


def sees_all(kind: str) -> bool:
    """True for the kinds of layers in which a token attends to all before it."""
    return kind in ("full_attention", "hybrid")


def describe_model(model: Any, has_modules: bool = True, indexed: tuple[str, ...] = ()) -> ModelFacts:
    """Reads the model's configuration. Raises UnsupportedModelError for what a trace cannot hold.

    has_modules: false where an engine of its own runs the model, and `model` has its configuration alone.
    indexed: layer_types that are recorded besides, made sparse by an indexer.
    """
    config = text_config(model)
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{type(model).__name__} is an encoder-decoder model; a trace holds causal self-attention of a decoder only"
        )
    kinds = attention_kinds(config)
    window = int(getattr(config, "sliding_window", None) or 0)
    windows = tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    layers = tuple(i for i, kind in enumerate(kinds) if kind in _SOFTMAX_LAYERS or kind in indexed)
    left_out = {i: kind for i, kind in enumerate(kinds) if i not in layers}
    if not layers:
        known = " or ".join(_SOFTMAX_LAYERS[:2])
        raise UnsupportedModelError(
            f"no layer can be recorded: layer_types are {sorted(set(kinds))}, expected {known}"
            + ("; capture='index' records layers with an indexer" if set(kinds) & set(INDEXED_LAYERS) else "")
        )
    kind, theta, factor = _rope(model)
    name_or_path = str(getattr(model.config, "_name_or_path", "") or "")
    return ModelFacts(
        name=Path(name_or_path).name or type(model).__name__,
        family=config.model_type,
        config_json=_config_json(model, name_or_path),
        n_layers=len(kinds),
        d_model=_required(config, "hidden_size"),
        n_vocab=_required(config, "vocab_size"),
        windows=windows,
        layers=layers,
        left_out=left_out,
        rope_kind=kind,
        rope_theta=theta,
        rope_factor=factor,
        qk_norm=any(name.endswith(("q_norm", "q_layernorm")) for name, _ in model.named_modules()),
        sinks=sinks_of(model, len(kinds)) if has_modules else None,
        layer_kinds=kinds_of(model, config, len(kinds), kind != "none"),
        n_experts_per_token=experts_per_token(config),
    )


def rotation_of(model: Any, windows: tuple[int, ...], layer_kinds: tuple[tuple[int, int], ...],
                widths: dict[int, int]) -> Rotation | None:
    """By what the model's rotary_emb rotates q and k of every layer now; None where that is not to be seen.

    widths: channels of the layers that attend. Rows of narrower layers, all of whose channels rotate, end in zeros.
    """
    config = text_config(model)
    found = _rotary_modules(model)
    if len(found) != 1 or getattr(config, "kv_lora_rank", None):  # MLA rotates the last channels, not the first
        return None
    types = list(getattr(config, "layer_types", None) or ["full_attention"] * len(windows))
    rows, amplitudes = [], []
    for layer, kind in enumerate(types):
        prefix = f"{kind}_" if hasattr(found[0], f"{kind}_inv_freq") else ""
        frequencies = getattr(found[0], f"{prefix}inv_freq", None)
        if frequencies is None:
            return None
        turns = not layer_kinds or bool(layer_kinds[layer][0])
        rows.append(frequencies.detach().float().cpu().numpy() * turns)
        amplitudes.append(float(getattr(found[0], f"{prefix}attention_scaling", 1.0)) if turns else 1.0)
    if any(row.ndim != 1 for row in rows):
        return None
    n_pairs = max(len(row) for row in rows)
    if any(len(rows[layer]) != min(n_pairs, width // 2) for layer, width in widths.items()):
        return None
    padded = np.stack([np.pad(row, (0, n_pairs - len(row))) for row in rows])
    return Rotation(padded.astype("<f4").ravel().tolist(), np.array(amplitudes, dtype="<f4").tolist())


def _required(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    if not isinstance(value, int):
        raise UnsupportedModelError(f"config of {config.model_type}: {name} is {value!r}, expected a number")
    return value


def _config_json(model: Any, name_or_path: str) -> bytes:
    path = Path(name_or_path) / "config.json"
    if name_or_path and path.is_file():
        return path.read_bytes()
    return model.config.to_json_string().encode()


def _rotary_modules(model: Any) -> list[Any]:
    return [module for name, module in model.named_modules()
            if name.rpartition(".")[2] == "rotary_emb" and getattr(module, "config", None) is text_config(model)]


def _rope(model: Any) -> tuple[str, float, float]:
    """rope_kind, theta and factor; in models with one RoPE per layer type, that of full attention."""
    config = text_config(model)
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope and all(isinstance(value, dict) for value in rope.values()):
        rope = rope.get("full_attention") or next(iter(rope.values()))
    theta = rope.get("rope_theta") or getattr(config, "rope_theta", None)
    if theta is None and not rope:
        return "none", 0.0, 1.0
    kind = rope.get("rope_type") or rope.get("type") or "default"
    built = [getattr(module, "rope_type", kind) for module in _rotary_modules(model)]
    if len(built) == 1 and isinstance(built[0], str) and built[0] != kind:
        return built[0], float(theta or 0.0), 1.0  # the configuration was changed after it was built
    return str(kind), float(theta or 0.0), float(rope.get("factor") or 1.0)


# ---- run -----------------------------------------------------------------------------------------


def timestamp() -> str:
    """Now in UTC, ISO 8601; the time in SOURCE_DATE_EPOCH instead, if that is set to a number."""
    pinned = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(pinned) if pinned.isdecimal() else time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def writer_name() -> str:
    """'kvscope_recorder 0.1.0 (torch 2.13.0, transformers 5.23.0)'."""
    parts = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers"))
    try:
        own = metadata.version("kvscope")
    except metadata.PackageNotFoundError:  # imported from the source tree
        own = "from source"
    return f"kvscope_recorder {own} ({parts})"


def command_line() -> str:
    """The arguments of this process."""
    return plain(shlex.join(sys.argv))


def plain(text: object) -> str:
    """The text as UTF-8 can say it: names of files may hold bytes that it cannot."""
    return str(text or "").encode("utf-8", "replace").decode()


def host_name() -> str:
    return socket.gethostname()


# ---- tokenizer -----------------------------------------------------------------------------------


def _byte_of_character() -> dict[str, int]:
    """The alphabet of byte-level BPE: printable bytes stand for themselves, the others for U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(0x100 + i): byte for i, byte in enumerate(rest)})
    return table


class TokenTexts:
    """The bytes of every token of a tokenizer, and a fingerprint of all of them."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer`: a fast tokenizer of transformers, or one of the tokenizers library. Raises ConfigError."""
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not hasattr(backend, "to_str"):
            raise ConfigError(f"tokenizer: expected a fast tokenizer (with tokenizer.json), found {type(tokenizer).__name__}")
        data = json.loads(backend.to_str())
        added = {token["id"]: token["content"].encode() for token in data.get("added_tokens", [])}
        as_bytes = self._reader(data)
        self._texts = {index: as_bytes(content) for content, index in backend.get_vocab(with_added_tokens=True).items()}
        self._texts.update(added)
        self.longest = max(map(len, self._texts.values()), default=0)
        texts = (self.of(index) for index in range(max(self._texts, default=-1) + 1))
        self.hash = "xxh128:" + native.fingerprint(b"".join(f"{len(text)}:".encode() + text for text in texts))

    @staticmethod
    def _reader(data: dict[str, Any]) -> Any:
        decoders = json.dumps(data.get("decoder") or {}) + json.dumps(data.get("pre_tokenizer") or {})
        if '"ByteLevel"' in decoders:
            table = _byte_of_character()

            def byte_level(content: str) -> bytes:
                if all(character in table for character in content):
                    return bytes(table[character] for character in content)
                return content.encode()

            return byte_level

        def sentence_piece(content: str) -> bytes:
            if len(content) == 6 and content.startswith("<0x") and content.endswith(">"):
                return bytes([int(content[3:5], 16)])
            return content.replace("\u2581", " ").encode()

        return sentence_piece

    def of(self, index: int) -> bytes:
        """Ids that the model has and the tokenizer has not (padding of the vocabulary) have no text."""
        return self._texts.get(index, b"")
