"""The level meter's numbers, and its line."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.meter import Level, StatusLine


def sine(amplitude, samples=4800):
    return np.rint(32767 * amplitude * np.sin(2 * np.pi * np.arange(samples) / 48)).astype("<i2").tobytes()


def text_of(drawn):
    return re.sub("\x1b\\[[0-9;]*[mK]", "", drawn).lstrip("\r")


class TestLevel:
    def test_rms_and_peak_of_a_sine(self):
        """Half of full scale is -6 dB at its peak and 3 dB less as RMS, in pieces of any length."""
        level = Level()
        pcm = sine(0.5)
        for n in range(0, len(pcm), 1234):
            level.add(pcm[n : n + 1234])
        assert level.look(0.0) == (pytest.approx(-9.03, abs=0.02), pytest.approx(-6.02, abs=0.02))

    def test_rms_is_since_the_last_look_and_the_peak_stays_a_second(self):
        """After a click and silence the RMS is nothing, and the peak is seen for a second."""
        level = Level()
        level.add(sine(1.0))
        level.look(0.0)
        level.add(bytes(960))
        assert level.look(0.9) == (-math.inf, pytest.approx(0, abs=0.01))
        level.add(bytes(960))
        assert level.look(1.1) == (-math.inf, -math.inf)

    def test_nothing_grows_while_nobody_looks(self):
        """An hour of blocks without a look is bounded."""
        level = Level()
        for _ in range(10_000):
            level.add(sine(0.1, 48))
        assert len(level._parts) <= 256


class TestLine:
    @given(st.integers(1, 300), st.sampled_from([0.0, 0.001, 0.3, 1.0]), st.text("abc d", max_size=400), st.booleans())
    def test_it_is_never_as_wide_as_the_terminal(self, width, amplitude, partial, colour):
        """At any width the line leaves the last column free, begins over the last one and ends by clearing what is behind it."""
        status = StatusLine("you", "agent", colour=colour)
        status.add("you", sine(amplitude))
        status.partial = partial
        drawn = status.draw(0.0, width)
        assert drawn.startswith("\r")
        assert drawn.endswith("\x1b[K")
        assert len(text_of(drawn)) <= width - 1
        assert drawn.count("\x1b[0m") == len(re.findall("\x1b\\[3", drawn)), "no colour runs on"

    def test_bars_grow_with_the_level(self):
        """From -60 dB to full scale the bar fills, and numbers stand behind it."""
        lengths = []
        for amplitude in (0.0, 0.002, 0.05, 0.5, 1.0):
            status = StatusLine("you", "agent", colour=False)
            status.add("you", sine(amplitude))
            line = text_of(status.draw(0.0, 120))
            assert re.fullmatch(r"you .{24} +-?\d+/ *-?\d+ dB  agent .{24} -99/-99 dB", line)
            lengths.append(len(line[4:28].rstrip()))
        assert lengths == sorted(lengths)
        assert lengths[0] == 0
        assert lengths[-1] >= 22

    def test_narrower_terminals_get_numbers_alone(self):
        """Without room for bars both names and levels stand there, and without room for names the levels."""
        status = StatusLine("you", "agent", colour=False)
        assert text_of(status.draw(0.0, 24)) == "you -99  agent -99"
        assert text_of(status.draw(0.0, 12)) == "-99  -99"

    def test_colour_tells_loud_from_clipped(self):
        """Quiet is green, within 6 dB of full scale yellow, at it red; a silent side stays green beside it."""
        for amplitude, colour in ((0.1, "\x1b[32m"), (0.7, "\x1b[33m"), (1.0, "\x1b[31m")):
            status = StatusLine("you", "agent", colour=True)
            status.add("you", sine(amplitude))
            drawn = status.draw(0.0, 100)
            assert drawn.startswith(f"\r{colour}you ")
            assert "\x1b[32magent " in drawn

    def test_two_sides_of_one_level_have_each_their_colour(self):
        """Where only numbers are shown, and they are equal, each is coloured once."""
        status = StatusLine("you", "agent", colour=True)
        assert status.draw(0.0, 12) == "\r\x1b[32m-99\x1b[0m  \x1b[32m-99\x1b[0m\x1b[K"

    def test_what_is_being_said_stands_behind_as_far_as_it_fits(self):
        """Its end is what is shown, since that is new."""
        status = StatusLine("you", "agent", colour=False)
        status.partial = "one two three " * 20 + "four"
        line = text_of(status.draw(0.0, 110))
        assert len(line) == 109
        assert line.endswith("four")
        assert "…" in line
