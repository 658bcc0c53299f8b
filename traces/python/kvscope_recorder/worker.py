"""A thread that writes while the model computes: a queue bounded in bytes, and copies from device to host."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np
import torch

_STORED = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class HostCopy:
    """A tensor on its way to the host: a snapshot that later changes of the tensor do not touch.

    From CUDA it travels on a stream of its own into pinned memory while the model goes on.
    """

    _streams: dict[torch.device, torch.cuda.Stream] = {}

    def __init__(self, tensor: torch.Tensor, stored: str) -> None:
        """`stored`: "f32", "f16", "bf16" (converted, to nearest even) or "i32"."""
        self._stored = stored
        source = tensor.detach().to(_STORED.get(stored, torch.int32))
        self.n_bytes = source.numel() * source.element_size()
        self._event: torch.cuda.Event | None = None
        if source.is_cuda:
            self._tensor = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            stream = self._streams.setdefault(source.device, torch.cuda.Stream(source.device))
            stream.wait_stream(torch.cuda.current_stream(source.device))
            with torch.cuda.stream(stream):
                self._tensor.copy_(source, non_blocking=True)
                self._event = torch.cuda.Event()
                self._event.record(stream)
            source.record_stream(stream)
        else:
            self._tensor = torch.empty(source.shape, dtype=source.dtype).copy_(source)

    def bits(self) -> np.ndarray:
        """The array once it has arrived, with the bits of the stored type (bf16 as uint16)."""
        if self._event is not None:
            self._event.synchronize()
        tensor = self._tensor
        if self._stored == "bf16":
            return tensor.view(torch.int16).numpy().view(np.uint16)
        return tensor.numpy()


class Worker:
    """Runs jobs in order on one thread. Submitting blocks while more than `limit` bytes wait (back-pressure)."""

    def __init__(self, limit: int) -> None:
        self.seconds_blocked = 0.0  # how long the model waited for the disk
        self._limit = limit
        self._jobs: deque[tuple[Callable[[], None], int]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="kvscope-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None], n_bytes: int = 0) -> None:
        """Queues a job that holds n_bytes of host memory. Raises what an earlier job raised."""
        start = time.perf_counter()
        with self._changed:
            while self._error is None and self._jobs and self._waiting_bytes + n_bytes > self._limit:
                self._changed.wait()
            if self._error is not None:
                raise self._error
            self._jobs.append((job, n_bytes))
            self._waiting_bytes += n_bytes
            self._changed.notify_all()
        self.seconds_blocked += time.perf_counter() - start

    def close(self) -> BaseException | None:
        """Runs what is queued, ends the thread, and returns the error that stopped it, if any."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        return self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait()
                if not self._jobs:
                    return
                job, n_bytes = self._jobs[0]  # counts as waiting until it is done: its memory is in use
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - handed to the thread that submits
                with self._changed:
                    self._error = error
                    self._jobs.clear()
                    self._waiting_bytes = 0
                    self._changed.notify_all()
                return
            del job
            with self._changed:
                self._jobs.popleft()
                self._waiting_bytes -= n_bytes
                self._changed.notify_all()
