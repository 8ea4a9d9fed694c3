"""Tests of opening ONNX models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from voiceflow.errors import ModelError

onnx = pytest.importorskip("voiceflow.processors.onnx", reason="pip install onnxruntime", exc_type=ImportError)


def test_a_model_is_opened_once(model: Callable[[str], Path]):
    """Two nodes that want the same file share one session; another thread count is another session."""
    path = model("silero-vad")

    assert onnx.open_onnx(path) is onnx.open_onnx(path)
    assert onnx.open_onnx(path, 2) is not onnx.open_onnx(path)


def test_a_file_that_is_no_model_is_named(tmp_path: Path):
    """The error says which file, and what to do."""
    path = tmp_path / "junk.onnx"
    path.write_bytes(b"not a model")

    with pytest.raises(ModelError, match=r"junk\.onnx cannot be opened .* fetched again"):
        onnx.open_onnx(path)
