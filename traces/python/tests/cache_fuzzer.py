"""What is done to caches under kvs.policy, at random: every row's logits are those of a fresh run of its own, or the call is
refused in a sentence.

    python cache_fuzzer.py 10000 [--seed 0]      from this folder; so many random sequences of operations, in slices of 100

A sequence of operations draws a method, an engine and phases, and then, inside one policy block over a tiny random Llama with
several caches: prompts in chunks, batches padded on the left, static and dynamic caches, caches filled before the block, single
tokens and several (as verification feeds them), rows reordered and doubled, caches cut back, copied and used in turn, beam search
and assisted decoding by generate(). Beside each row of each cache runs its lineage: its tokens, and where its calls ended. In the
end every lineage is run alone, call by call, in a block of its own; the logits of its last call have to be equal. Calls that
were cut off whole are not run; one that was cut through is run whole and cut, since what its first tokens saw was chosen with
its last ones there.

Refusals count as such only where the method may refuse: with a history, after its past was disturbed.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field

import kvscope as kvs
import torch
from conftest import IS_FIVE, small_llama
from kvscope._load import native
from kvscope.policy_method import Method
from transformers import DynamicCache, StaticCache

#: Of each method of the registry that a policy can run: options small enough for some ten tokens.
SPECS = {
    "adakv": "adakv:window=3,kernel=3@tokens=6",
    "bigbird": "bigbird:block=3,n-random=1",
    "critical": "critical:window=3,kernel=3@tokens=6",
    "expected-attention": "expected-attention:n-future=8,n-sink=1@tokens=6",
    "lessismore": "lessismore:dense-layers=0,n-sink=1@tokens=4",
    "blockmean": "blockmean:block=4,kernel=2,stride=2@tokens=8",
    "flexprefill": "flexprefill:block=4,n-voters=4,min-budget=4",
    "h2o": "h2o@tokens=6",
    "keydiff": "keydiff@tokens=6",
    "knorm": "knorm@tokens=6",
    "lagkv": "lagkv:lag=3,n-sink=1@tokens=8",
    "loki": "loki:rank=4@tokens=4",
    "longformer": "longformer:window=5",
    "magicpig": "magicpig:bits=3,tables=6,n-recent=3,n-sink=1,dense-every=0",
    "minference-a-shape": "minference-a-shape:n-init=2,n-local=4",
    "minference-block-sparse": "minference-block-sparse:block=4,top-blocks=2",
    "minference-vertical-slash": "minference-vertical-slash:sizes=budget,n-voters=4,forced-vertical=1,forced-slash=1@tokens=5",
    "oracle-pages": "oracle-pages:page-size=3@tokens=6",
    "oracle-topk": "oracle-topk@tokens=4",
    "ceiling": "ceiling:level=0.05",
    "oracle-topp": "oracle-topp@p=0.6",
    "pqcache": "pqcache:parts=2,bits=2,n-recent=2,n-sink=1@tokens=5",
    "quest": "quest:page-size=3,dense-layers=0@tokens=6",
    "quoka": "quoka:n-queries=3@tokens=4",
    "random": "random@tokens=4",
    "recent": "recent@tokens=4",
    "rocket2": "rocket2:compression=4@tokens=4",
    "rocketkv": "rocketkv:prompt-budget=tokens=8,window=3,kernel=3@tokens=5",
    "sampleattention": "sampleattention:n-queries=2@tokens=4",
    "shadowkv": "shadowkv:page-size=3,outliers=1,local-chunks=1@tokens=6",
    "sink-recent": "sink-recent@tokens=4",
    "skip-softmax": "skip-softmax:block-q=4,block-k=4,lambda=0.3",
    "snapkv": "snapkv:window=3,kernel=3@tokens=6",
    "socket": "socket:bits=3,tables=4,n-sink=1,n-recent=2@tokens=4",
    "spargeattn": "spargeattn:block-q=4,block-k=4,tau=0.5",
    "sparq": "sparq:mean-value=false,channel-share=0.5@tokens=5",
    "streamingllm": "streamingllm:n-sink=2@tokens=6",
    "strided": "strided@tokens=4",
    "think": "think:drop=0.5,window=3",
    "tova": "tova@tokens=6",
    "twilight": "twilight:base=quoka,base-budget=tokens=8,dense-layers=0@p=0.7",
    "unique": "unique:page-size=3,sink=3,recent=3,n-queries=2@tokens=6",
    "vattention": "vattention:base-budget=tokens=3,base-sample=0.3,epsilon=0.5,delta=0.4,n-sink=1,n-recent=2",
    "xattention": "xattention:block=4,stride=1,tau=0.5",
}
#: Those whose lists hold pseudo-keys: refused when the first one comes.
PSEUDO_KEYS = {"doublep": "doublep:n-recent=4,keys-per-cluster=2@p=0.5", "retroinfer": "retroinfer:n-recent=4,keys-per-cluster=4@tokens=8"}
#: Wrappers and stacks, which keep lists, or what several methods keep.
STACKS = ["quest:page-size=3,dense-layers=0+every=3@tokens=6", "keydiff@tokens=9+quest:page-size=3,dense-layers=0@tokens=6"]
TOLERANCE = 1e-6  # of logits of a model in float64, of which methods see float32


@dataclass
class Lineage:
    """A row's sequence as it came about: its calls, and how many tokens of each are still there."""

    calls: list[tuple[list[int], int]] = field(default_factory=list)
    is_before: bool = False  # the first call was before the policy
    logits: torch.Tensor | None = None  # of the last call's last token; None: none since the cache was cut

    @property
    def n_tokens(self) -> int:
        return sum(n for _, n in self.calls)

    def grow(self, tokens: list[int]) -> None:
        self.calls, self.logits = [*self.calls, (tokens, len(tokens))], None

    def cut(self, n: int) -> None:
        self.calls, self.logits = list(self.calls), None
        while n >= self.calls[-1][1]:  # a call that is gone whole leaves no trace
            n -= self.calls.pop()[1]
        tokens, kept = self.calls[-1]
        self.calls[-1] = tokens, kept - n  # its last tokens had their part in what the others chose


class _Followed:
    """A cache that knows its rows' lineages."""

    rows: list[Lineage] = []
    mask: torch.Tensor | None = None  # [rows, tokens] that are no padding

    def reorder_cache(self, beam_idx):
        super().reorder_cache(beam_idx)
        self.rows = [copy.copy(self.rows[int(row)]) for row in beam_idx]
        self.mask = self.mask[beam_idx]

    def crop(self, length):
        before = self.mask.shape[1]
        n = -length if length <= 0 else max(0, before - length)
        super().crop(length)
        if n:
            for row in self.rows:
                row.cut(n)
            self.mask = self.mask[:, : before - n]

    def fed(self, ids, mask, logits, is_before=False):
        """Notes a call: ids [rows, n], mask [rows, all tokens] or None, logits [rows, vocabulary] of the last token."""
        new = torch.ones_like(ids) if mask is None else mask[:, -ids.shape[1] :]
        self.rows = self.rows or [Lineage() for _ in ids]
        self.mask = new.bool() if self.mask is None else torch.cat([self.mask, new.bool()], 1)
        for row, tokens, seen, last in zip(self.rows, ids, new.bool(), logits):
            if seen.any():
                row.grow(tokens[seen].tolist())
                row.logits = last
                row.is_before = row.is_before or is_before


class Dynamic(_Followed, DynamicCache):
    pass


class Static(_Followed, StaticCache):
    pass


class World:
    """One sequence of operations, and what it found."""

    N_OPERATIONS = (3, 7)

    def __init__(self, seed: int, specs: list[str], model: torch.nn.Module) -> None:
        self.random, self.model = random.Random(seed), model
        self.spec = self.random.choice(specs)
        self.options: dict[str, object] = {"phases": self.random.choice([None, None, None, "decode", "prefill"])}
        self.method = Method(self.spec)
        if self.method.can_ask_torch:
            self.options["engine"] = self.random.choice(["cpp", "torch"])
        self.caches: list[_Followed] = []
        self.log: list[str] = []
        self.is_disturbed = False
        self.refusal: Exception | None = None
        self.n_compared, self.kept = 0, 1.0

    # ---- operations ----------------------------------------------------------------------------------

    def tokens(self, n: int) -> list[int]:
        return [self.random.randrange(64) for _ in range(n)]

    def feed(self, cache: _Followed, ids: torch.Tensor, new: torch.Tensor | None = None, is_before: bool = False) -> None:
        """One forward call: ids [rows, n], new [rows, n] that are no padding."""
        new = torch.ones_like(ids) if new is None else new
        mask = new if cache.mask is None else torch.cat([cache.mask.long(), new], 1)
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        is_plain = bool(mask.all()) and self.random.random() < 0.5
        logits = self.model(ids, attention_mask=None if is_plain else mask, position_ids=positions, past_key_values=cache, use_cache=True,
                            logits_to_keep=1).logits[:, -1]
        cache.fed(ids, mask, logits, is_before)

    def new(self, is_before: bool = False) -> None:
        """A prompt, or a batch of them padded on the left, in chunks."""
        n_rows = self.random.choice([1, 1, 2, 3])
        is_static = self.random.random() < 0.25
        cache = Static(config=self.model.config, max_cache_len=64) if is_static else Dynamic(config=self.model.config)
        lengths = [self.random.randrange(2, 17) for _ in range(n_rows)]
        longest = max(lengths)
        ids = torch.tensor([[0] * (longest - n) + self.tokens(n) for n in lengths])
        mask = torch.tensor([[0] * (longest - n) + [1] * n for n in lengths])
        at = 0
        while at < longest:
            n = longest - at if is_before else self.random.randrange(1, longest - at + 1)
            self.feed(cache, ids[:, at : at + n], mask[:, at : at + n], is_before)
            at += n
        self.caches.append(cache)
        calls = [[len(tokens) for tokens, _ in row.calls] for row in cache.rows]
        self.log.append(f"{'static' if is_static else 'dynamic'} {lengths} as {calls}{' before' * is_before}")

    def step(self, cache: _Followed, n: int) -> None:
        if cache.mask.shape[1] + n > 64:
            return
        self.feed(cache, torch.tensor([self.tokens(n) for _ in cache.rows]))
        self.log.append(f"{n} tokens to {self.caches.index(cache)}")

    def reorder(self, cache: _Followed) -> None:
        order = [self.random.randrange(len(cache.rows)) for _ in range(self.random.randrange(1, 4))]
        if isinstance(cache, Static):  # its tensors keep their size
            order = [self.random.randrange(len(cache.rows)) for _ in cache.rows]
        cache.reorder_cache(torch.tensor(order))
        self.is_disturbed = True
        self.log.append(f"rows {order} of {self.caches.index(cache)}")

    def crop(self, cache: _Followed) -> None:
        most = min(row.n_tokens for row in cache.rows) - 1
        if most < 1 or (isinstance(cache, Static) and not hasattr(cache.layers[0], "cumulative_length")):
            return
        n = self.random.randrange(1, min(most, 6) + 1)
        cache.crop(-n)
        self.is_disturbed = True
        self.log.append(f"cut {n} of {self.caches.index(cache)}")

    def copy(self, cache: _Followed) -> None:
        self.caches.append(copy.deepcopy(cache))
        self.is_disturbed = True
        self.log.append(f"copied {self.caches.index(cache)}")

    def generate(self) -> None:
        """Beams, prompt lookup, or plain decoding, by transformers itself."""
        cache = Dynamic(config=self.model.config)
        how = self.random.choice([{"num_beams": 3}, {"prompt_lookup_num_tokens": 3}, {}, {"prefill_chunk_size": 4} if IS_FIVE else {}])
        prompt = self.tokens(4) * 2 if "prompt_lookup_num_tokens" in how else self.tokens(self.random.randrange(4, 12))
        self.log.append(f"generate {how} after {len(prompt)}")
        self.is_disturbed = self.is_disturbed or "num_beams" in how or "prompt_lookup_num_tokens" in how

        def note(model, args, kwargs, output):
            cache.fed(kwargs["input_ids"], kwargs.get("attention_mask"), output.logits[:, -1])

        hook = self.model.register_forward_hook(note, with_kwargs=True)
        try:
            self.model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), past_key_values=cache,
                                max_new_tokens=6, min_new_tokens=6, do_sample=False, pad_token_id=0, **how)
        finally:
            hook.remove()
        self.caches.append(cache)

    def operate(self) -> None:
        what = self.random.choices(["new", "step", "several", "reorder", "crop", "copy", "generate"], [2, 6, 2, 3, 3, 1, 1])[0]
        cache = self.random.choice(self.caches)
        if what == "new" and len(self.caches) < 4:
            self.new()
        elif what == "generate" and len(self.caches) < 4:
            self.generate()
        elif what == "copy" and len(self.caches) < 4:
            self.copy(cache)
        elif what == "reorder":
            self.reorder(cache)
        elif what == "crop":
            self.crop(cache)
        else:
            self.step(cache, self.random.randrange(2, 6) if what == "several" else 1)

    # ---- the law -------------------------------------------------------------------------------------

    @torch.no_grad()
    def run(self) -> World:
        """Raises AssertionError with the operations where a row is not what it would be alone."""
        if self.random.random() < 0.15:
            self.new(is_before=True)
            self.is_disturbed = True
        try:
            with kvs.policy(self.model, self.spec, **self.options) as policy:
                if not self.caches:
                    self.new()
                for _ in range(self.random.randrange(*self.N_OPERATIONS)):
                    self.operate()
        except (kvs.UsageError, RuntimeError) as error:
            self.refusal = error
        self.kept = policy.kept
        if self.refusal is not None:
            self.check_refusal(str(self.refusal))
            return self
        for at, cache in enumerate(self.caches):
            for row, lineage in enumerate(cache.rows):
                if lineage.logits is not None:
                    self.compare(lineage, f"row {row} of cache {at}")
        return self

    def check_refusal(self, sentence: str) -> None:
        assert isinstance(self.refusal, kvs.UsageError) and sentence.startswith(f"policy {self.method.spec}: "), self.report(sentence)
        assert ": expected " in sentence, self.report(sentence)
        is_phase = "is not among its phases" in sentence
        assert self.method.has_history or "came about in several ways" in sentence, self.report(f"refused: {sentence}")
        assert self.is_disturbed or is_phase, self.report(f"refused: {sentence}")

    def feed_alone(self, cache: DynamicCache, tokens: list[int], n_kept: int) -> torch.Tensor:
        logits = self.model(torch.tensor([tokens]), past_key_values=cache, use_cache=True).logits[0, -1]
        if n_kept < len(tokens):
            cache.crop(n_kept - len(tokens))
        return logits

    def compare(self, lineage: Lineage, where: str) -> None:
        cache, calls = DynamicCache(config=self.model.config), lineage.calls
        if lineage.is_before:
            self.feed_alone(cache, *calls[0])
            calls = calls[1:]
        if not calls:
            return  # nothing of it ran under the policy
        sizes = ", ".join(f"{n} of {len(tokens)}" if n < len(tokens) else str(n) for tokens, n in lineage.calls)
        try:
            with kvs.policy(self.model, self.spec, **self.options):
                for call in calls:
                    logits = self.feed_alone(cache, *call)
        except kvs.UsageError as error:
            raise AssertionError(self.report(f"{where}, {sizes}, is refused alone: {error}")) from error
        difference = float((logits - lineage.logits).abs().max())
        self.n_compared += 1
        assert difference <= TOLERANCE, self.report(f"{where}, calls of {sizes}, is off by {difference:.3g}")

    def report(self, what: str) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items() if value)
        return f"{self.spec} {options}: {what}\n  " + "\n  ".join(self.log)


def try_method(name: str, model: torch.nn.Module) -> None:
    """A few tokens under a method that SPECS does not name."""
    budgets = native.caps(name)["budgets"]
    budget = None if not budgets or name in PSEUDO_KEYS else "p=0.5" if budgets[0] == "p" else f"{budgets[0]}=4"
    with torch.no_grad(), kvs.policy(model, PSEUDO_KEYS.get(name, name), budget=budget, dense_layers=0):
        model.generate(torch.arange(40)[None], max_new_tokens=3, do_sample=False)


def run_many(seeds: range, specs: list[str], model: torch.nn.Module) -> Counter[str]:
    """How many sequences of operations, refusals, rows compared, sequences in which keys were left out."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of methods that were never asked
                world = World(seed, specs, model).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None
        counts += Counter(sequences=1, refused=world.refusal is not None, compared=world.n_compared, sparse=world.kept < 1)
    return counts


def fuzz_model() -> torch.nn.Module:
    """In float64, so that a batch and its rows round alike: methods see the same float32."""
    return small_llama().double()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("n", type=int, help="sequences of operations")
    parser.add_argument("--seed", type=int, default=0, help="of the first")
    options = parser.parse_args()
    model, specs, counts, start = fuzz_model(), sorted(SPECS.values()) + STACKS, Counter(), time.monotonic()
    failures = 0
    for begin in range(options.seed, options.seed + options.n, 100):
        for seed in range(begin, min(begin + 100, options.seed + options.n)):
            try:
                counts += run_many(range(seed, seed + 1), specs, model)
            except AssertionError as error:
                failures += 1
                print(f"FAILED: {error}", flush=True)
        print(f"{begin + 100 - options.seed}: {dict(counts)}, {failures} failures, {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
