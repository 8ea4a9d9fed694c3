"""The ear of the page's trials hears what was sung: else what they say of stale sound and of words proves nothing."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from tests.network.by_browser import HOP_S, Hearing
from tests.network.talk import Ear
from tests.network.tones import hz_of


@pytest.mark.parametrize("rate", [44100, 48000])
@pytest.mark.parametrize("cracks", [0, 40])
def test_each_piece_is_of_the_word_that_sounded(rate: int, cracks: int) -> None:
    """Two replies, with cracks as of missing packets: no word is heard before it began, and one after it was over for 50 ms at most."""
    times, dice = np.arange(rate // 10) / rate, np.random.default_rng(1)
    sung = np.concatenate([8000 * np.sin(2 * np.pi * hz_of(reply, word) * times) for reply in (1, 2) for word in range(40)])
    for at in dice.integers(0, len(sung) - 2000, cracks):
        length = int(dice.integers(100, 900))
        sung[at : at + length] = dice.normal(0, 3000, length)
    ear, first = Ear(), 1234
    hearing = Hearing(ear)
    hearing.rate = rate
    for at in range(0, len(sung), 1024):
        piece = sung[at : at + 1024].astype("<i2").tobytes()
        hearing.take([(first + at, base64.b64encode(piece).decode())], clock=0.0)
    hearing.take([(first + 10 * len(sung), base64.b64encode(bytes(2048)).decode())], clock=0.0)
    assert ear.seconds(1) + ear.seconds(2) == pytest.approx(8.0, abs=0.05)
    late_s = []
    for at, (reply, word), _, _ in ear.had:
        began = (40 * (reply - 1) + word) / 10 + first / rate
        assert at >= began - 2 * HOP_S
        late_s.append(at - began)
    assert max(late_s) <= 0.15
