"""The page for users of kvpress: its blocks run, and where kvpress is installed (it wants transformers below 5.3) both agree as
the page says."""

from __future__ import annotations

import importlib.util
import re

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers.masking_utils", reason="this transformers has no mask interface")
pytest.importorskip("kvscope._native", reason="the native module was not built")
from conftest import ROOT  # noqa: E402

PAGE = ROOT / "traces" / "python" / "kvpress.md"
HAS_KVPRESS = importlib.util.find_spec("kvpress") is not None


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "traces").symlink_to(ROOT / "traces")
    found: dict[str, object] = {"__name__": "page"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, block in re.findall(r"^```(python|py)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S):
            if language == "python" or HAS_KVPRESS:
                exec(compile(block, PAGE.name, "exec"), found)  # noqa: S102 - as a reader would
    return found


def test_our_side(names):
    assert names["answer"].shape == (1, 528) and 0.2 < names["policy"].kept_by_phase["decode"] < 0.3
    printed = dict(re.findall(r"^\| .*, `(.*)` \| [0-9.]+ \| ([0-9.]+) \|$", PAGE.read_text(encoding="utf-8"), re.M))
    assert {name: round(value, 2) for name, value in names["perplexity"].items()} == {name: round(float(text), 2) for name, text in printed.items()}
    assert all(len(keys) == 129 and keys[-1] == 512 for keys in names["keys"].values())


@pytest.mark.skipif(not HAS_KVPRESS, reason="kvpress is not installed")
def test_both_sides(names):
    assert names["answer"].tolist() == names["their_answer"].tolist()
    assert {place: keys[:-1] for place, keys in names["keys"].items()} == names["their_keys"]
    ours, theirs = list(names["perplexity"].values()), list(names["their_perplexity"].values())
    assert ours[:4] == pytest.approx(theirs[:4], rel=1e-5) and ours[4] == pytest.approx(theirs[4], rel=0.01)
