"""Makes the documentation site of ./package.sh site: the tree's own pages, references that the program and the package tell of
themselves, and every figure, drawn. Pages stay where they are; what this leaves needs no network, which is checked.

    site.py PROGRAM WORK OUT     the kvscope that tells and draws, a folder for what is in between, the site's folder;
                                 with Sphinx, MyST and furo installed beside it
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from site_references import commands, contents, gallery, methods, put, python, stop

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 30 * 2**20
#: What the side bar holds. README.md is the first page; names with a * are made here, all others are the tree's.
PAGES = {
    "Guides": ["FIRST_HOUR.md", "analysis/cli/COMMANDS.md", "gui/README.md", "traces/python/README.md", "traces/python/kvpress.md", "analysis/simulate/README.md", "analysis/study.md",
               "analysis/engines.md", "analysis/cost/README.md", "analysis/equal_cost.md",
               "analysis/serving_ladder.md", "analysis/figures/README.md", "notebooks_export/notebooks/README.md", "core/cuda/README.md"],
    "Reference": ["*commands.md", "*methods.md", "*gallery.md", "*python.md", "traces/README.md", "traces/samples/README.md",
                  "core/selectors/CONFORMANCE.md"],
    "Results": ["results/README.md", "results/smollm2/README.md", "results/gemma3/README.md", "results/verifier/README.md"],
    "Project": ["CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "core/selectors/README.md", "core/model/README.md", "analysis/kinds/README.md",
                "gui/panels/README.md", "SECURITY.md", "tests/attack/README.md", "tests/bench/README.md", "tests/architecture/README.md", "tests/golden/README.md", "tests/mutation/README.md"],
}
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def tree_pages() -> list[str]:
    """Those of PAGES that are files of the tree."""
    return ["README.md"] + [page for pages in PAGES.values() for page in pages if not page.startswith("*")]


def copy_page(page: str, source: Path) -> None:
    """A page of the tree; pictures and other files that it links to go with it."""
    made = {name.lstrip("*") for pages in PAGES.values() for name in pages} | {"README.md"}

    def follow(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if not target or ":" in target:
            return match[0]
        name = os.path.normpath(os.path.join(os.path.dirname(page), target))
        if name == "README.md":
            return f"{match[1]}{os.path.relpath('index.md', os.path.dirname(page) or '.')}{'#' * bool(anchor)}{anchor}{match[3]}"
        if name not in made:
            if not (ROOT / name).is_file():
                stop(f"{page} links to {target}: expected a file of the tree")
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
        return match[0]

    parts = re.split(r"^(```.*?^```)", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = "".join(part if at % 2 else _LINK.sub(follow, part) for at, part in enumerate(parts))
    put(source, "index.md" if page == "README.md" else page, text)


class Links(HTMLParser):
    """The links and anchors of a made page, and what it would load by itself."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {key: value or "" for key, value in attrs}
        self.anchors.add(said.get("id", ""))
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
        elif "src" in said or tag == "link" and said.get("rel") not in ("index", "next", "prev"):
            self.loads.append(said.get("src") or said.get("href", ""))


def check(site: Path) -> str:
    """Stops at a link that leads nowhere inside the site, and at anything that a page loads from outside."""
    pages = {page.resolve(): Links(page) for page in sorted(site.rglob("*.html"))}
    wrong, n_links = [], 0
    for page, found in pages.items():
        for link in found.links + found.loads:
            parts = urlsplit(link)
            if parts.scheme == "data" or (parts.scheme or parts.netloc) and link not in found.loads:
                continue
            n_links += 1
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            is_there = target.is_file() and (target not in pages or parts.fragment in pages[target].anchors)
            if parts.scheme or parts.netloc or not is_there:
                wrong.append(f"{page.relative_to(site.resolve())}: {link}")
    for sheet in site.rglob("*.css"):
        outside = re.findall(r"(?:@import|url\()[^;)]*//[^;)]*", sheet.read_text(encoding="utf-8"))
        wrong += [f"{sheet.relative_to(site)}: {found}" for found in outside if "data:" not in found]
    if wrong:
        stop(f"{len(wrong)} links lead nowhere or out of the site, the first: " + "; ".join(wrong[:5]))
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    if size > LIMIT:
        stop(f"{size / 2**20:.1f} MiB: expected at most {LIMIT >> 20} MiB")
    return f"{len(pages)} pages, {size / 2**20:.1f} MiB, {n_links} links inside it lead somewhere, nothing is loaded from outside"


def main(program: Path, work: Path, out: Path) -> None:
    source, made, began = work / "site-src", work / "site", time.monotonic()
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(made, ignore_errors=True)
    (source / "static").mkdir(parents=True)
    shutil.copy(ROOT / ".package/desktop/kvscope.svg", source / "static")
    shutil.copy(ROOT / ".package/site/wide.css", source / "static")
    for page in tree_pages():
        copy_page(page, source)
    table = commands(program, source)
    methods(program, source)
    python(source, table)
    gallery(program, work, source)
    with open(source / "index.md", "a", encoding="utf-8") as first:
        for title, pages in PAGES.items():
            first.write(contents([page.lstrip("*") for page in pages], f":hidden:\n:caption: {title}\n"))
    shutil.copy(ROOT / ".package/site/conf.py", source)
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", work / "site-doctrees", source, made])
    if done.returncode:
        stop("Sphinx found something wrong, see above")
    shutil.rmtree(made / "_sources", ignore_errors=True)
    for left in (".buildinfo", "objects.inv"):
        (made / left).unlink(missing_ok=True)
    told = check(made)
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, out)
    print(f"kvscope: {out}: {told}; {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*(Path(word).resolve() for word in sys.argv[1:]))
