"""Inner values of an ONNX model brought out as outputs, without the onnx package.

Owns what is known of the file's form (a protobuf message, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto). One
rule: nothing in the model is changed; a few bytes are added at its end, which protobuf's own rule merges into the graph.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from voiceflow.errors import ModelError
from voiceflow.processors.onnx import OnnxModel, open_onnx

__all__ = ["open_with_inner", "outputs_of", "with_output"]

# Field numbers of onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_NODE = 1
_GRAPH_OUTPUT = 12
_NODE_OUTPUT = 2
_NODE_OPERATOR = 4
_VALUE_NAME = 1
_VALUE_TYPE = 2
_TYPE_TENSOR = 1
_TENSOR_ELEMENT = 1
_FLOAT = 1

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def open_with_inner(path: Path, threads: int, operator: str) -> OnnxModel:
    """Open a model with what its one node of that ``operator`` gives as a last output; as it is if there is not one such node.

    Blocks. Raises ModelError as ``open_onnx`` does. A copy of the file lies in the temporary folder while it is opened.
    """
    names = outputs_of(path, operator)
    if len(names) != 1:
        return open_onnx(path, threads)
    with tempfile.TemporaryDirectory(prefix="voiceflow-") as folder:
        copy = Path(folder) / path.name
        with_output(path, names[0], copy)
        return open_onnx(copy, threads)


def outputs_of(path: Path, operator: str) -> list[str]:
    """Names of the first outputs of all nodes with that ``operator``, in the file's order.

    Raises ModelError if the file is not a protobuf message. Reads the graph, not the weights (15 ms for a 60 MB voice).
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return list(_find(data, operator))
    except (OSError, ValueError, IndexError) as error:
        raise ModelError(
            f"{path} cannot be read as an ONNX model ({error}); give another file, or remove it to have it fetched again"
        ) from error


def with_output(path: Path, name: str, target: Path) -> None:
    """Copy the model to ``target`` with the inner float tensor ``name`` as one more output, after those it has."""
    tensor = _message(_TYPE_TENSOR, bytes([_TENSOR_ELEMENT << 3 | _VARINT, _FLOAT]))
    value = _message(_VALUE_NAME, name.encode()) + _message(_VALUE_TYPE, tensor)
    shutil.copyfile(path, target)
    with target.open("ab") as file:
        file.write(_message(_MODEL_GRAPH, _message(_GRAPH_OUTPUT, value)))


def _find(data: mmap.mmap, operator: str) -> Iterator[str]:
    for field, start, end in _fields(data, 0, len(data)):
        if field != _MODEL_GRAPH:
            continue
        for inner, node_start, node_end in _fields(data, start, end):
            if inner != _GRAPH_NODE:
                continue
            node = [(number, data[s:e]) for number, s, e in _fields(data, node_start, node_end)]
            if (_NODE_OPERATOR, operator.encode()) in node:
                yield next(value.decode() for number, value in node if number == _NODE_OUTPUT)


def _fields(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each field between two places of a message."""
    while position < end:
        key, position = _varint(data, position)
        kind = key & 7
        start = position
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _BYTES:
            size, start = _varint(data, position)
            position = start + size
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"at byte {start}: {kind} is no protobuf wire type")
        if position > end:
            raise ValueError(f"at byte {start}: a field runs past the end of its message")
        yield key >> 3, start, position


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _message(field: int, content: bytes) -> bytes:
    size, head = len(content), bytearray([field << 3 | _BYTES])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(head) + bytes([size]) + content
