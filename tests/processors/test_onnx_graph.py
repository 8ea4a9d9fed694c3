"""Inner values of ONNX models as outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from voiceflow.errors import ModelError
from voiceflow.processors.onnx_graph import outputs_of, with_output
from voiceflow.protobuf import bytes_field


def test_an_inner_value_becomes_an_output(model: Callable[[str], Path], tmp_path: Path) -> None:
    """The copy gives what the model gave and the inner value after it; the model itself is as it was."""
    onnx = pytest.importorskip("voiceflow.processors.onnx", reason="pip install onnxruntime", exc_type=ImportError)
    path = model("piper-joe")
    size = path.stat().st_size
    (name,) = outputs_of(path, "Ceil")
    with_output(path, name, tmp_path / "copy.onnx")
    ids = np.array([[1, 0, 20, 0, 25, 0, 2]], np.int64)
    inputs = {"input": ids, "input_lengths": np.array([7], np.int64), "scales": np.array([0, 1, 0], np.float32)}
    (sound,) = onnx.open_onnx(path).run(None, inputs)
    same_sound, lengths = onnx.open_onnx(tmp_path / "copy.onnx").run(None, inputs)
    np.testing.assert_allclose(same_sound, sound)
    assert lengths.size == ids.size
    assert sound.size == lengths.sum() * 256
    assert path.stat().st_size == size


def test_an_operator_that_is_not_there_has_no_outputs(model: Callable[[str], Path]) -> None:
    """Asking for an unknown operator gives nothing."""
    assert outputs_of(model("piper-joe"), "NoSuchOperator") == []


@pytest.mark.parametrize("content", [b"", b"not a model at all", b"\x3a\xff\xff\xff\xff\x0f", b"\xff" * 40, b"\x3a\x80"])
def test_a_file_that_is_no_model_is_named(content: bytes, tmp_path: Path) -> None:
    """Junk, an empty file and a cut one give an error with the file's name."""
    path = tmp_path / "junk.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"junk\.onnx cannot be read"):
        outputs_of(path, "Ceil")


def test_a_node_that_gives_nothing_has_no_outputs(tmp_path: Path) -> None:
    """It is passed over; of the others it is the first output, by its name."""
    path = tmp_path / "small.onnx"
    nodes = [bytes_field(1, bytes_field(4, b"Ceil") + b"".join(bytes_field(2, name) for name in names)) for names in ([], [b"up", b"too"])]
    path.write_bytes(bytes_field(7, b"".join(nodes)))
    assert outputs_of(path, "Ceil") == ["up"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A path without a file gives an error with the path."""
    with pytest.raises(ModelError, match=r"none\.onnx"):
        outputs_of(tmp_path / "none.onnx", "Ceil")
