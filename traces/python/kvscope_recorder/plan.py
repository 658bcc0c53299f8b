"""Guesses how a run will go on, since a trace is laid out before its length is known.

A forward pass of several tokens is a prefill chunk, one of a single token a decode step. A wrong guess costs one
copy of what is there so far (writer.replan); lengths grow by half, so the copies together cost a few passes.
"""

from __future__ import annotations

from .schema import Call

_LEAST_GROWTH = 128  # decode steps planned at least when the length is unknown


def classify(ends: list[int]) -> tuple[tuple[Call, ...], int, int]:
    """Calls, n_prompt and chunk of forward passes that ended at these tokens.

    The prompt ends with the last pass of several tokens; single tokens after it were decoded.
    """
    spans = list(zip([0, *ends[:-1]], ends))
    n_prompt = ends[0] if ends else 0
    for begin, end in spans:
        if end - begin > 1:
            n_prompt = end
    calls = tuple(Call(begin, end, begin >= n_prompt) for begin, end in spans)
    chunk = max((call.end - call.begin for call in calls if not call.is_decode), default=1)
    return calls, n_prompt, chunk


def predict(ends: list[int], max_new_tokens: int | None) -> list[int]:
    """The ends of all passes that are to be expected, those so far (at least one) first."""
    sizes = [end - begin for begin, end in zip([0, *ends[:-1]], ends)]
    done, last = ends[-1], sizes[-1]
    planned = list(ends)
    if len(sizes) > 1 and last > 1:
        if last >= sizes[-2]:  # prefill in chunks
            planned += range(done + last, done + max(done // 2, last) + 1, last)
        return planned
    _, n_prompt, _ = classify(ends)
    if max_new_tokens is not None:
        # generate() does not run the last token it yields.
        limit = n_prompt + max(max_new_tokens, 1) - 1
    elif len(sizes) == 1:
        return planned
    else:
        limit = done + max(_LEAST_GROWTH, done // 2)
    planned += range(done + 1, limit + 1)
    return planned
