"""Attacks with damaged HDF5 files: traces and results, cut off anywhere and changed anywhere. What `verify` calls good must
give the numbers of the undamaged file."""

import os

from attack_files import read, write

QUOKA = ["analyze", "quoka", "--budget", "16", "--json"]


def record(attack, name, *more):
    attack.run(["record", name, "--model", "draft", "--max-tokens", "48", "--overwrite", *more])
    if not os.path.exists(name):
        attack.found(["record"], [], "no trace was written")
        return None
    return read(name)


def traces(attack):
    seeds = [record(attack, attack.path("seed%d.h5" % i), *more) for i, more in enumerate(
        [[], ["--compression", "gzip:1", "--dtype", "bf16"], ["--capture", "attn,logits", "--layers", "0,3"]])]
    if None in seeds:
        return
    name = attack.path("t.h5")
    right = []
    for seed in seeds:
        write(name, seed)
        attack.run(QUOKA + [name])
        right.append(attack.stdout)
    while True:
        i = attack.random.randrange(len(seeds))
        for data in attack.damaged(seeds[i], 8):
            write(name, data)
            yield attack.run(["info", name], [name])
            is_good = attack.run(["verify", name], [name])
            yield is_good
            if attack.run(QUOKA + [name], [name]) and is_good and attack.stdout != right[i]:
                attack.found(QUOKA, [name], "verify found nothing, and the numbers are others")
            yield True
            out = attack.path("r.h5")
            yield attack.run(["recover", name, "--out", out, "--overwrite"], [name], [])


def results(attack):
    trace = attack.path("t.h5")
    if record(attack, trace) is None:
        return
    made = [(["analyze", "quest", trace, "--overwrite"], ["quest-bounds"]),
            (["analyze", "theorem-b1", trace, "--overwrite"], ["theorem-b1"])]
    seeds = []
    for words, figures in made:
        name = attack.path("seed.h5")
        attack.run(words + ["--out", name])
        if not os.path.exists(name):
            attack.found(words, [], "no result was written")
            return
        seeds.append((read(name), figures))
    name = attack.path("r.h5")
    while True:
        seed, figures = attack.random.choice(seeds)
        for data in attack.damaged(seed, 6):
            write(name, data)
            out = attack.path("f." + attack.random.choice(["svg", "pdf", "tex"]))
            yield attack.run(["figure", attack.random.choice(figures), name, "--out", out, "--overwrite"], [name], [out])
            yield attack.run(["table", name, "--rows", "layer", "--value", "violations|rows"], [name])
            yield attack.run(["info", name], [name])
