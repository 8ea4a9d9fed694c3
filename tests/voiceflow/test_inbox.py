"""The queue of a waiting node: bounded in seconds for sound and in count for the rest, and it never refuses a frame."""

from __future__ import annotations

import asyncio
import gc
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import Frame, InputAudioFrame, Lane, OutputAudioFrame, PlaybackStarted, SayFrame
from voiceflow.inbox import HARD_LIMIT, Inbox
from voiceflow.testing import run_virtual

LIMIT_FRAMES, LIMIT_S, LIMIT_LIVE_S = 4, 1.0, 2.0


def make(**limits: float) -> Inbox:
    bounds = {"limit_frames": LIMIT_FRAMES, "limit_s": LIMIT_S, "limit_live_s": LIMIT_LIVE_S} | limits
    return Inbox(Lane.AGENT, int(bounds["limit_frames"]), bounds["limit_s"], bounds["limit_live_s"])


def sound(samples: int) -> OutputAudioFrame:
    return OutputAudioFrame(bytes(2 * samples), 1024)  # a rate whose durations are exact as floats


def live(samples: int, number: int = 0) -> InputAudioFrame:
    return InputAudioFrame(bytes(2 * samples), 1024, pts=number)


def drain(inbox: Inbox) -> list[Frame]:
    out = []
    while (item := inbox.pop()) is not None:
        out.append(item[0])
    return out


@given(
    st.lists(
        st.one_of(
            st.integers(1, 700).map(sound),
            st.integers(1, 700).map(live),
            st.text(max_size=3).map(SayFrame),
            st.just(None),  # take one out
        ),
        max_size=60,
    )
)
def test_it_is_a_queue_with_two_scales(actions: list[Frame | None]) -> None:
    """First in, first out; what it says it holds is what it holds; only live sound is ever dropped, oldest first."""
    inbox, model = make(), deque[Frame]()
    for action in actions:
        if action is None:
            item = inbox.pop()
            assert item == ((model.popleft(), None) if model else None)
            continue
        pressed = inbox.put(action)
        model.append(action)
        while sum(f.duration for f in model if isinstance(f, InputAudioFrame)) > LIMIT_LIVE_S:
            model.remove(next(f for f in model if f.live))
        paced = sum(f.duration for f in model if isinstance(f, OutputAudioFrame))
        others = sum(isinstance(f, SayFrame) for f in model)
        assert pressed == (not action.live and (others >= LIMIT_FRAMES or paced >= LIMIT_S))
        assert inbox.seconds == sum(getattr(f, "duration", 0.0) for f in model)
        assert len(inbox) == len(model)
    assert drain(inbox) == list(model)
    assert inbox.seconds == 0.0
    assert not inbox.is_pressed


def test_one_long_live_frame_is_kept() -> None:
    """More than the bound in one piece is still better than silence; what came before it goes."""
    inbox = make()
    inbox.put(live(500, 1))
    inbox.put(live(500, 2))
    inbox.put(live(9000, 3))
    assert [f.pts for f in drain(inbox)] == [3]
    assert inbox.dropped == 2


def test_sound_counts_in_seconds_and_the_rest_in_number() -> None:
    """A thousand short frames of sound press no more than their length; many small frames press by their number."""
    inbox = make(limit_frames=4, limit_s=1.0)
    assert not any(inbox.put(sound(8)) for _ in range(127))
    assert inbox.put(sound(8))
    inbox = make(limit_frames=4, limit_s=1.0)
    assert [inbox.put(SayFrame("")) for _ in range(5)] == [False, False, False, True, True]


def test_reports_press_nobody() -> None:
    """Whoever reports upstream must not wait for the one it is fed by: the two would wait for each other."""
    inbox = make(limit_frames=1)
    assert not inbox.put(PlaybackStarted())
    assert not inbox.put(PlaybackStarted())


def test_a_flood_that_may_not_wait_pushes_out_the_oldest() -> None:
    """Nothing grows for ever, and what is lost is counted."""
    inbox = make()
    for number in range(HARD_LIMIT + 3):
        inbox.put(PlaybackStarted(utterance=number))
    assert len(inbox) == HARD_LIMIT
    assert inbox.dropped == 3
    item = inbox.pop()
    assert item is not None
    assert item[0] == PlaybackStarted(utterance=3)


def test_clear_empties_it_and_counts() -> None:
    """After it, everything is as new."""
    inbox = make()
    for frame in (sound(900), live(300), SayFrame("a"), SayFrame("b")):
        inbox.put(frame)
    assert inbox.clear() == 4
    assert (len(inbox), inbox.seconds, inbox.is_pressed, inbox.pop()) == (0, 0.0, False, None)
    assert not inbox.put(sound(500))


async def test_relief_comes_at_half_the_mark() -> None:
    """Whoever waits goes on when half of it is worked off, not at the first frame: no see-saw at the mark."""
    inbox = make(limit_frames=8)
    for _ in range(8):
        inbox.put(SayFrame(""))
    waiting = asyncio.ensure_future(inbox.relief())
    await asyncio.sleep(0)
    for left in (7, 6, 5):
        inbox.pop()
        await asyncio.sleep(0)
        assert (len(inbox), waiting.done()) == (left, False)
    inbox.pop()
    await asyncio.sleep(0)
    assert waiting.done()


async def test_relief_needs_both_scales() -> None:
    """Few frames but much sound is no relief."""
    inbox = make(limit_frames=2, limit_s=1.0)
    inbox.put(SayFrame(""))
    inbox.put(sound(900))
    inbox.put(sound(900))
    waiting = asyncio.ensure_future(inbox.relief())
    await asyncio.sleep(0)
    inbox.pop()
    inbox.pop()
    await asyncio.sleep(0)
    assert not waiting.done()
    inbox.pop()
    await asyncio.sleep(0)
    assert waiting.done()


async def test_relief_is_at_once_when_there_is_room() -> None:
    """Nobody waits below the mark."""
    await asyncio.wait_for(make().relief(), timeout=1)


async def test_clear_lets_everyone_go() -> None:
    """An interrupt leaves no one waiting for room in a queue that is empty."""
    inbox = make(limit_frames=1)
    inbox.put(SayFrame(""))
    waiting = [asyncio.ensure_future(inbox.relief()) for _ in range(3)]
    await asyncio.sleep(0)
    inbox.clear()
    await asyncio.wait_for(asyncio.gather(*waiting), timeout=1)


async def test_a_cancelled_wait_harms_nobody() -> None:
    """Neither the other waiters nor the queue."""
    inbox = make(limit_frames=1)
    inbox.put(SayFrame(""))
    first, second = asyncio.ensure_future(inbox.relief()), asyncio.ensure_future(inbox.relief())
    consumer = asyncio.ensure_future(make().filled())
    await asyncio.sleep(0)
    first.cancel()
    consumer.cancel()
    await asyncio.sleep(0)
    inbox.pop()
    await asyncio.wait_for(second, timeout=1)
    assert first.cancelled()


async def test_cancelled_waits_do_not_pile_up() -> None:
    """An application that gives up again and again on a node that is stuck costs nothing but its time."""
    inbox = make(limit_frames=1)
    inbox.put(SayFrame(""))
    for _ in range(100):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(inbox.relief(), timeout=1)
    gc.collect()
    assert sum(isinstance(thing, asyncio.Future) for thing in gc.get_referents(*gc.get_referents(inbox))) == 0


async def test_filled_waits_for_the_first_frame() -> None:
    """And does not wait when there is one; a cancelled wait loses no frame."""
    inbox = make()
    waiting = asyncio.ensure_future(inbox.filled())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.sleep(0)
    again = asyncio.ensure_future(inbox.filled())
    await asyncio.sleep(0)
    inbox.put(SayFrame("a"))
    inbox.put(SayFrame("b"))
    await asyncio.wait_for(again, timeout=1)
    await asyncio.wait_for(inbox.filled(), timeout=1)
    assert drain(inbox) == [SayFrame("a"), SayFrame("b")]


def test_many_tiny_frames_leave_no_rounding_behind() -> None:
    """The seconds are a running sum; empty is zero, whatever was added and taken."""

    async def main() -> None:
        inbox = make(limit_s=1e9, limit_live_s=1e9)
        for _ in range(3):
            for samples in range(1, 200):
                inbox.put(OutputAudioFrame(bytes(2 * samples), 1000))
                inbox.put(InputAudioFrame(bytes(2 * samples), 1000))
            drain(inbox)
            assert inbox.seconds == 0.0

    run_virtual(main())
