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
from voiceflow.protobuf import bytes_field, fields, number_field

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

    Raises ModelError if the file is not a protobuf message. Reads the graph, not the weights (22 ms for a 60 MB voice).
    """
    try:
        with path.open("rb") as file:
            model = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))  # unmapped with the last view of it
            return list(_find(model, operator.encode()))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as an ONNX model ({error}); give another file, or remove it to have it fetched again"
        ) from error


def with_output(path: Path, name: str, target: Path) -> None:
    """Copy the model to ``target`` with the inner float tensor ``name`` as one more output, after those it has."""
    tensor = bytes_field(_TYPE_TENSOR, number_field(_TENSOR_ELEMENT, _FLOAT))
    value = bytes_field(_VALUE_NAME, name.encode()) + bytes_field(_VALUE_TYPE, tensor)
    shutil.copyfile(path, target)
    with target.open("ab") as file:
        file.write(bytes_field(_MODEL_GRAPH, bytes_field(_GRAPH_OUTPUT, value)))


def _find(model: memoryview, operator: bytes) -> Iterator[str]:
    for graph in _each(model, _MODEL_GRAPH):
        for node in _each(graph, _GRAPH_NODE):
            if operator in _each(node, _NODE_OPERATOR):
                yield from (str(name, "utf-8") for name in _each(node, _NODE_OUTPUT)[:1])


def _each(message: memoryview, number: int) -> list[memoryview]:
    """What the fields of this number hold."""
    return [value for found, value in fields(message) if found == number and isinstance(value, memoryview)]
