"""Speech to text with Deepgram (listen v1). Flux, which takes turns itself, is ``deepgram_flux``.

The one rule: the node only carries. Which sound is sent again is ``deepgram_sound``'s business, what a message means
``deepgram_ears``', the connection ``deepgram_line``'s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from voiceflow.frames import EndFrame, ErrorFrame, Frame, InputAudioFrame, SpeechStarted, SpeechStopped
from voiceflow.processor import Processor
from voiceflow.processors.services.deepgram_ears import ListenEars, TimedTranscript
from voiceflow.processors.services.deepgram_line import ListenLine
from voiceflow.processors.services.deepgram_options import KEY_VARIABLE, DeepgramOptions, LineOptions
from voiceflow.processors.services.deepgram_sound import KeptSound
from voiceflow.processors.services.deepgram_wire import FINALIZE, KEEP_ALIVE

__all__ = ["DeepgramOptions", "DeepgramSTT", "LineOptions", "TimedTranscript"]


class DeepgramSTT(Processor):
    """Turns the caller's speech into transcripts, as ``SpeechToText`` does, at a service.

    Takes sound of any rate and channels, and the edges of a detector before it, which it passes on. When speech stops the
    service is told so, and its answer is the final transcript: one for each stretch of speech, ``""`` if nothing was said.
    Speech that no detector told of has its final when the service holds it to be over (``endpoint``). With
    ``DeepgramOptions.edges`` there is no detector, and the node tells the edges as well.

    The words of finals do not change (``stable``); each transcript has the times of its ``words``. A connection that is lost is
    made again, and what was not final is sent again. While that cannot be, an ErrorFrame says why, and sound is kept. An
    interrupt leaves it alone. ``EndFrame`` waits for the last words, ``LineOptions.tail_s`` at most.

    Raises ServiceError from start() if there is no key.
    """

    key_variable = KEY_VARIABLE

    def __init__(self, options: DeepgramOptions | None = None) -> None:
        self.options = options or DeepgramOptions()
        self.sound = KeptSound(self.options.sample_rate, self.options.line.kept_s)
        self.line: ListenLine
        self._ears = ListenEars(self.options, self.sound)

    async def start(self) -> None:
        """Find the key, and begin to connect."""
        options = self.options
        self.line = ListenLine(options.url(), options.line, self.sound, self._ears, mark=FINALIZE, keep_alive=KEEP_ALIVE)
        self.session.spawn(self.line.run(self.name), f"{self.name}/connection")

    async def process(
        self, frame: InputAudioFrame | SpeechStarted | SpeechStopped | EndFrame
    ) -> AsyncIterator[SpeechStarted | SpeechStopped]:
        """Take it in and pass edges on; transcripts come from ``run``."""
        if isinstance(frame, EndFrame):
            await self.line.finished(self.options.line.tail_s)
            for last in self._ears.tail():
                await self.line.frames.put(last)
            await self.line.frames.join()
            return
        if isinstance(frame, InputAudioFrame):
            self.sound.hear(frame, self.session.time())
        elif isinstance(frame, SpeechStarted):
            self._ears.started(frame.at, self.session.time())
        else:
            self._ears.stopped()
        self.line.look()
        if not isinstance(frame, InputAudioFrame):
            self.line.wake.set()
            yield frame

    async def run(self) -> AsyncIterator[TimedTranscript | SpeechStarted | SpeechStopped | ErrorFrame]:
        """What the service says."""
        while True:
            frame: Frame = await self.line.frames.get()
            assert isinstance(frame, TimedTranscript | SpeechStarted | SpeechStopped | ErrorFrame)
            yield frame
            self.line.frames.task_done()
