#!/usr/bin/env python3
"""Writes cases.json: what Python's jinja2, set up as transformers sets it up, makes of the templates here.

    python3 tests/golden/chat/make_chat.py                      # the templates of this folder
    python3 tests/golden/chat/make_chat.py DIR OUT.json         # those of another folder

The templates are written for kvscope; their names say which part of the language they use.
"""
import json
import sys
from datetime import datetime
from pathlib import Path

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %}: transformers marks the assistant's part with it; it writes its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body, lineno=line)


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime(2024, 7, 26, 12).strftime(format)
    return env


def message(role, content, **more):
    return {"role": role, "content": content, **more}


TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a place.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "Its \"name\", as <written> & said"},
        "days": {"type": "integer", "description": "How many", "default": 3},
        "unit": {"type": "string", "enum": ["C", "F"]}}}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "days": 2, "exact": True}}}

CONVERSATIONS = {
    "one question": dict(messages=[message("user", "  What is a cache?\n")]),
    "rules and a question": dict(messages=[message("system", " Be brief. "), message("user", "Who wrote \"Kidnapped\"?")]),
    "three turns": dict(messages=[message("user", "Count: 1"), message("assistant", " 2 \n"), message("user", "and then?"),
                                  message("assistant", "3\n\n4"), message("user", "日本語 é 😀 <|x|> {{ y }}")]),
    "a thought": dict(messages=[message("system", "S"), message("user", "Why?"),
                                message("assistant", "<think>\nwell\n</think>\n\nBecause."), message("user", "Sure?")]),
    "no answer asked": dict(messages=[message("user", "Hi"), message("assistant", "Hello.")], add_generation_prompt=False),
    "a tool": dict(messages=[message("user", "Rain?"), message("assistant", "", tool_calls=[CALL]),
                             message("tool", "{\"rain\": true}", name="weather", tool_call_id="call00001"), message("user", "Thanks")],
                   tools=[TOOL]),
    "parts of content": dict(messages=[message("user", [{"type": "text", "text": "One "}, {"type": "text", "text": "two"}])]),
    "nothing said": dict(messages=[message("user", "")]),
    "two of the user": dict(messages=[message("user", "a"), message("user", "b")]),
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else folder / "cases.json"
    env = environment()
    cases = {}
    for file in sorted(folder.glob("*.jinja")):
        cases[file.stem] = {}
        for name, conversation in CONVERSATIONS.items():
            values = {"tools": None, "documents": None, "add_generation_prompt": True, **SPECIAL, **conversation}
            try:
                cases[file.stem][name] = env.from_string(file.read_text()).render(**values)
            except Exception as error:  # a template may refuse a conversation
                cases[file.stem][name] = None
                if len(sys.argv) > 1:
                    print(f"{file.stem}, {name}: {type(error).__name__}: {error}", file=sys.stderr)
    out.write_text(json.dumps({"conversations": CONVERSATIONS, "special": SPECIAL, "cases": cases}, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
