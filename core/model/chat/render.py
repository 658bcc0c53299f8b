"""Renders chat templates by jinja2, set up as transformers sets it up; the program starts it with python3 -I -c.

A message is its length in decimal, a line feed and so many bytes of JSON. The first, {} or {"error"}, says whether
jinja2 is here; then every {"template", "values"} is answered by {"text"} or {"error"}.
"""
import functools
import json
import random
import resource
import signal
import sys
import traceback
from datetime import datetime

MOST_SECONDS = 10  # of one text; the program itself kills what no signal interrupts
MOST_BYTES = 1 << 29  # of memory


def answer(**said):
    body = json.dumps(said, ensure_ascii=False).encode()
    sys.stdout.buffer.write(b"%d\n%s" % (len(body), body))
    sys.stdout.buffer.flush()


try:
    from jinja2 import TemplateError, TemplateSyntaxError, nodes
    from jinja2.ext import Extension, LoopControlExtension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except Exception as error:
    sys.exit(answer(error=str(error)))


class Generation(Extension):
    """{% generation %}, by which transformers marks what the assistant says, writes its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def refuse(message):
    raise TemplateError(f"it refuses the conversation: {message}")


def end(*_):
    raise TimeoutError(f"it takes more than {MOST_SECONDS} s")


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def sentence(error):
    """Where in the template it happened, if that is known, and what jinja2 says, in characters that a terminal shows."""
    steps = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in steps if frame.f_code.co_filename == "<template>"]
    if isinstance(error, TemplateSyntaxError):
        lines = [error.lineno]
    said = str(error) or f"it takes more than {MOST_BYTES >> 20} MiB of memory"
    said = f"{type(error).__name__}: {said[:1000]}"
    return (f"line {lines[-1]}: " if lines else "") + "".join(c if c.isprintable() else " " for c in said)


world = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension])
world.filters["tojson"] = to_json
world.globals["raise_exception"] = refuse
world.globals["strftime_now"] = datetime(2024, 7, 26, 12).strftime  # so that a prompt is the same tomorrow
compiled = functools.lru_cache(1)(world.from_string)
signal.signal(signal.SIGALRM, end)
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's
resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
answer()
while length := sys.stdin.buffer.readline():
    asked = json.loads(sys.stdin.buffer.read(int(length)))
    random.seed(0)
    signal.alarm(MOST_SECONDS)
    try:
        text = compiled(asked["template"]).render(**asked["values"])
        signal.alarm(0)
        answer(text=text)
    except Exception as error:
        signal.alarm(0)
        answer(error=sentence(error))
