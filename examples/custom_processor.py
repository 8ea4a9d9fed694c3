"""Write a processor, put it through the conformance kit, and use it. Three kinds: a function, an instant class, a waiting one."""

import asyncio
from collections.abc import AsyncIterator

from voiceflow import OutputAudioFrame, Processor, SentenceFrame, Session, processor, replace
from voiceflow.testing import Collector, check_processor, run_virtual


@processor
def politely(frame: SentenceFrame) -> SentenceFrame:
    """A function of one frame. Its annotations say what it takes and yields; anything else passes by."""
    return replace(frame, text=f"{frame.text.rstrip('.')}, please.")


class Shout(Processor):
    """An instant class: ``process`` is a plain method, and may return a frame, a list of frames, or None."""

    def process(self, frame: SentenceFrame) -> SentenceFrame | None:
        return replace(frame, text=frame.text.upper()) if frame.text.strip() else None


class Beep(Processor):
    """A waiting class: ``async def``, here a generator. An interrupt cancels it at the ``await``; nothing else to do."""

    async def process(self, frame: SentenceFrame) -> AsyncIterator[OutputAudioFrame]:
        for _ in frame.text.split():
            await asyncio.sleep(0.1)  # a service that takes its time
            yield OutputAudioFrame(b"\x00\x10" * 2400, sample_rate=24000, utterance=frame.utterance)


async def main() -> None:
    collector = Collector()
    pipeline = politely() >> Shout() >> Beep() >> collector
    print(pipeline)
    async with Session(pipeline, inputs=[SentenceFrame]) as session:
        await session.send(SentenceFrame("Sit down."))
    sounds = [frame for frame in collector.frames if isinstance(frame, OutputAudioFrame)]
    print(f"{len(sounds)} sounds, {sum(frame.duration for frame in sounds):.1f} s")


if __name__ == "__main__":
    for kind in (politely, Shout, Beep):
        check_processor(kind, feed=[SentenceFrame("one two.", utterance=1), SentenceFrame("three.", utterance=1)])
        print(f"{kind.__name__}: conforms")
    run_virtual(main())
