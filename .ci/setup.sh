# Set-up shared by demo.sh, test.sh and .ci/run: installs missing packages, finds CMake, configures and builds.
# Source it; it defines functions and runs nothing. Needs: bash. Prints to stderr only.
#
#   kvscope_install build|test|wheel  packages for building alone, also for testing, or for Python packages
#   kvscope_configure PRESET ...  configures build/PRESET if that is not done yet (more arguments go to CMake)
#   kvscope_build PRESET ...      builds (more arguments go to cmake --build)
#
# KVSCOPE_SKIP_INSTALL=1 leaves the system's packages alone; KVSCOPE_JOBS=N limits parallel compilers. Where ccache is installed, it
# keeps what was compiled (KVSCOPE_CCACHE=0: not; KVSCOPE_CCACHE=1: it is installed too).

kvscope_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

kvscope_build_packages=(g++ cmake ninja-build pkg-config git libeigen3-dev libhdf5-dev libboost-program-options-dev
  nlohmann-json3-dev libfmt-dev libhwy-dev libonig-dev libutf8proc-dev libxxhash-dev libcairo2-dev fonts-dejavu-core python3-venv
  libtomlplusplus-dev libimgui-dev libfontconfig-dev libglfw3-dev libgl-dev libopengl-dev libegl-dev libgl1-mesa-dri fonts-droid-fallback)
kvscope_test_packages=(catch2 hdf5-tools python3-h5py python3-jinja2 python3-numpy poppler-utils xvfb xauth xdotool)

# The version whose output the tree is, and the one whose checks it passes; a distribution without them leaves out the
# two tests.
kvscope_clang_tools() { printf '%s\n' clang-format-14 ${KVSCOPE_TIDY:+clang-tidy-14}; }

kvscope_say() { printf 'kvscope: %s\n' "$*" >&2; }
kvscope_die() {
  kvscope_say "$*"
  exit 1
}

# kvscope_installed PACKAGE: true if dpkg has it unpacked and configured; Catch2 must be version 3.
kvscope_installed() {
  local status version
  status=$(dpkg-query -W -f='${db:Status-Status} ${Version}' "$1" 2>/dev/null) || return 1
  version=${status#* }
  [ "${status%% *}" = installed ] || return 1
  [ "$1" != catch2 ] || dpkg --compare-versions "$version" ge 3
}

kvscope_as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    kvscope_die "installing packages needs root and there is no sudo. As root, run: apt-get install ${kvscope_missing[*]}"
  fi
}

kvscope_apt_get() {
  kvscope_as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@" >&2
}

kvscope_os() { (. /etc/os-release 2>/dev/null && printf '%s-%s' "${ID:-unknown}" "${VERSION_ID:-}"); }

# Debian 12 has Catch2 2 only; version 3 is in its backports archive, which a fresh system does not list.
kvscope_add_backports() {
  local found signed=""
  if grep -Rqs '^[^#]*bookworm-backports' /etc/apt/sources.list /etc/apt/sources.list.d; then return 0; fi
  # From where this system already takes Debian 12.
  found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Release: bookworm' 'Component: main' | head -n 1)
  [ -n "$found" ] || kvscope_die "no source of bookworm in /etc/apt: add one, and bookworm-backports of the same for Catch2 3"
  [ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ] ||
    signed=' [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
  kvscope_say "adding the bookworm-backports archive (Catch2 3): /etc/apt/sources.list.d/bookworm-backports.list"
  printf 'deb%s %s bookworm-backports main\n' "$signed" "$found" |
    kvscope_as_root tee /etc/apt/sources.list.d/bookworm-backports.list >/dev/null
}

kvscope_install() {
  local wanted=("${kvscope_build_packages[@]}") package
  [ "$1" != test ] || wanted+=("${kvscope_test_packages[@]}")
  # The Python package is tested and made in a virtual environment, and its native module is compiled against Python's headers.
  if [ "$1" = wheel ] || { [ "$1" = test ] && [ "${KVSCOPE_PYTHON_TESTS:-1}" != 0 ]; }; then
    python3 -c 'import venv, ensurepip' 2>/dev/null || wanted+=(python3-venv)
    python3 -c 'import os, sysconfig; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
      wanted+=(python3-dev)
  fi
  [ "${KVSCOPE_CCACHE:-}" != 1 ] || wanted+=(ccache)
  kvscope_missing=()
  [ -z "${KVSCOPE_SKIP_INSTALL:-}" ] || return 0
  if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    kvscope_say "this system has no apt-get, so nothing was installed. Needed (Debian's names): ${wanted[*]}"
    kvscope_die "install them your system's way, then run this again with KVSCOPE_SKIP_INSTALL=1"
  fi
  for package in "${wanted[@]}"; do
    kvscope_installed "$package" || kvscope_missing+=("$package")
  done
  if [ "${#kvscope_missing[@]}" -eq 0 ]; then
    [ "$1" != test ] || kvscope_install_clang_tools
    return 0
  fi

  kvscope_say "installing ${#kvscope_missing[@]} packages: ${kvscope_missing[*]}"
  local plain=() backports=()
  for package in "${kvscope_missing[@]}"; do
    if [ "$package" = catch2 ] && [ "$(kvscope_os)" = debian-12 ]; then
      backports+=("$package")
    else
      plain+=("$package")
    fi
  done
  [ "${#backports[@]}" -eq 0 ] || kvscope_add_backports
  local hint="check the network and apt's sources, or install by hand: ${kvscope_missing[*]}"
  kvscope_apt_get update || kvscope_say "apt-get update failed; trying with the package lists that are here"
  if [ "${#plain[@]}" -gt 0 ]; then
    kvscope_apt_get install -y --no-install-recommends "${plain[@]}" || kvscope_die "apt-get could not install. $hint"
  fi
  if [ "${#backports[@]}" -gt 0 ]; then
    kvscope_apt_get install -y --no-install-recommends -t bookworm-backports "${backports[@]}" ||
      kvscope_die "apt-get could not install. $hint"
  fi
  for package in "${kvscope_missing[@]}"; do
    kvscope_installed "$package" ||
      kvscope_die "$package is still missing (or too old: Catch2 must be version 3). Install it by hand and run this again."
  done
  [ "$1" != test ] || kvscope_install_clang_tools
}

# They are installed where apt offers that version. Nothing else needs them, so a failure is only told.
kvscope_install_clang_tools() {
  local package
  for package in $(kvscope_clang_tools); do
    ! kvscope_installed "$package" || continue
    apt-cache show "$package" >/dev/null 2>&1 || continue
    kvscope_say "installing $package, for a test of the sources"
    kvscope_apt_get install -y --no-install-recommends "$package" ||
      kvscope_say "apt-get could not install $package: its test is skipped"
  done
}

# Sets kvscope_cmake: the system's CMake, else the one in PATH, whichever is 3.25 or newer.
kvscope_find_cmake() {
  local candidate version
  for candidate in /usr/bin/cmake "$(command -v cmake || true)"; do
    [ -x "$candidate" ] || continue
    version=$("$candidate" --version 2>/dev/null | sed -nE '1s/.*version ([0-9]+\.[0-9]+).*/\1/p')
    if [ -n "$version" ] && [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" = 3.25 ]; then
      kvscope_cmake=$candidate
      kvscope_ctest=$(dirname -- "$candidate")/ctest
      return 0
    fi
  done
  kvscope_die "no CMake 3.25 or newer, neither /usr/bin/cmake nor in PATH"
}

# Compilers at once: one per core, but no more than one per 1.5 GiB of memory.
kvscope_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ {print int($2 / 1572864)}' /proc/meminfo 2>/dev/null || true)
  [ "${memory:-0}" -ge 1 ] || memory=1
  printf '%s' "${KVSCOPE_JOBS:-$((cores < memory ? cores : memory))}"
}

kvscope_configure() {
  local preset=$1 launcher="" language
  shift
  kvscope_find_cmake
  # Paths below the base folder become relative, so that what was compiled in one clone serves another.
  [ "${KVSCOPE_CCACHE:-}" = 0 ] || ! command -v ccache >/dev/null 2>&1 ||
    launcher="$kvscope_cmake;-E;env;CCACHE_BASEDIR=$kvscope_root;ccache"
  for language in C CXX CUDA; do set -- "$@" "-DCMAKE_${language}_COMPILER_LAUNCHER=$launcher"; done
  (cd -- "$kvscope_root" && "$kvscope_cmake" --preset "$preset" --no-warn-unused-cli "$@") >&2 ||
    kvscope_die "configuring failed; if $kvscope_root/build/$preset was made by another CMake or on another machine, delete it"
}

kvscope_build() {
  local preset=$1
  shift
  kvscope_find_cmake
  "$kvscope_cmake" --build "$kvscope_root/build/$preset" --parallel "$(kvscope_jobs)" "$@" >&2 ||
    kvscope_die "the build failed; the first error is above"
}
