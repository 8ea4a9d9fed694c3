"""ONNX models, opened once in a process and shared by every node that runs them.

Owns the import of onnxruntime. Its one rule: one session for each file and thread count, however many calls are up; a
model's state belongs to the node, never to the session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]  # it ships no annotations; OnnxModel below is what of it is used

from voiceflow.errors import ModelError
from voiceflow.processors.once import once_per_process

__all__ = ["OnnxModel", "open_onnx"]

_ERRORS_ONLY = 3


class OnnxModel(Protocol):
    """An opened model. `run` may be called by several threads at once."""

    def run(self, output_names: Sequence[str] | None, inputs: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[np.float32]]:
        """Outputs in the model's order (None: all)."""
        ...


@once_per_process
def open_onnx(path: Path, threads: int = 1) -> OnnxModel:
    """Open a model for the CPU. Blocks (30 ms and more); the same arguments give the same session.

    Raises:
        ModelError: the file is not a model that onnxruntime can run.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    try:
        model: OnnxModel = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise ModelError(
            f"{path} cannot be opened as an ONNX model ({error}); give another file, or remove it to have it fetched again"
        ) from error
    return model
