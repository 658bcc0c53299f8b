"""What the masks of a forward pass say: which tokens are padding, and whether each row sees what a trace assumes.

A trace knows one mask: a row sees the keys of its sequence up to its own position, in a window layer the last `window`
of them. Anything else is refused, with the first row and key that differ.

A slot is a place on the time axis of the batch, a position one in the sequence of a row of it: position = slot - pad,
where pad counts the padding in front of the sequence.
"""

from __future__ import annotations

from typing import Any

import torch

from .errors import UnsupportedModelError
from .lse import visible_keys

_BLOCK = 16 << 20  # entries of a mask looked at at once


def is_block_mask(mask: Any) -> bool:
    """True for the masks of flex attention, which are functions of batch row, head, query and key."""
    return callable(getattr(mask, "mask_mod", None))


def _part(mask: Any, row: int, queries: slice, n_keys: int, device: torch.device) -> tuple[torch.Tensor, bool]:
    """[heads, queries, n_keys] of a 4-D tensor or a BlockMask, and whether it is added to scores (else True = seen)."""
    if not is_block_mask(mask):
        part = mask[min(row, mask.shape[0] - 1), :, queries, :n_keys]
        return part, part.dtype != torch.bool
    batch = torch.tensor(row, device=device)
    query = torch.arange(queries.start, queries.stop, device=device)[:, None]
    key = torch.arange(n_keys, device=device)[None, :]
    n_heads = int((mask.shape[1] if len(mask.shape) == 4 else 1) or 1)
    heads = [
        torch.as_tensor(mask.mask_mod(batch, torch.tensor(head, device=device), query, key)).expand(query.shape[0], n_keys)
        for head in range(n_heads)
    ]
    return torch.stack(heads), False


def span_of_keys(mask: Any, row: int, n_tok: int, n_keys: int) -> tuple[int, int]:
    """The keys [first, end) that the last of a row's n_tok queries sees, and perhaps hidden ones between them."""
    part, is_added = _part(mask, row, slice(n_tok - 1, n_tok), n_keys, mask.device)
    columns = _shown(part, is_added).any(0)[0].nonzero()
    return (int(columns[0]), int(columns[-1]) + 1) if len(columns) else (n_keys, n_keys)


def _shown(part: torch.Tensor, is_added: bool) -> torch.Tensor:
    return part > torch.finfo(part.dtype).min / 2 if is_added else part


def require_causal(mask: Any, row: int, queries: range, first: int, first_key: int, n_keys: int, window: int,
                   device: torch.device, may_hide: bool = False) -> str | None:
    """None if row `row` of the mask is causal with this window, else what is wrong, in words.

    may_hide   an indexer hides keys, too: only what is shown beyond is wrong

    mask       a tensor [1 or batch, heads, n, >= n_keys] (bool: True sees; float: added to the scores) or a BlockMask
    queries    which of the n queries to look at; query 0 is at position `first`, below 0 where it is padding, which sees
               nothing, or all keys where a kernel needs some
    first_key  position of key 0; keys at positions below 0 are padding, which nothing may see
    """
    block = max(1, _BLOCK // max(1, n_keys))
    for begin in range(queries.start, queries.stop, block):
        end = min(begin + block, queries.stop)
        part, is_added = _part(mask, row, slice(begin, end), n_keys, device)
        visible = visible_keys(first + begin, first + end, first_key, first_key + n_keys, window, part.device)
        shown = _shown(part, is_added)
        wrong = torch.where(visible, part != 0, shown) if is_added else part != visible
        if may_hide:
            wrong = shown & ~visible
        n_pad = max(0, min(-first, end) - begin)
        wrong[:, :n_pad] &= ~shown[:, :n_pad].all(-1, keepdim=True)
        if bool(wrong.any()):
            head, query, key = (int(i) for i in wrong.nonzero()[0])
            value = float(part[head, query, key])
            what = "hides" if bool(visible[query, key]) else "shows"
            if is_added and what == "hides" and value > -1e4:
                what = f"adds {value:.3g} to"
            position = first_key + key
            named = f"key {position}" if position >= 0 else "padding"
            return f"its mask {what} {named} for row {first + begin + query}"
    return None


def visible_tokens(mask: Any, first: int, n: int, n_rows: int) -> torch.Tensor | None:
    """Which tokens of the pass are no padding: bool [n_rows, n] on the host, or None if no mask says so.

    `mask` is what the model was given: [rows, tokens so far] (0 = padding), [rows, heads, n, keys], a BlockMask, or a
    dict of such per kind of layer. `first`: slot of the first token. Raises UnsupportedModelError.
    """
    if isinstance(mask, dict):
        mask = next((mask[kind] for kind in ("full_attention", *mask) if mask.get(kind) is not None), None)
    if mask is None:
        return None
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        if mask.shape[1] < first + n or mask.shape[0] != n_rows:
            raise UnsupportedModelError(
                f"attention_mask of shape {list(mask.shape)}: expected {n_rows} rows of {first + n} tokens, "
                "those in the cache included"
            )
        return mask[:, first : first + n].bool().cpu()
    # A token that is no padding sees itself. Sliding caches hold fewer keys than there are slots: theirs are the last.
    if isinstance(mask, torch.Tensor) and mask.dim() == 4:
        offset = min(first, mask.shape[3] - n)
        diagonal = mask[:, 0, torch.arange(n, device=mask.device), torch.arange(offset, offset + n, device=mask.device)]
        seen = diagonal if mask.dtype == torch.bool else diagonal > torch.finfo(mask.dtype).min / 2
        return seen.expand(n_rows, n).cpu()
    return None  # the attention calls will show


def sequence_span(seen: torch.Tensor, row: int, first: int) -> tuple[int, int]:
    """[begin, end) of the tokens of one row that are no padding. Raises UnsupportedModelError for holes between them."""
    places = seen.nonzero()[:, 0].tolist()
    if not places:
        return 0, 0
    begin, end = places[0], places[-1] + 1
    if end - begin != len(places):
        hole = next(slot for slot in range(begin, end) if not bool(seen[slot]))
        raise UnsupportedModelError(
            f"attention_mask hides token {first + hole} of row {row} between others: a trace holds one sequence, "
            "so padding can only stand before or after it"
        )
    return begin, end


def jump_in_positions(position_ids: Any, row: int, begin: int, end: int) -> tuple[int, int, int] | None:
    """The first token of [begin, end) that does not follow the one before it: (token, position before, its position)."""
    if not isinstance(position_ids, torch.Tensor) or position_ids.dim() != 2 or end - begin < 2:
        return None
    if position_ids.shape[1] < end:
        return None
    ids = position_ids[min(row, position_ids.shape[0] - 1), begin:end]
    jumps = (ids[1:] - ids[:-1] != 1).nonzero()
    if not len(jumps):
        return None
    at = int(jumps[0])
    return begin + at + 1, int(ids[at]), int(ids[at + 1])


def packed(jump: tuple[int, int, int], row: int) -> UnsupportedModelError:
    """The error for position_ids that start anew inside a row."""
    token, before, after = jump
    return UnsupportedModelError(
        f"position_ids go from {before} to {after} at token {token} of row {row}: that is several sequences packed into one, "
        "whose tokens do not see those of the others; a trace holds one, so run each alone, or pad them to a batch and write "
        "{row} into the path"
    )
