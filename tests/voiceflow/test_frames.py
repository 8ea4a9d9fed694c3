"""Frames are immutable values that know their lane, their way and their wire form."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import voiceflow
from voiceflow import frames
from voiceflow.errors import type_names
from voiceflow.frames import (
    AudioFormat,
    AudioFrame,
    CallerIdle,
    ContextFrame,
    EndFrame,
    ErrorFrame,
    FloorReleased,
    FloorTaken,
    Frame,
    Heard,
    InputAudioFrame,
    InterruptFrame,
    Lane,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    LLMUsage,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    SayFrame,
    SentenceFrame,
    SpeechStarted,
    SpeechStopped,
    StartFrame,
    TextFrame,
    ToolCallFrame,
    ToolProgress,
    ToolResultFrame,
    ToolsDone,
    ToolStarted,
    TranscriptFrame,
    Travels,
    TurnEnded,
    TurnScored,
    TurnStarted,
    UtteranceEnded,
    Word,
    WordsHeard,
    replace,
)
from voiceflow.messages import Message


def every_type(root: type[Frame] = Frame) -> set[type[Frame]]:
    return {root} | {t for child in root.__subclasses__() if child.__module__ == frames.__name__ for t in every_type(child)}


def test_a_frame_cannot_be_changed() -> None:
    """A frame is a value: writing to it is an error, replace() makes another."""
    frame = SayFrame("hello")
    with pytest.raises(AttributeError):
        frame.text = "bye"  # type: ignore[misc]
    assert replace(frame, text="bye") == SayFrame("bye")
    assert frame == SayFrame("hello")


@pytest.mark.parametrize(
    ("lane", "types"),
    [
        (
            Lane.USER,
            {
                InputAudioFrame,
                TranscriptFrame,
                SpeechStarted,
                SpeechStopped,
                TurnStarted,
                TurnEnded,
                TurnScored,
                FloorTaken,
                FloorReleased,
                CallerIdle,
            },
        ),
        (
            Lane.AGENT,
            {OutputAudioFrame, LLMTextFrame, SentenceFrame, SayFrame, ContextFrame, LLMStarted, LLMEnded, UtteranceEnded, ToolCallFrame},
        ),
    ],
)
def test_each_type_lies_in_the_lane_of_whoever_does_it(lane: Lane, types: set[type[Frame]]) -> None:
    """What the caller does is USER, what the agent does is AGENT, and all the rest CONTROL."""
    assert {t for t in every_type() if t.lane is lane} == types


def test_reports_travel_up_and_all_else_down() -> None:
    """Playback and errors go against the arrows."""
    assert {t for t in every_type() if t.travels is Travels.UP} == {
        PlaybackStarted,
        PlaybackStopped,
        WordsHeard,
        ErrorFrame,
        LLMUsage,
        ToolStarted,
        ToolProgress,
        ToolResultFrame,
        ToolsDone,
    }


def test_only_the_callers_sound_is_live() -> None:
    """Live frames may be dropped, so nothing else is one."""
    assert {t for t in every_type() if t.live} == {InputAudioFrame}


def test_an_authors_type_inherits_lane_and_way() -> None:
    """A plugin's frame behaves as the one it was made of, and may say otherwise."""

    class Ssml(SentenceFrame, frozen=True):
        rate: float = 1.0

    class Loud(ErrorFrame, frozen=True):
        lane = Lane.AGENT

    assert (Ssml.lane, Ssml.travels) == (Lane.AGENT, Travels.DOWN)
    assert (Loud.lane, Loud.travels) == (Lane.AGENT, Travels.UP)
    assert Ssml("a", rate=2.0) == Ssml("a", rate=2.0)


@given(st.integers(1, 8), st.integers(0, 40))
def test_pcm_must_hold_whole_samples(channels: int, size: int) -> None:
    """Sound that is cut inside a sample of any channel is refused where it is made."""
    if size % (2 * channels):
        with pytest.raises(ValueError, match=rf"OutputAudioFrame: {size} bytes of PCM do not divide .*Chunker"):
            OutputAudioFrame(bytes(size), 24000, channels)
    else:
        assert OutputAudioFrame(bytes(size), 24000, channels).samples.shape == (size // (2 * channels), channels)


@pytest.mark.parametrize("channels", [0, -1])
def test_sound_has_at_least_one_channel(channels: int) -> None:
    """No channel at all is a clear error, not a division by zero."""
    with pytest.raises(ValueError, match=rf"InputAudioFrame: {channels} channels"):
        InputAudioFrame(b"", 16000, channels)


def test_samples_are_a_read_only_view_and_duration_is_in_seconds() -> None:
    """(samples, channels) int16, which nobody can scribble on."""
    frame = AudioFrame(np.arange(8, dtype="<i2").tobytes(), 4, 2)
    assert frame.samples.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert frame.duration == 1.0
    with pytest.raises(ValueError, match="read-only"):
        frame.samples[0, 0] = 1


EXAMPLES: list[Frame] = [
    StartFrame(),
    EndFrame(pts=1.5),
    InterruptFrame(reason="barge-in"),
    InputAudioFrame(b"\1\2\3\4", 16000, 2, pts=0.02),
    OutputAudioFrame(b"\1\2", 24000, words=(Word("a", 0.0, 0.1, True),), utterance=3, epoch=2),
    TranscriptFrame("hello", final=False, confidence=0.5, stable=1),
    ContextFrame(messages=(Message("user", "hi"), Message("assistant", "ho", True)), utterance=2),
    PlaybackStopped(heard=Heard(1, "ho", complete=False, estimated=True), at=2.0),
]


@pytest.mark.parametrize("frame", EXAMPLES, ids=lambda f: type(f).__name__)
def test_the_wire_form_carries_type_and_all_fields(frame: Frame) -> None:
    """MessagePack there and back is the same frame, with its epoch."""
    wire = msgspec.msgpack.encode(frame)
    assert msgspec.msgpack.decode(wire, type=type(frame)) == frame
    assert msgspec.msgpack.decode(wire)["type"] == type(frame).__name__


def test_formats_print_as_a_reader_wants_them() -> None:
    """Errors and pictures show rate and channels."""
    assert str(AudioFormat(16000)) == "16000 Hz x1"
    assert str(AudioFormat(48000, 2)) == "48000 Hz x2"


def test_described_types_are_sorted_and_none_is_said_in_words() -> None:
    """The same set of types always reads the same."""
    assert type_names({TextFrame, AudioFrame}) == "AudioFrame | TextFrame"
    assert type_names(()) == "nothing"


def test_every_frame_type_is_public() -> None:
    """All the vocabulary stands in frames.__all__ and can be had from voiceflow itself."""
    assert {t.__name__ for t in every_type()} <= set(frames.__all__) <= set(voiceflow.__all__)
    for name in voiceflow.__all__:
        assert getattr(voiceflow, name) is not None
