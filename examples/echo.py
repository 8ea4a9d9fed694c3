"""The smallest agent: it says back what it hears, one second later. WAV in, WAV out; `voiceflow talk examples/echo.py` uses the microphone."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from voiceflow import InputAudioFrame, OutputAudioFrame, Pipeline, Processor, Session
from voiceflow.transports.wav import WavIn, WavOut

QUESTION = Path(__file__).parent / "data" / "question.wav"


class Echo(Processor):
    """Takes what the caller says, yields what the agent says."""

    async def process(self, frame: InputAudioFrame) -> AsyncIterator[OutputAudioFrame]:
        await asyncio.sleep(max(0.0, (frame.pts or 0.0) + 1.0 - self.session.time()))
        yield OutputAudioFrame(frame.pcm, frame.sample_rate, frame.channels)


def agent(source: Processor, sink: Processor) -> Pipeline:
    return source >> Echo() >> sink


async def main(heard: Path, said: Path) -> None:
    pipeline = agent(WavIn(heard), WavOut(said))
    print(pipeline)  # the caller's 16 kHz and the loudspeaker's 24 kHz meet in a converter that the pipeline puts in
    await Session(pipeline).run()
    print(f"{heard.name} is in {said}, one second later")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else QUESTION, Path(sys.argv[2] if len(sys.argv) > 2 else "echo.wav")))
