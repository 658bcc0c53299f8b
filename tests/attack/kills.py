"""Kills at random moments, limits on the size of files and full disks: what has its final name is whole, what was flushed is
recovered, what resumes gives the bytes of a run that nobody disturbed, and nothing else is left over."""

import os
import resource
import shutil
import signal
import subprocess
import time

from attack_files import csv_of, read, write

SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
ENDED_BY_SIGNAL = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 130, 143}


class Writing:
    """A command that writes `out`; a resumable one goes on when it is started again with `again`."""

    def __init__(self, words, out, again=None):
        self.words, self.out, self.again = words, out, again


def writings(attack):
    trace, csv = attack.path("t.h5"), attack.path("in.csv")
    attack.run(["record", trace, "--model", "draft", "--max-tokens", "128"])
    write(csv, csv_of([b"quest", b"full"]))
    folder = attack.path("out")
    os.makedirs(folder, exist_ok=True)

    def out(name):
        return os.path.join(folder, name)

    sweep = ["sweep", trace, "--selector", "quest,streamingllm", "--budget", "16,32", "--chunk", "16", "--resamples", "200"]
    simulate = ["simulate", "perplexity", "--model", "draft", "--selector", "full,quest,streamingllm", "--budget", "tokens=32",
                "--max-tokens", "96", "--windows", "3"]
    return [Writing(["record", out("r.h5"), "--model", "draft", "--max-tokens", "512", "--chunk", "32", "--yes"], out("r.h5")),
            Writing(["record", out("z.h5"), "--model", "draft", "--max-tokens", "256", "--chunk", "32", "--yes", "--compression",
                     "gzip:6", "--capture", "attn"], out("z.h5")),
            Writing(["analyze", "quest", trace, "--out", out("a.h5")], out("a.h5")),
            Writing(sweep + ["--out", out("s.csv")], out("s.csv"), ["--resume"]),
            Writing(simulate + ["--out", out("p.csv")], out("p.csv"), ["--resume"]),
            Writing(["figure", "budget", csv, "--metric", "mass_mean", "--out", out("f.pdf")], out("f.pdf")),
            Writing(["table", csv, "--rows", "selector", "--value", "mass_mean", "--where", "budget=16",
                     "--out", out("t.tex")], out("t.tex"))]


def clear(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)


def start(attack, words, limit=None):
    def prepare():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    attack.n_runs += 1
    return subprocess.Popen([attack.program] + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, preexec_fn=prepare, cwd=attack.folder)


def finish(attack, process, words):
    try:
        said = process.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[1]
        attack.found(words, [], "still runs after 120 s")
    code = process.returncode
    attack.codes[code] = attack.codes.get(code, 0) + 1
    return code, said


def check_survivor(attack, writing, right):
    """What a run that was ended left behind."""
    if os.path.exists(writing.out):
        if writing.out.endswith(".h5") and writing.words[0] == "record":
            if not attack.run(["verify", writing.out], [writing.out]):
                attack.found(writing.words, [writing.out], "a final name on what does not verify")
        elif writing.out.endswith((".csv", ".tex")) and read(writing.out) != right:
            attack.found(writing.words, [writing.out], "a final name on other bytes")
        return
    part = writing.out + ".part"
    if writing.words[0] == "record" and os.path.exists(part):
        rescued = writing.out + ".rescued.h5"
        if attack.run(["recover", part, "--out", rescued], [part]) and not attack.run(["verify", rescued], [rescued]):
            attack.found(writing.words, [rescued], "what was recovered does not verify")


def killed(attack):
    """A run is ended at a random moment, sometimes twice; what resumes is then brought to its end."""
    folder = attack.path("out")
    known = []
    for writing in writings(attack):
        clear(folder)
        began = time.monotonic()
        code, said = finish(attack, start(attack, writing.words), writing.words)
        if code != 0:
            attack.found(writing.words, [], "the undisturbed run ended with code %d" % code, said)
            continue
        known.append((writing, time.monotonic() - began, read(writing.out)))
        yield True
    while known:
        writing, seconds, right = attack.random.choice(known)
        clear(folder)
        for words in [writing.words, writing.words + (writing.again or [])][: attack.random.randint(1, 2)]:
            if words is not writing.words and (not writing.again or os.path.exists(writing.out)):
                break
            process = start(attack, words)
            time.sleep(attack.random.random() * seconds * 1.1)
            how = attack.random.choice(SIGNALS)
            if process.poll() is None:
                process.send_signal(how)
            asked = time.monotonic()
            code, said = finish(attack, process, words)
            if how != signal.SIGKILL and time.monotonic() - asked > 20:
                attack.found(words, [], "%.0f s from %s to the end" % (time.monotonic() - asked, how.name))
            if code not in ENDED_BY_SIGNAL and code != 0:
                attack.found(words, [], "ended with code %d after %s" % (code, how.name), said)
            yield True
        check_survivor(attack, writing, right)
        if writing.again and not os.path.exists(writing.out):
            code, said = finish(attack, start(attack, writing.words + writing.again), writing.words)
            if code != 0 or read(writing.out) != right:
                attack.found(writing.words + writing.again, [writing.out],
                             "resumed, it ended with code %d and %s bytes" % (code, "other" if code == 0 else "no"), said)
        yield True


def narrow(attack):
    """Files may not grow beyond a random size, or the disk is a small one (where mounting is allowed)."""
    folder = attack.path("out")
    whole = []
    for writing in writings(attack):
        clear(folder)
        if finish(attack, start(attack, writing.words), writing.words)[0] == 0:
            whole.append((writing, sum(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder))))
    disk = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size="$1"k none "$2" && shift 2 && exec "$@"', "sh"]
    may_mount = subprocess.run(disk + ["64", folder, "true"], capture_output=True).returncode == 0
    while whole:
        writing, size = attack.random.choice(whole)
        clear(folder)
        room = attack.random.randrange(size + 1)
        if may_mount and attack.random.random() < 0.5:
            room_kib = max(4, room // 1024)
            listing = 'rc=0; "$@" || rc=$?; ls -A "%s" | sed "s/^/LEFT /" >&2; exit $rc' % folder
            words = disk + [str(room_kib), folder, "sh", "-c", listing, "sh", attack.program] + writing.words
            attack.n_runs += 1
            done = subprocess.run(words, capture_output=True, cwd=attack.folder, timeout=300)
            code, said = done.returncode, done.stderr
            attack.codes[code] = attack.codes.get(code, 0) + 1
            left = [line[5:].decode() for line in said.splitlines() if line.startswith(b"LEFT ")]
            what = "a disk of %d KiB" % room_kib
        else:
            code, said = finish(attack, start(attack, writing.words, limit=room), writing.words)
            left = os.listdir(folder)
            what = "a limit of %d bytes" % room
        allowed = {os.path.basename(writing.out)} if code == 0 else set()
        if code == 0 and os.path.basename(writing.out) not in left:
            attack.found(writing.words, [], "code 0 without its output, with " + what, said)
        if code not in (0, 3):
            attack.found(writing.words, [], "ended with code %d with %s" % (code, what), said)
        # A recording keeps what it could write, and a resumable run its store: they say so.
        if code != 0:
            left = [name for name in left if os.path.basename(writing.out) == name]
            if left:
                attack.found(writing.words, [], "%s under its final name with %s" % (left, what), said)
        yield bool(allowed)
