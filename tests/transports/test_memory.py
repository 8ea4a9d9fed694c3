"""The in-memory transport: sending, listening, and two sessions on one line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import (
    AudioFormat,
    InputAudioFrame,
    OutputAudioFrame,
    Processor,
    SayFrame,
    Session,
    SessionError,
    TranscriptFrame,
    UtteranceEnded,
)
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.testing import no_leaks, run_virtual
from voiceflow.transports.memory import MemoryIn, MemoryOut, pair
from voiceflow.transports.speaker import SpeakerOptions

RATE = 24000
BARE = SpeakerOptions(playout=PlayoutOptions(fade_ms=0, declick_ms=0))


def heard(ms, value=1):
    return InputAudioFrame(pcm=np.full(round(ms * RATE / 1000), value, "<i2").tobytes(), sample_rate=RATE)


class Listener(Processor):
    """Keeps what the caller says; takes ``each_s`` for each frame."""

    def __init__(self, each_s=0.0):
        self.each_s = each_s
        self.frames: list[tuple[float, InputAudioFrame | TranscriptFrame]] = []

    async def process(self, frame: InputAudioFrame | TranscriptFrame) -> None:
        self.frames.append((self.session.time(), frame))
        await asyncio.sleep(self.each_s)


class Beep(Processor):
    """Answers each transcript with ``ms`` of sound of the value in its text."""

    makes = AudioFormat(RATE)

    def __init__(self, ms=100):
        self.ms = ms
        self.count = 0

    def process(self, frame: TranscriptFrame) -> list[OutputAudioFrame | UtteranceEnded]:
        self.count += 1
        pcm = np.full(round(self.ms * RATE / 1000), int(frame.text), "<i2").tobytes()
        return [OutputAudioFrame(pcm=pcm, sample_rate=RATE, utterance=self.count), UtteranceEnded(utterance=self.count)]


class TestIn:
    def test_what_is_sent_comes_in_order_and_the_close_ends_the_session(self):
        """Sound and text come as sent, with the time they were said at; after close() the session runs out."""

        async def main():
            inlet, listener = MemoryIn(), Listener()
            async with no_leaks():
                running = asyncio.create_task(Session(inlet >> listener).run())
                await inlet.send(TranscriptFrame(text="early"))
                await asyncio.sleep(1.0)
                await inlet.send(heard(20))
                await inlet.send(InputAudioFrame(pcm=b"", sample_rate=8000, pts=0.25))
                inlet.close()
                await running
            return [frame for _, frame in listener.frames]

        early, sound, own = run_virtual(main())
        assert (early.text, early.pts) == ("early", 0.0)
        assert sound.pts == pytest.approx(0.98)
        assert own.pts == 0.25

    def test_a_full_inlet_makes_the_sender_wait(self):
        """Without a session that takes them, the limit's number of frames can be sent, and not one more."""

        async def main():
            inlet, listener = MemoryIn(limit=3), Listener()
            sent = []

            async def send():
                for i in range(10):
                    await inlet.send(TranscriptFrame(text=str(i)))
                    sent.append(i)
                inlet.close()

            sending = asyncio.create_task(send())
            await asyncio.sleep(1.0)
            assert sent == [0, 1, 2]
            await Session(inlet >> listener).run()
            await sending
            return [frame.text for _, frame in listener.frames]

        assert run_virtual(main()) == [str(i) for i in range(10)]

    def test_offered_sound_never_waits(self):
        """A full inlet drops its oldest frame for an offered one, and counts it; a closed one counts all."""

        async def main():
            inlet, listener = MemoryIn(limit=3), Listener()
            for value in range(5):
                inlet.offer(heard(20, value))
            inlet.close()
            inlet.offer(heard(20, 9))
            assert inlet.dropped == 3
            await Session(inlet >> listener).run()
            return [frame.samples[0, 0] for _, frame in listener.frames]

        assert run_virtual(main()) == [2, 3, 4]

    def test_wrong_frames_and_a_closed_inlet_are_errors(self):
        """Another type, another format, and sending after the close (also one that came while waiting) say what is wrong."""

        async def main():
            inlet = MemoryIn(AudioFormat(8000), limit=1)
            with pytest.raises(TypeError, match="was given SayFrame"):
                await inlet.send(SayFrame(text="x"))
            with pytest.raises(ValueError, match=r"made for 8000 Hz x1 .* 24000 Hz x1"):
                await inlet.send(heard(20))
            await inlet.send(TranscriptFrame(text="fills it"))
            waiting = asyncio.create_task(inlet.send(TranscriptFrame(text="waits")))
            await asyncio.sleep(0)
            inlet.close()
            with pytest.raises(SessionError, match="closed"):
                await waiting
            with pytest.raises(ValueError, match="limit is 0"):
                MemoryIn(limit=0)

        run_virtual(main())


class TestOut:
    def test_blocks_have_the_time_they_left(self):
        """Sound said at 1 s can be looked at block by block, 20 ms apart from 1 s on."""

        async def main():
            inlet, out = MemoryIn(), MemoryOut(AudioFormat(RATE), BARE)
            async with Session(inlet >> Beep() >> out):
                await asyncio.sleep(1.0)
                await inlet.send(TranscriptFrame(text="7"))
                await asyncio.sleep(0.5)
            return out.blocks

        blocks = [b for b in run_virtual(main()) if any(b.pcm)]
        assert [b.at for b in blocks] == pytest.approx([1.0, 1.02, 1.04, 1.06, 1.08])

    def test_iterating_takes_the_blocks_until_the_session_ends(self):
        """``async for`` gives each block once, as it leaves, and ends with the session."""

        async def main():
            inlet, out = MemoryIn(), MemoryOut(AudioFormat(RATE), BARE)
            running = asyncio.create_task(Session(inlet >> Beep() >> out).run())
            await inlet.send(TranscriptFrame(text="7"))
            inlet.close()
            taken = [block async for block in out]
            await running
            assert out.blocks == []
            return np.frombuffer(b"".join(block.pcm for block in taken), "<i2")

        pcm = run_virtual(main())
        assert (pcm == 7).sum() == 2400

    def test_it_keeps_no_more_than_its_bound(self):
        """Of ten seconds that nobody takes the last one is kept, and the rest is counted."""

        async def main():
            inlet, out = MemoryIn(), MemoryOut(AudioFormat(RATE), BARE, keep_s=1.0)
            async with Session(inlet >> Beep(10_000) >> out):
                await inlet.send(TranscriptFrame(text="7"))
            return out

        out = run_virtual(main())
        assert len(out.blocks) == 50
        assert out.dropped >= 450
        with pytest.raises(ValueError, match="keep_s"):
            MemoryOut(keep_s=0)


class TestPair:
    class Speaks(Processor):
        """Says 100 ms of ``value`` at each of the times."""

        makes = AudioFormat(RATE)

        def __init__(self, value, *times):
            self.value = value
            self.times = times

        async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
            for number, at in enumerate(self.times):
                await asyncio.sleep(at - self.session.time())
                pcm = np.full(2400, self.value, "<i2").tobytes()
                yield OutputAudioFrame(pcm=pcm, sample_rate=RATE, utterance=number, epoch=self.session.epoch)
                yield UtteranceEnded(utterance=number, epoch=self.session.epoch)

    def test_what_one_says_the_other_hears_at_that_time(self):
        """Two sessions hear each other, silence included, in step with the clock; one's end is the other's."""

        async def main():
            ends = pair(AudioFormat(RATE), BARE)
            listeners = [Listener(), Listener()]
            speakers = [self.Speaks(3, 0.5, 1.5), self.Speaks(4, 1.0)]
            async with no_leaks(), asyncio.TaskGroup() as group:
                for end, listener, speaks in zip(ends, listeners, speakers, strict=True):
                    group.create_task(Session([end.source >> listener, speaks] >> end.sink).run())
                await asyncio.sleep(2.0)
                ends[0].source.close()
            return listeners, asyncio.get_running_loop().time()

        (first, second), end = run_virtual(main())
        assert end == pytest.approx(2.0, abs=0.05)
        for listener, value, times in ((first, 4, [1.0]), (second, 3, [0.5, 1.5])):
            frames = [frame for _, frame in listener.frames]
            assert np.diff([f.pts for f in frames]) == pytest.approx(0.02)
            sounding = [f.pts for f in frames if f.samples.any()]
            assert {s for f in frames for s in f.samples[:, 0]} == {0, value}
            starts = [at for i, at in enumerate(sounding) if i == 0 or at - sounding[i - 1] > 0.03]
            assert starts == pytest.approx(times, abs=0.021)
