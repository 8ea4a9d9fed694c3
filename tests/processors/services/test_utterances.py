"""Text of an utterance on its way to a service, and its sound on the way out."""

from __future__ import annotations

import asyncio

import pytest

from voiceflow.frames import OutputAudioFrame, UtteranceEnded
from voiceflow.processors.services.retry import ServiceError
from voiceflow.processors.services.spoken_text import Pace, WordedSound
from voiceflow.processors.services.utterances import Outbox, Sending, Utterance
from voiceflow.processors.services.voice_service import StreamOptions


class Written:
    """A stretch that keeps what it is sent. ``fails``: at this piece."""

    def __init__(self, fails: int = 99) -> None:
        self.said: list[tuple[str, bool]] = []
        self.finished = False
        self.fails = fails

    async def say(self, text: str, *, flush: bool) -> None:
        if len(self.said) == self.fails:
            raise ServiceError("broken")
        self.said.append((text, flush))

    async def finish(self) -> None:
        self.finished = True


class Voice:
    takes_pieces = True
    speaks_at_once = True


def sending(stretch: Written, utterance: Utterance, outbox: Outbox, pace: Pace, voice: type[Voice] = Voice) -> Sending:
    sound = WordedSound(utterance.text, 8000, pace, is_timed=True)
    return Sending(stretch, utterance, sound, outbox, service=voice(), options=StreamOptions(ahead_s=6.0))  # type: ignore[arg-type]


def utterance(*pieces: str, complete: bool = True) -> Utterance:
    made = Utterance(1, 0)
    for piece in pieces:
        made.add(piece)
    if complete:
        made.complete()
    return made


async def test_pieces_are_sent_in_order_and_then_the_end() -> None:
    """A sentence's end is told."""
    stretch = Written()
    await sending(stretch, utterance("One, ", "two. ", "Three "), Outbox(), Pace(0.01)).run()
    assert (stretch.said, stretch.finished) == ([("One, ", False), ("two. ", True), ("Three ", False)], True)


async def test_a_service_of_requests_gets_one_piece() -> None:
    """The next one is another stretch's."""

    class Requests(Voice):
        takes_pieces = False

    stretch = Written()
    await sending(stretch, utterance("One. ", "Two. "), Outbox(), Pace(0.01), Requests).run()
    assert (stretch.said, stretch.finished) == ([("One. ", True)], True)


async def test_text_waits_for_the_sound_of_what_was_sent() -> None:
    """As long as it is reckoned to be; if none comes any more, it was less than that."""
    stretch, outbox = Written(), Outbox()
    sender = sending(stretch, utterance("One. ", "Two. ", "Three. "), outbox, Pace(2.0))
    task = asyncio.create_task(sender.run())
    await asyncio.sleep(60)
    assert len(stretch.said) == 1
    sender.sound_stalls()
    await asyncio.sleep(0.1)
    assert len(stretch.said) == 2
    sender.sound_stalls()
    await task
    assert stretch.finished


async def test_text_waits_while_sound_waits() -> None:
    """Until enough of it has gone on."""
    stretch, outbox = Written(), Outbox()
    for _ in range(7):
        outbox.put(OutputAudioFrame(bytes(16000), 8000))
    task = asyncio.create_task(sending(stretch, utterance("One. "), outbox, Pace(0.01)).run())
    await outbox.pop()
    await asyncio.sleep(60)
    assert stretch.said == []
    await outbox.pop()
    await task
    assert stretch.finished


async def test_text_that_stalls_ends_the_stretch() -> None:
    """After three seconds; not before."""
    spoken, stretch = utterance("One. ", complete=False), Written()
    task = asyncio.create_task(sending(stretch, spoken, Outbox(), Pace(0.01)).run())
    await asyncio.sleep(2.9)
    spoken.add("Two. ")
    await asyncio.sleep(2.9)
    assert not stretch.finished
    await asyncio.sleep(0.2)
    assert stretch.finished
    await task


async def test_a_failure_to_send_is_left_to_the_listener() -> None:
    """What the service says about it may be on its way."""
    sender = sending(Written(fails=1), utterance("One. ", "Two. "), Outbox(), Pace(0.01))
    await sender.run()
    assert (str(sender.failure), sender.is_finished) == ("broken", False)


async def test_sound_is_due_from_the_moment_at_which_it_was_asked_for() -> None:
    """Or since it last came; none is while no sentence has ended, where text is gathered."""

    class Gathers(Voice):
        speaks_at_once = False

    spoken = utterance("One ", complete=False)
    sender = sending(Written(), spoken, Outbox(), Pace(0.01), Gathers)
    task = asyncio.create_task(sender.run())
    await asyncio.sleep(1.0)
    assert sender.due_since(None) is None
    spoken.add("two. ")
    await asyncio.sleep(1.0)
    assert sender.due_since(None) == 1.0
    assert sender.due_since(1.5) == 1.5
    spoken.complete()
    await task


async def test_the_outbox_knows_when_all_has_been_delivered() -> None:
    """A frame is delivered when the next one is asked for; what is cleared counts as gone."""
    outbox = Outbox()
    outbox.put(UtteranceEnded(utterance=1))
    gone = asyncio.create_task(outbox.until(outbox.is_empty))
    await outbox.pop()
    await asyncio.sleep(1.0)
    assert not gone.done()
    popping = asyncio.create_task(outbox.pop())
    await gone
    outbox.put(OutputAudioFrame(bytes(16000), 8000))
    await popping
    outbox.put(OutputAudioFrame(bytes(16000), 8000))
    assert outbox.seconds == pytest.approx(1.0)
    outbox.clear()
    assert (outbox.seconds, outbox.is_empty()) == (0.0, False)


def test_a_failure_is_told_once() -> None:
    """To whoever comes first."""
    spoken = utterance("One. ")
    spoken.tell()
    spoken.failure = ServiceError("broken")
    with pytest.raises(ServiceError, match="broken"):
        spoken.tell()
    spoken.tell()
