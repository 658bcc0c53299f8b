#!/usr/bin/env bash
# Every .hpp and .cpp file of the tree is formatted as .clang-format says. Versions of clang-format differ in
# what they make of the same file, so only clang-format 14 is asked; without it the test is skipped (code 77).
# usage: format_test.sh [FILE]      (FILE keeps which contents were found formatted; they are not looked at again)
set -euo pipefail
known=${1:-/dev/null}
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

format=""
for candidate in clang-format-14 clang-format; do
  if "$candidate" --version 2>/dev/null | grep -Eq 'version 14\.'; then
    format=$candidate
    break
  fi
done
if [ -z "$format" ]; then
  echo "skipped: there is no clang-format 14 (on Debian 12 and Ubuntu: apt-get install clang-format-14)"
  exit 77
fi

# Lines of "checksum  path"; a file's content decides, and the settings.
settings=$(sha256sum <.clang-format)
now=$(find core traces analysis gui notebooks_export tests \( -name '*.hpp' -o -name '*.cpp' \) -type f -print0 |
  sort -z | xargs -0 sha256sum | sed "s/^/${settings%% *} /")
[ -e "$known" ] || known=/dev/null
new=$(comm -23 <(sort <<<"$now") <(sort "$known") | cut -d ' ' -f 4-)
if [ -n "$new" ] && ! tr '\n' '\0' <<<"$new" | sed -z '/^$/d' | xargs -0 -n 100 "$format" --dry-run -Werror; then
  echo "not formatted: run $format -i on the files above"
  exit 1
fi
[ $# -eq 0 ] || printf '%s\n' "$now" >"$1"
