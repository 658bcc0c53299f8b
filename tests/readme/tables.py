"""Tables in documents are what the command beside them prints: tables.py PROGRAM.

Such a command stands on a line of its own, "    $ kvscope table ... --format markdown", and is run in the page's folder.
"""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"^ {4}\$ kvscope (table .* --format markdown)$", re.M)


def main(program):
    n_tables, wrong = 0, 0
    for page in [ROOT / "README.md", *sorted(ROOT.glob("results/**/*.md"))]:
        text = page.read_text(encoding="utf-8")
        for words in COMMAND.findall(text):
            n_tables += 1
            done = subprocess.run(["bash", "-c", f"{program} {words}"], cwd=page.parent, capture_output=True, text=True, check=False)
            if done.returncode != 0 or done.stdout.strip() not in text:
                wrong += 1
                print(f"{page.relative_to(ROOT)}: {words}\n{done.stderr}")
                sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), done.stdout.splitlines(True), "page", "command", n=0))
    print(f"{n_tables} tables, {wrong} of them others than the page's")
    return 1 if wrong or n_tables == 0 else 0


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main(os.path.abspath(sys.argv[1])))
