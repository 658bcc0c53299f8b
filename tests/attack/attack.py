#!/usr/bin/env python3
"""Attacks the built program with damaged and hostile files, texts and options; seeded.

    python3 tests/attack/attack.py build/release/bin/kvscope              # all kinds, some minutes
    python3 tests/attack/attack.py PROGRAM --seconds 25 --seed 7          # a share of each kind
    python3 tests/attack/attack.py PROGRAM --only csv,texts --keep DIR    # findings' inputs stay in DIR

A run fails if the program dies of a signal, ends with another code than its documented ones, takes
longer than 20 s or more than 6 GiB, writes terminal escapes, writes a message of more than 6,000
characters, or ends well with an output that is not whole. Standard library only.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import hdf5_files
import kills
from attack_files import csv_of, read, write

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden")
SECONDS = 20
MEMORY = 6 << 30
CODES = {0, 2, 3, 5}  # 5: reproduce found a difference

HOSTILE_TEXTS = [
    b"$\\^^69^^6e^^70ut{/etc/passwd}$", b"\\input{/etc/passwd}", b"a$b", b"$x^y^z_a_b$",
    b"\x1b]0;title\x07\x1b[2J", b"\xc2\x9b31m", b"\xff\xfe", b"\xc0\xaf", b"\xed\xa0\x80",
    b"\xef\xbf\xbe", b"\xf4\x90\x80\x80", "\u202eevil\u2066".encode(), "\U0001f600".encode(),
    b"<script>alert(1)</script>", b"]]>&amp;\"'", b"=cmd|' /C calc'!A0", b"@SUM(1)", b"[2cm]",
    b"% end", b"w" * 10000, b"", b" ", b"-", b"nan", b"1e999", b"a\\\nb",
]
ODD_VALUES = [
    "0", "-1", "1", "99999999999", "9223372036854775807", "-9223372036854775808", "1e308", "nan",
    "inf", "", " ", "0.5", "1,2,3", "0-999999", "x" * 10000, "../..", "/dev/null", "/nonexistent/x",
    "\x1b[31mred", "\u202ex", "--", "-", "=1", "tokens=1", "tokens=99999999999", "ratio=0.5", "p=2",
    "quest", "quest,quest", "full+full", "quoka:n-queries=99999999999", "[" * 5000, "1;2", "true",
]


class Attack:
    def __init__(self, program, folder, seed, keep):
        self.program = os.path.abspath(program)
        self.folder = folder
        self.random = random.Random(seed)
        self.keep = keep
        self.n_runs = 0
        self.codes = {}
        self.findings = []
        self.stdout = b""  # of the last run

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, words, inputs=(), outputs=(), stdin=b""):
        """Runs the program and judges how it ended; True if it ended with code 0."""
        for name in outputs:
            if os.path.exists(name):
                os.remove(name)

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        self.n_runs += 1
        try:
            # A loaded machine makes wall time long: processor time is what counts.
            done = subprocess.run([self.program] + words, input=stdin, capture_output=True,
                                  timeout=6 * SECONDS, preexec_fn=limit, cwd=self.folder)
        except subprocess.TimeoutExpired:
            self.found(words, inputs, "still runs after %d s" % (6 * SECONDS))
            return False
        except (ValueError, OSError):  # an argument that no program can be given
            return False
        self.stdout = done.stdout
        code = done.returncode
        self.codes[code] = self.codes.get(code, 0) + 1
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            self.found(words, inputs, "more than %d s of processor time" % SECONDS)
        elif code < 0:
            self.found(words, inputs, "died of signal %d" % -code, done.stderr)
        elif code not in CODES:
            self.found(words, inputs, "exit code %d" % code, done.stderr)
        for stream in (done.stdout, done.stderr):
            if b"\x1b" in stream or b"\xc2\x9b" in stream:
                self.found(words, inputs, "a terminal escape was written", stream)
        if code != 0 and len(done.stderr) > 6000:
            self.found(words, inputs, "a message of %d bytes" % len(done.stderr))
        if code != 0 and not done.stderr.strip() and not done.stdout.strip():
            self.found(words, inputs, "ended with code %d without a word" % code)
        if code == 0:
            for name in outputs:
                self.check_whole(words, inputs, name)
        return code == 0

    def check_whole(self, words, inputs, name):
        try:
            with open(name, "rb") as file:
                data = file.read()
            text = data.decode("utf-8") if not name.endswith((".pdf", ".png", ".h5")) else ""
            if name.endswith(".svg"):
                xml.etree.ElementTree.fromstring(text)
            elif name.endswith(".pdf"):
                assert data.startswith(b"%PDF") and b"%%EOF" in data[-32:]
            elif name.endswith(".json"):
                json.loads(text)
            elif name.endswith(".tex"):
                text = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
                assert "^^" not in text and "\\input{/" not in text
                assert text.count("\\begin{") == text.count("\\end{") > 0
            elif name.endswith((".csv", ".md")):
                assert text.endswith("\n")
        except (OSError, AssertionError, ValueError, xml.etree.ElementTree.ParseError) as error:
            self.found(words, inputs, "code 0, but %s is not whole: %r" % (name, error))

    def found(self, words, inputs, what, said=b""):
        shown = [word if len(word) < 200 else word[:80] + "..." for word in words]
        entry = "%s\n    kvscope %s\n    %s" % (what, shown, said[-300:])
        if self.keep:
            os.makedirs(self.keep, exist_ok=True)
            for name in inputs:
                target = os.path.join(self.keep, "%d_%s" % (len(self.findings), os.path.basename(name)))
                if os.path.isfile(name):
                    shutil.copy(name, target)
                entry += "\n    input kept as " + target
        self.findings.append(entry)
        print("FINDING", entry, flush=True)

    # ---- inputs ----

    def mutate(self, data):
        """One to eight changes: bit, byte, integer, range, swap, repeat, cut, hostile text."""
        out = bytearray(data)
        for _ in range(self.random.randint(1, 8)):
            if not out:
                break
            at = self.random.randrange(len(out))
            end = min(len(out), at + self.random.randint(1, 32))
            kind = self.random.randrange(10)
            if kind == 0:
                out[at] ^= 1 << self.random.randrange(8)
            elif kind == 1:
                out[at] = self.random.randrange(256)
            elif kind == 2:
                out[at:end] = str(self.random.choice([0, -1, 2**31, 2**63, 1e308, 99999999])).encode()
            elif kind == 3:
                out[at:end] = self.random.choice([b"\0", b"\xff", b"[", b"{", b'"', b","]) * (end - at)
            elif kind == 4:
                other = self.random.randrange(len(out))
                out[at], out[other] = out[other], out[at]
            elif kind == 5:
                out[at:at] = out[at:end] * self.random.randint(1, 40)
            elif kind == 6:
                del out[at:end]
            elif kind == 7:
                del out[self.random.randrange(len(out)):]
            elif kind == 8:
                out[at:at] = self.random.choice(HOSTILE_TEXTS)
            else:
                out[at:at] = b"[" * self.random.choice([10, 100, 10000, 200000])
        return bytes(out)

    def damaged(self, data, n):
        """n variants of data: cuts and mutations."""
        for i in range(n):
            yield data[: self.random.randrange(len(data) + 1)] if i % 4 == 0 else self.mutate(data)


def checksum(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % value


def with_checksums(lines):
    return b"".join(b'{"sum":"%s","data":%s}\n' % (checksum(l).encode(), l) for l in lines)


# ---- kinds of attack: each yields after a run, so that all get their share of the time ----

def csv_files(attack):
    seeds = [csv_of([b"quest", b"full", b"quoka"]), read(os.path.join(GOLDEN, "results/passkey.csv"))]
    name = attack.path("in.csv")
    while True:
        seed = attack.random.choice(seeds)
        for data in attack.damaged(seed, 8):
            write(name, data)
            kind = attack.random.choice(["svg", "pdf", "tex"])
            yield attack.run(["figure", "budget", name, "--metric", "mass_mean", "--out",
                              attack.path("fig." + kind), "--overwrite"], [name],
                             [attack.path("fig." + kind)])
            yield attack.run(["table", name, "--rows", "selector", "--value", "mass_mean|accuracy",
                              "--format", attack.random.choice(["latex", "markdown", "csv"])], [name])


def texts(attack):
    name = attack.path("texts.csv")
    while True:
        for text in HOSTILE_TEXTS:
            if attack.random.random() < 0.3:
                text = attack.mutate(text + b"x")[:5000]
            write(name, csv_of([text, b"full"]))
            for kind in ("svg", "pdf", "png", "tex"):
                out = attack.path("hostile." + kind)
                yield attack.run(["figure", "budget", name, "--metric", "mass_mean", "--out", out,
                                  "--overwrite"], [name], [out])
            for kind, ending in (("latex", ".tex"), ("markdown", ".md"), ("csv", ".csv")):
                out = attack.path("table" + ending)
                yield attack.run(["table", name, "--rows", "selector", "--value", "mass_mean",
                                  "--where", "budget=16", "--format", kind, "--out", out, "--overwrite"], [name], [out])
            shown = text.replace(b"\0", b"")
            yield attack.run(["info", os.fsdecode(shown)], [])
            yield attack.run([os.fsdecode(shown)], [])
            yield attack.run(["figure", os.fsdecode(shown), name, "--selector", os.fsdecode(shown)], [])


def json_files(attack):
    rows = [{"selector": s, "budget": b, "mass_mean": 0.5, "layer": 0, "budget_kind": "tokens",
             "phase": "prefill", "trace": "t"} for s in ("full", "quest") for b in (16, 32)]
    seeds = [json.dumps(rows).encode(), json.dumps({"kind": "sweep", "rows": rows}).encode(),
             json.dumps({"summary": {"layers": rows}}).encode()]
    name = attack.path("in.json")
    wide = ("[{" + ",".join('"k%d":%d' % (i, i) for i in range(60000)) + "}]").encode()
    long = ("[" + ",".join('{"selector":"a","mass_mean":%d}' % i for i in range(80000)) + "]").encode()
    deep = b"[" * 200000 + b"]" * 200000
    for data in (wide, long, deep, b'{"a":' * 100000 + b"1" + b"}" * 100000):
        write(name, data)
        yield attack.run(["table", name, "--rows", "selector", "--value", "mass_mean"], [name])
    while True:
        for data in attack.damaged(attack.random.choice(seeds), 6):
            write(name, data)
            yield attack.run(["table", name, "--rows", "selector", "--value", "mass_mean"], [name])
            yield attack.run(["sweep", attack.path("none.h5"), "--config", name], [name])


def token_files(attack):
    name = attack.path("tokens.json")
    out = attack.path("never.h5")
    for data in (b"[" * 100000 + b"]" * 100000, b'{"ids":' + b"[" * 100000, b"[1,2,99999999999]",
                 b"\x1b[31m", b"1 2 " + b"w" * 10000):
        write(name, data)
        yield attack.run(["record", out, "--tokens", name], [name])
    while True:
        for data in attack.damaged(b'{"ids": [900000, 900001, 900002], "n": 3}', 4):
            write(name, data)
            yield attack.run(["record", out, "--tokens", name, "--overwrite", "--model", "draft"],
                             [name])


def model_folder(attack, file):
    source = os.path.join(GOLDEN, "qwen3")
    folder = attack.path("model_" + file)
    os.makedirs(folder, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(os.path.join(source, name), folder)
    shutil.copy(os.path.join(GOLDEN, "tokenizer/tokenizer.json"), folder)
    return folder, read(os.path.join(folder, file))


def config_files(attack):
    folder, seed = model_folder(attack, "config.json")
    name = os.path.join(folder, "config.json")
    while True:
        for data in attack.damaged(seed, 8):
            write(name, data)
            yield attack.run(["info", folder], [name])


def safetensors_files(attack):
    folder, seed = model_folder(attack, "model.safetensors")
    name = os.path.join(folder, "model.safetensors")
    n_header = 8 + int.from_bytes(seed[:8], "little")

    def with_header(header, data=b""):
        return len(header).to_bytes(8, "little") + header + data

    empty = b'{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    many = b"{" + b",".join(b'"t%d":%s' % (i, empty) for i in range(100000)) + b"}"
    for data in (with_header(many), with_header(b"[" * 100000), b"", seed[:8]):
        write(name, data)
        yield attack.run(["info", folder], [name])
    while True:
        for header in attack.damaged(seed[8:n_header], 6):
            fixed = attack.random.random() < 0.7
            write(name, with_header(header, seed[n_header:]) if fixed else seed[:8] + header)
            yield attack.run(["info", folder], [name])


def tokenizer_files(attack):
    folder, seed = model_folder(attack, "tokenizer.json")
    name = os.path.join(folder, "tokenizer.json")
    while True:
        for data in attack.damaged(seed, 4):
            write(name, data)
            yield attack.run(["tokenize", "--model", folder, "--prompt", "Some words, 123!"], [name])


def manifests(attack):
    folder = attack.path("figure")
    os.makedirs(folder, exist_ok=True)
    source = os.path.join(folder, "s.csv")
    write(source, csv_of([b"quest", b"full"]))
    attack.run(["figure", "budget", source, "--metric", "mass_mean", "--out",
                os.path.join(folder, "b.svg")])
    name = os.path.join(folder, "b.json")
    if not os.path.exists(name):
        attack.found(["figure"], [source], "no manifest was written")
        return
    seed = read(name)
    yield attack.run(["reproduce", name], [name])
    while True:
        for data in attack.damaged(seed, 6):
            write(name, data)
            yield attack.run(["reproduce", name], [name])


def stores(attack):
    """Stores of a sweep, with checksums made right after the damage."""
    trace, kept, out = (attack.path(name) for name in ("t.h5", "kept", "m.json"))
    words = ["sweep", trace, "--selector", "streamingllm", "--budget", "16", "--chunk", "32", "--resamples", "10",
             "--layers", "0", "--heads", "0", "--store", kept]
    attack.run(["record", trace, "--model", "draft", "--max-tokens", "64"])
    attack.run(words)
    answers = os.path.join(kept, "answers")
    if not os.path.isdir(answers):
        attack.found(["sweep"], [], "no store was written")
        return
    name = os.path.join(answers, os.listdir(answers)[0])
    lines = [json.loads(line) for line in read(name).splitlines()]
    seeds = [json.dumps(line["data"], separators=(",", ":")).encode() for line in lines]

    def attempt(data):
        for other in os.listdir(answers):  # what earlier tries added
            os.remove(os.path.join(answers, other))
        write(name, with_checksums(data))
        return attack.run([*words, "--out", out], [name], [out])

    if not attempt(seeds):
        attack.found(["sweep"], [name], "the undamaged store was refused")
    yield attempt([b"[" * 100000 + b"]" * 100000])
    while True:
        changed = list(seeds)
        at = attack.random.randrange(len(changed))
        if attack.random.random() < 0.5:
            value = damage_value(attack.random, json.loads(changed[at]))
            changed[at] = json.dumps(value, separators=(",", ":")).encode()
        else:
            changed[at] = attack.mutate(changed[at]).replace(b"\n", b" ")
        yield attempt(changed)


def damage_value(rng, value, depth=0):
    """JSON with one place changed: still JSON, but not what was meant."""
    if isinstance(value, (dict, list)) and value and (depth < 1 or rng.random() < 0.8):
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        if rng.random() < 0.15:
            del value[key]
        elif isinstance(value, list) and rng.random() < 0.15:
            value.insert(key, value[key])
        else:
            value[key] = damage_value(rng, value[key], depth + 1)
        return value
    return rng.choice([None, 0, -1, 2**63, 1e300, 0.5, "", "x" * 300, "\x1b[2J", [], {}, [[]], True])


def options(attack):
    """Every option of every command with odd values; the program says which there are."""
    commands = json.loads(subprocess.run([attack.program, "help", "--json"], capture_output=True,
                                         check=True).stdout)
    known = [(command["name"].split(), "--" + option["name"], option["value"] != "")
             for command in commands for option in command["options"]]
    slow = {"bench", "explorer"}  # measure by design
    known = [k for k in known if k[0][0] not in slow and k[1] != "--out"]
    csv = attack.path("options.csv")
    write(csv, csv_of([b"quest", b"full"]))
    while True:
        command, option, takes_value = attack.random.choice(known)
        words = list(command)
        if command[0] in ("figure", "table"):
            words += ["budget", csv] if command[0] == "figure" else [csv]
        elif command[0] in ("analyze", "sweep", "verify", "recover"):
            words += [attack.path("none.h5")]
        elif command[0] == "simulate":
            words += ["--model", "draft", "--draft", "draft", "--selector", "full"]
            small = {"--lengths": "96", "--depths": "1", "--trials": "1", "--max-tokens": "40",
                     "--prompt": "40", "--n-new": "4", "--prompts": "1", "--windows": "1",
                     "--fed": "4", "--steps": "4"}
            has = {k[1] for k in known if k[0] == command}
            for name, value in small.items():
                if name in has and name != option:
                    words += [name, value]
        elif command[0] == "record":
            words += [attack.path("rec.h5"), "--model", "draft", "--overwrite"]
            if option not in ("--max-tokens", "--tokens"):
                words += ["--max-tokens", "16"]
        words += [option] + ([attack.random.choice(ODD_VALUES)] if takes_value else [])
        yield attack.run(words)


KINDS = {"csv": csv_files, "texts": texts, "json": json_files, "tokens": token_files,
         "config": config_files, "safetensors": safetensors_files, "tokenizer": tokenizer_files,
         "manifest": manifests, "store": stores, "options": options,
         "traces": hdf5_files.traces, "results": hdf5_files.results, "kills": kills.killed,
         "narrow": kills.narrow}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--keep", default="")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="kvscope-attack-")
    kinds = arguments.only.split(",")
    total = {}
    findings = 0
    end = time.monotonic() + arguments.seconds
    try:
        for i, kind in enumerate(kinds):
            own = os.path.join(folder, kind)
            os.makedirs(own)
            attack = Attack(arguments.program, own, "%d/%s" % (arguments.seed, kind), arguments.keep)
            share = (end - time.monotonic()) / (len(kinds) - i)
            until = time.monotonic() + max(share, 0.5)
            for _ in KINDS[kind](attack):
                if time.monotonic() > until:
                    break
            total[kind] = attack.n_runs
            findings += len(attack.findings)
            print("%-12s %6d runs, codes %s" % (kind, attack.n_runs, attack.codes), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("%d runs, %d findings, seed %d" % (sum(total.values()), findings, arguments.seed))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
