#!/usr/bin/env bash
# Every .hpp and .cpp file of the tree is formatted as .clang-format says. Versions of clang-format differ in
# what they make of the same file, so only clang-format 14 is asked; without it the test is skipped (code 77).
# usage: format_test.sh
set -euo pipefail
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

if ! find core traces analysis gui notebooks_export tests \( -name '*.hpp' -o -name '*.cpp' \) -type f -print0 |
  xargs -0 -n 100 "$format" --dry-run -Werror; then
  echo "not formatted: run $format -i on the files above"
  exit 1
fi
