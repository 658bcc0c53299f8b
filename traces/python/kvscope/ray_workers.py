"""Workers of a kvscope command as tasks of Ray: python -m kvscope.ray_workers WORKERS -- PROGRAM WORDS...

`kvscope sweep ... --engine ray` starts it. Every task is the program with --worker, which takes one after another item
of the store as they are free. A task whose process a signal ended is given out again, five times; what is finished
costs nothing then. Ends with code 0 if all tasks did, else with the sentence of the first that did not. The native
module is not loaded, so Ray and the program are all it needs.
"""

import os
import subprocess
import sys

MOST_TRIES = 5
PARTLY_FAILED = 4


class Killed(Exception):
    """A signal ended the program: another try may go well."""


def run_worker(words, where):
    """Runs in a worker of Ray. Returns the sentence of what went wrong, or an empty text."""
    done = subprocess.run(words, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode < 0:
        raise Killed("a worker was ended by signal %d" % -done.returncode)
    if done.returncode in (0, PARTLY_FAILED):  # the store says which items failed, and why
        return ""
    said = [line for line in done.stderr.splitlines() if line.startswith("kvscope: ")]
    return said[-1] if said else "kvscope: a worker ended with code %d" % done.returncode


def main(argv):
    if len(argv) < 3 or argv[1] != "--":
        print("kvscope: ray_workers: expected WORKERS -- PROGRAM WORDS...", file=sys.stderr)
        return 2
    workers, words = int(argv[0]), argv[2:]
    try:
        import ray
    except ImportError:
        print("kvscope: ray is not installed for %s: pip install ray, or name another interpreter by KVSCOPE_PYTHON"
              % sys.executable, file=sys.stderr)
        return 3
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False, logging_level="ERROR")
    else:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    task = ray.remote(num_cpus=1, max_retries=MOST_TRIES, retry_exceptions=[Killed])(run_worker)
    try:
        waiting = [task.remote(words, os.getcwd()) for _ in range(workers)]
        while waiting:
            done, waiting = ray.wait(waiting)
            said = ray.get(done[0])
            if said:
                print(said, file=sys.stderr)
                return 3
    except Exception as error:  # of Ray's many kinds; its text holds a trace of calls
        print("kvscope: ray: %s" % str(error).strip().splitlines()[-1], file=sys.stderr)
        return 3
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
