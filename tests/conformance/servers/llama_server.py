"""A real llama.cpp server in a process of its own, an independent peer: ``python llama_server.py MODEL.gguf KEY``.

It prints its address, serves until its input ends, and uses one thread.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def llama_server(model: Path, key: str) -> Iterator[str]:
    """Its base URL. The process ends with the block."""
    command = [sys.executable, __file__, str(model), key]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), "the server did not start"
            yield f"{address}/v1"
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def serve(model: str, key: str) -> None:
    import xllamacpp  # noqa: PLC0415 - only in the process that serves

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = 1024
    parameters.n_parallel = 1
    parameters.n_batch = parameters.n_ubatch = 64
    parameters.use_jinja = True
    parameters.verbosity = -1
    parameters.api_keys = [key]
    for cpu in (parameters.cpuparams, parameters.cpuparams_batch):
        cpu.n_threads = 1
        cpu.poll = 0
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # without waiting for a reply that somebody may still be reading


if __name__ == "__main__":
    serve(*sys.argv[1:])
