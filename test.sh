#!/usr/bin/env bash
# Sets everything up (packages, build) and runs the tests. Ends with ctest's own summary.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: ./test.sh [--asan | --tsan] [--slow | --heavy] [ctest arguments...]
       ./test.sh [--asan | --tsan] --case NAME

Installs what is missing (apt; sudo only if needed), builds preset "release", runs the tests. On two idle cores: packages and
PyTorch two minutes, the build eight and a half, the tests seven and a half; the second time the tests alone.

  --asan    build and test with AddressSanitizer and UndefinedBehaviorSanitizer
  --tsan    build and test with ThreadSanitizer
  --slow    also the tests labelled "slow" (three minutes more), as continuous integration does
  --heavy   these, and those labelled "heavy" (minutes each)
  --case    only the test cases of that name; * at its begin or end stands for anything
  --help    this text

Everything else goes to ctest: ./test.sh -R tokenizer runs the test files whose names contain "tokenizer".
The tests of the Python package need PyTorch and transformers, which the first run installs into build/python-env
(1.2 GB, minutes); KVSCOPE_PYTHON_TESTS=0 leaves them out, as --asan and --tsan do.
KVSCOPE_TIDY=1 adds clang-tidy over all sources, as continuous integration does (four minutes; KVSCOPE_TIDY_CACHE=FOLDER
keeps what was found clean).
KVSCOPE_SKIP_INSTALL=1 leaves the system's packages alone; KVSCOPE_JOBS=N limits parallel compilers.
TXT
}

# shellcheck source=.ci/setup.sh
. "$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)/.ci/setup.sh"

preset=release
left_out="heavy|slow"
case_name=
ctest_args=()
while [ $# -gt 0 ]; do
  case $1 in
    --asan | --tsan)
      preset=${1#--}
      export KVSCOPE_PYTHON_TESTS=0
      ;;
    --slow) left_out=heavy ;;
    --heavy) left_out= ;;
    --case)
      [ $# -gt 1 ] || kvscope_die "--case: expected the name of a test case"
      case_name=$2
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    *) ctest_args+=("$1") ;;
  esac
  shift
done
[ -n "${KVSCOPE_TIDY:-}" ] || left_out=${left_out:+$left_out|}tidy

kvscope_install test
kvscope_configure "$preset" -DKVSCOPE_BUILD_TESTS=ON
kvscope_build "$preset"
build=$kvscope_root/build/$preset

if [ -n "$case_name" ]; then
  found=
  failed=0
  for program in "$build"/tests/test_*; do
    [ -x "$program" ] && [ -n "$("$program" --list-tests --verbosity quiet "$case_name")" ] || continue
    found=1
    "$program" "$case_name" || failed=$?
  done
  [ -n "$found" ] || kvscope_die "no test case is called \"$case_name\"; names are after TEST_CASE in tests/"
  exit "$failed"
fi

if [ "${KVSCOPE_PYTHON_TESTS:-1}" != 0 ]; then
  code=0
  "$kvscope_root/traces/python/test.sh" --prepare >&2 || code=$?
  case $code in
    0) export KVSCOPE_PYTHON_PREPARED=1 ;;
    77) ;; # skipped, said so; ctest shows it again
    *) exit "$code" ;;
  esac
fi
# One entry runs the cases of a file, and is skipped only if all of them are: which ones were, and why, is told before the
# summary.
skipped=$build/tests/skipped_cases.txt
rm -f -- "$skipped"
"$kvscope_ctest" --test-dir "$build" --output-on-failure --no-tests=error \
  --parallel "$(nproc)" ${left_out:+-LE "$left_out"} ${ctest_args[@]+"${ctest_args[@]}"} |
  awk -v skipped="$skipped" '
    /^[0-9]+% tests passed/ {
      while ((getline line < skipped) > 0) {
        split(line, part, "\t")
        if (!(part[1] in cases)) order[++n] = part[1]
        cases[part[1]] = cases[part[1]] "\n    " part[2]
        ++count[part[1]]
      }
      for (i = 1; i <= n; ++i) print count[order[i]] " cases were skipped: " order[i] cases[order[i]]
    }
    { print; fflush() }'
