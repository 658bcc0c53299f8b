"""What the columns of tables are: titles, and units where a number has one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ._load import native

#: The end of a column's name and its unit (UCUM); shares, scores and counts have none.
_UNITS = (("seconds", "s"), ("us", "us"), ("ms", "ms"), ("bytes", "By"), ("flops", "FLOP"), ("nats", "nat"), ("kl", "nat"), ("nll", "nat"),
          ("log_perplexity", "nat"), ("tokens_per_second", "{token}/s"), ("degrees", "deg"))
_QUALIFIERS = r"(_(low|high|median|best|mean|min|max|p05|p5|p95))*$"


def unit_of(column: str) -> str:
    """"s" of "dense_seconds_median"; "" for what has no unit."""
    name = re.sub(_QUALIFIERS, "", column)
    return next((unit for end, unit in _UNITS if name == end or name.endswith(f"_{end}")), "")


def about(columns: Iterable[str]) -> dict[str, dict[str, str]]:
    """For a table's attrs: "columns", the title of each known column, and "units" of those that have one."""
    names = list(columns)
    return {"columns": {name: title for name in names if (title := native.column_title(name))},
            "units": {name: unit for name in names if (unit := unit_of(name))}}
