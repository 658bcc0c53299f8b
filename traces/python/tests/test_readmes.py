"""Every block of Python in the tree's READMEs runs as it is printed, page by page, in a folder from which the project's own
traces/samples is seen; so do the shell blocks of the package's page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers.masking_utils", reason="this transformers has no mask interface")
pytest.importorskip("kvscope._native", reason="the native module was not built")
import kvscope as kvs  # noqa: E402
from conftest import ROOT  # noqa: E402

_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """(line, language, text) of the fenced blocks."""
    text = page.read_text(encoding="utf-8")
    return [(text[: match.start(2)].count("\n") + 1, match[1], match[2]) for match in _BLOCK.finditer(text)]


def pages() -> list[str]:
    """READMEs with a block of Python, relative to the project."""
    found = [page for page in ROOT.rglob("README.md") if not {"build", "out"} & set(page.relative_to(ROOT).parts)]
    return sorted(str(page.relative_to(ROOT)) for page in found if any(language == "python" for _, language, _ in blocks(page)))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the pages' commands run; `traces` is the project's."""
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_page(name: str, page: Path, names: dict[str, object], environment: dict[str, str] | None = None) -> None:
    for line, language, text in blocks(page):
        if language == "python":
            # Lines count from the page's top, so that a traceback names the page's own.
            exec(compile("\n" * (line - 1) + text, name, "exec"), names)  # noqa: S102 - as a reader would
        elif environment is not None:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], env=environment, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{name}:{line}: {done.stdout}\n{done.stderr}"


def test_no_page_is_forgotten():
    assert pages() == ["README.md", "traces/README.md", "traces/python/README.md"]


def test_the_first_page(folder):
    run_page("README.md", ROOT / "README.md", {"__name__": "readme"})
    assert (folder / "budget.pdf").exists()


def test_the_page_of_the_formats(folder):
    kvs.run("record", "trace.h5", model="draft", max_tokens=64, progress=False)
    kvs.analyze.quoka("trace.h5", budget=16, out="result.h5", progress=False)
    run_page("traces/README.md", ROOT / "traces/README.md", {"__name__": "readme"})


def test_the_page_of_the_package(folder):
    programs = folder / "programs"
    programs.mkdir()
    for name, words in (("kvscope", '"-m" "kvscope" '), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    environment = dict(os.environ, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, object] = {"__name__": "readme"}
    run_page("traces/python/README.md", ROOT / "traces/python/README.md", names, environment)
    assert len(names["table"]) > 0 and 0 < names["policy"].kept < 1
    assert (folder / "quoka.h5").exists()
