#!/usr/bin/env bash
# Sets everything up (packages, build) and runs the tests. Ends with ctest's own summary.
set -euo pipefail

usage() {
  cat <<'TXT'
usage: ./test.sh [--asan | --tsan] [--heavy] [ctest arguments...]

Installs what is missing (apt; sudo only if needed), builds preset "release", runs all tests but the heavy ones.

  --asan    build and test with AddressSanitizer and UndefinedBehaviorSanitizer
  --tsan    build and test with ThreadSanitizer
  --heavy   also the tests labelled "heavy" (minutes each)
  --help    this text

Everything else goes to ctest: ./test.sh -R tokenizer runs the tests whose names contain "tokenizer".
The tests of the Python package need PyTorch and transformers, which the first run installs into build/python-env
(1.2 GB, minutes); KVSCOPE_PYTHON_TESTS=0 leaves them out, as --asan and --tsan do.
KVSCOPE_TIDY=1 adds clang-tidy over all sources, as continuous integration does (minutes).
KVSCOPE_SKIP_INSTALL=1 leaves the system's packages alone; KVSCOPE_JOBS=N limits parallel compilers.
TXT
}

# shellcheck source=.ci/setup.sh
. "$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)/.ci/setup.sh"

preset=release
left_out=heavy
[ -n "${KVSCOPE_TIDY:-}" ] || left_out="heavy|tidy"
labels=(-LE "$left_out")
ctest_args=()
for arg in "$@"; do
  case $arg in
    --asan | --tsan)
      preset=${arg#--}
      export KVSCOPE_PYTHON_TESTS=0
      ;;
    --heavy) labels=() ;;
    --help | -h)
      usage
      exit 0
      ;;
    *) ctest_args+=("$arg") ;;
  esac
done

kvscope_install test
kvscope_configure "$preset" -DKVSCOPE_BUILD_TESTS=ON
kvscope_build "$preset"
if [ "${KVSCOPE_PYTHON_TESTS:-1}" != 0 ]; then
  "$kvscope_root/traces/python/test.sh" --prepare >&2 || [ $? -eq 77 ] # 77: skipped, said so; ctest shows it again
fi
exec "$kvscope_ctest" --test-dir "$kvscope_root/build/$preset" --output-on-failure --no-tests=error \
  --parallel "$(nproc)" ${labels[@]+"${labels[@]}"} ${ctest_args[@]+"${ctest_args[@]}"}
