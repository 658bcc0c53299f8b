#!/usr/bin/env bash
# The main job from one command: records the embedded verifier and draft model on a book, verifies the traces, runs the four
# analyses, and prints what they found and where the files lie.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: ./demo.sh [--out DIR] [--max-tokens N] [--decode N]

Installs what is missing (apt; sudo only if needed), builds, then records the embedded model pair on the embedded book,
verifies both traces and runs the four analyses.

  --out DIR        where the files go [kvscope-demo in the current folder]; files of an earlier demo are replaced
  --max-tokens N   length of the prompt in tokens [4096]
  --decode N       greedy decode steps of the verifier [64]
  --help           this text

KVSCOPE_SKIP_INSTALL=1 leaves the system's packages alone; KVSCOPE_JOBS=N limits parallel compilers.
TXT
}

# shellcheck source=.ci/setup.sh
. "$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)/.ci/setup.sh"

out=kvscope-demo
max_tokens=4096
decode=64
while [ $# -gt 0 ]; do
  case $1 in
    --out | --max-tokens | --decode)
      [ $# -ge 2 ] || kvscope_die "$1 needs a value"
      case $1 in
        --out) out=$2 ;;
        --max-tokens) max_tokens=$2 ;;
        --decode) decode=$2 ;;
      esac
      shift 2
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      usage >&2
      kvscope_die "unknown argument $1"
      ;;
  esac
done

# Set-up; a second start finds everything done. An existing configuration (with tests, say) is left as it is.
kvscope_install build
[ -e "$kvscope_root/build/release/build.ninja" ] || kvscope_configure release -DKVSCOPE_BUILD_TESTS=OFF
kvscope_build release --target kvscope
kvscope=$kvscope_root/build/release/bin/kvscope

mkdir -p -- "$out"
out=$(cd -- "$out" && pwd -P)
[ -t 2 ] && progress=bar || progress=plain
started=$SECONDS
step() { printf '\n== %s\n' "$*" >&2; }

step "1/4 recording the verifier: $max_tokens tokens of the book, then $decode decode steps"
"$kvscope" record --model verifier --max-tokens "$max_tokens" --decode "$decode" --out "$out/verifier.h5" --overwrite \
  --progress "$progress"

step "2/4 recording the draft model on the same tokens"
"$kvscope" record --model draft --tokens "$out/verifier.h5" --out "$out/draft.h5" --overwrite --progress "$progress"

step "3/4 verifying both traces"
for trace in verifier draft; do
  "$kvscope" verify "$out/$trace.h5" --progress "$progress"
done

step "4/4 analysing"
findings=()
for kind in quoka theorem-b1 quest layer-map; do
  traces=("$out/verifier.h5")
  [ "$kind" != layer-map ] || traces+=("$out/draft.h5")
  report=$out/$kind.txt
  code=0
  "$kvscope" analyze "$kind" "${traces[@]}" --out "$out/$kind.h5" --csv "$out/$kind.csv" --overwrite \
    --progress "$progress" >"$report" || code=$?
  [ "$code" -eq 0 ] || kvscope_die "analyze $kind ended with code $code; see $report"
  findings+=("$(tail -n 1 -- "$report")")
done

printf '\nWhat the four analyses found (%s tokens, %s s):\n\n' "$((max_tokens + decode))" "$((SECONDS - started))"
for finding in "${findings[@]}"; do
  printf '  %-11s %s\n' "${finding%%: *}" "${finding#*: }"
done
printf '\nFiles in %s:\n\n' "$out"
(
  cd -- "$out"
  for file in verifier.h5 draft.h5 quoka.h5 theorem-b1.h5 quest.h5 layer-map.h5; do
    [ ! -e "$file" ] || printf '  %-14s %6s   %s\n' "$file" "$(du -h --apparent-size -- "$file" | cut -f1)" "$(
      case $file in
        verifier.h5) echo 'trace: q, k, v, lse of every layer of the verifier' ;;
        draft.h5) echo 'trace of the draft model over the same tokens' ;;
        *) echo "arrays and plots of one analysis; per-layer table in ${file%.h5}.txt and .csv" ;;
      esac
    )"
  done
)
printf '\nLook closer: %q info %q\n' "$kvscope" "$out/verifier.h5"
