#!/bin/sh
# The command kvscope of the Python package, as a program of its own: what workers and the explorer run.
exec "${KVSCOPE_PYTHON:-python3}" -m kvscope "$@"
