"""The part of Ray that kvscope.ray_workers calls, in threads of this process, for machines without Ray: tasks with a limit of
processors, and tries again after the exceptions that are named. What Ray adds (a cluster, workers that are lost) is not here."""

import concurrent.futures

_pool = None


def init(num_cpus=1, **_):
    global _pool
    _pool = concurrent.futures.ThreadPoolExecutor(num_cpus)


def shutdown():
    _pool.shutdown(wait=True, cancel_futures=True)


def remote(num_cpus=1, max_retries=3, retry_exceptions=()):
    def of(function):
        def tries(*words):
            for left in reversed(range(max_retries + 1)):
                try:
                    return function(*words)
                except tuple(retry_exceptions):
                    if left == 0:
                        raise

        class Task:
            @staticmethod
            def remote(*words):
                return _pool.submit(tries, *words)

        return Task

    return of


def wait(tasks):
    """One that has ended, and the others."""
    done, _ = concurrent.futures.wait(tasks, return_when=concurrent.futures.FIRST_COMPLETED)
    first = next(task for task in tasks if task in done)
    return [first], [task for task in tasks if task is not first]


def get(task):
    return task.result()
