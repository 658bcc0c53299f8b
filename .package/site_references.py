"""Pages of the documentation site that nobody writes: commands and methods, as the program tells them, all figures, drawn, and
the Python package, by its sources."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Before the gallery's commands, and words that keep a few of them short.
FIRST = ["kvscope record verifier.h5 --max-tokens 1024 --decode 32", "kvscope record draft.h5 --model draft --tokens verifier.h5",
         "cp verifier.h5 trace.h5"]
SHORTER = {
    "latency": ["kvscope bench live --selector quoka --lengths 512,1024,2048 --json > live.json"],
    "needle": ["kvscope simulate retrieval --selector quoka,streamingllm --budget 128 --lengths 512,1024 --out needle.h5"],
    "pareto": ["kvscope sweep trace.h5 --phase decode --selector full,quest,quoka,sparq --budget 64,256 --hardware h100-sxm --out pareto.csv"],
}


def stop(sentence: str) -> None:
    sys.exit(f"kvscope: site: {sentence}")


def ask(program: Path, *words: str) -> str:
    if not os.access(program, os.X_OK):
        stop(f"{program}: expected the program kvscope")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode:
        stop(f"{program.name} {' '.join(words)} ended with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def put(source: Path, name: str, text: str) -> None:
    (source / name).parent.mkdir(parents=True, exist_ok=True)
    (source / name).write_text(text, encoding="utf-8")


def block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def contents(names: list[str], options: str = "") -> str:
    return "\n```{toctree}\n" + options + "\n" + "\n".join(names) + "\n```\n"


def commands(program: Path, source: Path) -> list[dict]:
    """A page for each command, and their list."""
    table = json.loads(ask(program, "help", "--json"))
    for about in table:
        text = ask(program, *about["name"].split(), "--help")
        about["page"] = f"commands/{about['name'].replace(' ', '-')}.md"
        put(source, about["page"], f"# kvscope {about['name']}\n\n{about['summary']}.\n\n{block(text.partition(chr(10))[2].strip())}")
    lines = [f"| [{about['name']}]({about['page']}) | {about['summary']} |" for about in table]
    head = "# All commands\n\nThe help of every command, as the program prints it.\n\n| `kvscope` | |\n|---|---|\n"
    put(source, "commands.md", head + "\n".join(lines) + "\n" + contents([f"/{about['page']}" for about in table], ":hidden:\n"))
    return table


def methods(program: Path, source: Path) -> None:
    """Every selection method with its source and options."""
    out = ["# Methods and their sources\n\nWhat `kvscope selectors` knows. [How they compare with the authors' own programs]"
           "(core/selectors/CONFORMANCE.md).\n"]
    for about in json.loads(ask(program, "selectors", "--json"))["selectors"]:
        where = re.sub(r"\b\d{4}\.\d{5}\b", lambda number: f"[{number[0]}](https://arxiv.org/abs/{number[0]})", about["source"])
        out.append(f"## {about['name']}\n\n**{about['title']}.** {about['idea'][:1].upper()}{about['idea'][1:]}.\n\nSource: {where}. "
                   f"Family: {about['family']}. Phases: {', '.join(about['phases'])}. Lists of each: {about['list_owner']}. "
                   f"Budgets: {', '.join(about['budgets']) or 'none; its options say how much'}.\n")
        if about["options"]:
            rows = [[f"`{option['name']}`", f"`{option['default']}`", option["expected"], option["help"]] for option in about["options"]]
            out.append("| option | default | expected | meaning |\n|---|---|---|---|\n"
                       + "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows) + "\n")
        for name, options in about["presets"].items():
            out.append(f"Preset `{name}`: {', '.join(f'`{key}={value}`' for key, value in options.items())}.\n")
    put(source, "methods.md", "\n".join(out))


def gallery(program: Path, work: Path, source: Path) -> None:
    """Every figure with its commands, which are run; a second site of the same program and script finds the pictures made."""
    folder = work / ("gallery-" + hashlib.sha256(program.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16])
    ready = folder / "ready"
    if not ready.exists():
        for old in work.glob("gallery-*"):
            shutil.rmtree(old)
        folder.mkdir(parents=True)
    environment = os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    made: set[str] = set()

    def run(words: str) -> None:
        if not ready.exists() and words not in made:
            done = subprocess.run(["bash", "-c", words], cwd=folder, env=environment, capture_output=True, text=True)
            if done.returncode:
                stop(f"the gallery's command failed: {words}: {done.stderr.strip()[-400:]}")
        made.add(words)

    for words in FIRST:
        run(words)
    out = [f"# All figures\n\nOf the model that comes with kvscope, after\n\n{block(chr(10).join(FIRST), 'sh')}\n"
           "which is a short text, so that all can be drawn in a minute. `kvscope figures NAME` says what a figure takes, and "
           "how to make that at full length.\n"]
    for about in json.loads(ask(program, "figures", "--json"))["figures"]:
        name = about["name"]
        steps = SHORTER.get(name) or [about["command"].replace("--out ", f"--out {name}-", 1)]
        inputs = re.findall(r"(?:--out|>) (\S+)$", steps[-1])
        if name == "attention-map":  # and QuoKA's choice upon it
            steps, inputs = [*steps, "kvscope analyze quoka trace.h5 --out chosen.h5"], [*inputs, "chosen.h5"]
        draw = f"kvscope figure {name} {' '.join(inputs)}"
        for words in [*steps, *(f"{draw} --out {name}-{theme}.png --theme {theme} --dpi 150" for theme in ("light", "dark"))]:
            run(words)
        pictures = "\n".join(f"![{about['shows']}](gallery/{name}-{theme}.png){{.only-{theme}}}" for theme in ("light", "dark"))
        out.append(f"## {name}\n\n{about['shows'][:1].upper()}{about['shows'][1:]}. Drawn from {about['needs']}.\n\n"
                   f"{block(chr(10).join([*steps, draw]), 'sh')}\n{pictures}\n")
    for result in {*folder.iterdir()} - {*folder.glob("*.png")}:  # over 100 MB
        result.unlink()
    ready.touch()
    (source / "gallery").mkdir()
    for picture in folder.glob("*.png"):
        shutil.copy(picture, source / "gallery")
    put(source, "gallery.md", "\n".join(out))


def python(source: Path, table: list[dict[str, Any]]) -> None:
    """The public names of the package. Nothing of it is imported but how commands become functions."""
    package = ROOT / "traces/python/kvscope"
    spec = importlib.util.spec_from_file_location("signatures", package / "signatures.py")
    signatures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(signatures)
    made = definitions(signatures.stub(table))
    places = next(node for node in ast.parse((package / "__init__.py").read_text()).body
                  if isinstance(node, ast.Assign) and node.targets[0].id == "_PLACES")
    out = ["# Python reference\n\n`import kvscope as kvs`; [how it is used](traces/python/README.md).\n"]
    for name, place in sorted(ast.literal_eval(places.value).items(), key=lambda item: item[0].lower()):
        files = [package / f"{place}.py", package / "_native.pyi", *sorted((package.parent / "kvscope_recorder").glob("*.py"))]
        node = next((found[name] for file in files if name in (found := definitions(file.read_text()))), None)
        out.append(f"## kvs.{name}\n")
        if name in ("analyze", "simulate"):
            for command in made[f"_{name.title()}"].body:
                out += [shown(command, f"kvs.{name}."), f"{ast.get_docstring(command).splitlines()[0]} "
                        f"[All options](commands/{name}-{command.name.replace('_', '-')}.md).\n"]
        elif node is None:
            stop(f"kvs.{name}: expected its definition in {files[0].name}")
        elif isinstance(node, ast.ClassDef):
            out += [block(f"class {name}({', '.join(map(ast.unparse, node.bases))})".replace("()", ""), "python"), told(node)]
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name[0] != "_":
                    out += [shown(method, f"{name}."), told(method)]
        else:
            if name == "policy":
                method = definitions(files[0].read_text())["attn_implementation"]
                out += [shown(method, "kvs.policy."), told(method)]
            out += [shown(made.get(name, node) if name != "run" else node, "kvs."), told(node)]
            if name in made and name != "run":
                out.append(f"[All options](commands/{name}.md)\n")
    put(source, "python.md", "\n".join(out))


def definitions(text: str) -> dict[str, Any]:
    """Functions and classes of a module by name; of overloads the last, which has the documentation."""
    return {node.name: node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def shown(node: ast.FunctionDef, owner: str) -> str:
    """How it is called; a property has no arguments."""
    words = re.sub(r"(?<=[\w\]'])=(?=\S)", " = ", ast.unparse(node.args).removeprefix("self").removeprefix(", "))
    is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    line = f"{owner}{node.name}{'' if is_property else f'({words})'}{f' -> {ast.unparse(node.returns)}' if node.returns else ''}"
    return block("\n".join(textwrap.wrap(line, 100, subsequent_indent="    ", break_long_words=False)), "python")


def told(node: ast.AST) -> str:
    """Its docstring; paragraphs that are set in columns as they stand."""
    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
    return "\n\n".join(block(text) if "  " in text else text for text in paragraphs) + "\n"
