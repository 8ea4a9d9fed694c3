"""Protobuf's wire format."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.protobuf import bytes_field, fields, number_field

Field = tuple[int, int | bytes]

FIELDS = st.lists(st.tuples(st.integers(1, 2**29 - 1), st.integers(0, 2**64 - 1) | st.binary(max_size=300)))


def written(field: Field) -> bytes:
    number, value = field
    return number_field(number, value) if isinstance(value, int) else bytes_field(number, value)


@given(FIELDS)
def test_what_was_written_is_read(given: list[Field]) -> None:
    """Numbers and values, in order; of a memoryview the bytes are views of it."""
    message = b"".join(map(written, given))
    assert list(fields(message)) == given
    assert [(n, v if isinstance(v, int) else v.tobytes()) for n, v in fields(memoryview(message))] == given


@given(FIELDS, st.data())
def test_a_message_that_was_cut_off_gives_what_is_whole_and_then_an_error(given: list[Field], data: st.DataObject) -> None:
    """Never a field that is not whole, and no error where the cut falls between two fields."""
    ends = [sum(len(written(field)) for field in given[:count]) for count in range(len(given) + 1)]
    cut = data.draw(st.integers(0, ends[-1]))
    found: list[Field] = []
    is_whole = True
    try:
        for field in fields(b"".join(map(written, given))[:cut]):
            found.append(field)
    except ValueError:
        is_whole = False
    assert found == given[: sum(end <= cut for end in ends) - 1]
    assert is_whole == (cut in ends)


@given(st.binary())
def test_any_other_bytes_are_fields_or_a_value_error(data: bytes) -> None:
    """No other error, and no number of more than ten bytes."""
    with contextlib.suppress(ValueError):
        assert all(isinstance(value, bytes) or value < 2**70 for _, value in fields(data))


@pytest.mark.parametrize(
    ("hexed", "read"),
    [
        # From protobuf's description of its encoding, and its fixed sizes.
        ("089601", [(1, 150)]),
        ("120774657374696e67", [(2, b"testing")]),
        ("1a03089601", [(3, b"\x08\x96\x01")]),
        ("0d01000000 1101000000 00000000 0801", [(1, b"\1\0\0\0"), (2, b"\1\0\0\0\0\0\0\0"), (1, 1)]),
        ("", []),
    ],
)
def test_the_bytes_are_those_of_protobuf(hexed: str, read: list[Field]) -> None:
    """Known messages are read."""
    assert list(fields(bytes.fromhex(hexed))) == read


@pytest.mark.parametrize(
    ("hexed", "says"),
    [
        ("08", "a number does not end"),
        ("0880", "a number does not end"),
        ("08" + "ff" * 11, "a number does not end"),
        ("1205", "field 2 ends behind the end of its message"),
        ("0d010000", "field 1 ends behind the end of its message"),
        ("0b", "3 is no wire type of protobuf"),
    ],
)
def test_an_error_says_what_is_wrong(hexed: str, says: str) -> None:
    """What is cut off and what is something else have different texts."""
    with pytest.raises(ValueError, match=says):
        list(fields(bytes.fromhex(hexed)))
