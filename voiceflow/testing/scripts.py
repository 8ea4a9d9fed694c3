"""A caller and services that follow a script, at exact times: the whole conversation without a model.

Sound is *labelled*: a sample of the caller's k-th utterance divided by ``CALLER_STEP`` is k, and the rest says which
quarter of which word it is (:func:`labelled_speech`); noise is ``NOISE``, or ``BACKGROUND`` where no detector takes it for a
voice; the agent's n-th sentence (counted through the session, from 1) is 100 ms a word of samples ``n * step``, or, with
``numbered``, each 10 ms of its speech have a number of their own. So any sample, wherever it shows up, says what it belongs to.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from voiceflow.frames import (
    AudioFormat,
    ContextFrame,
    EndFrame,
    InputAudioFrame,
    LLMEnded,
    LLMStarted,
    LLMTextFrame,
    OutputAudioFrame,
    SentenceFrame,
    SpeechStarted,
    SpeechStopped,
    ToolCallFrame,
    TranscriptFrame,
    TurnScored,
    UtteranceEnded,
    Word,
)
from voiceflow.messages import Message, ToolCall
from voiceflow.processor import Processor

__all__ = [
    "BACKGROUND",
    "CALLER_STEP",
    "NOISE",
    "Latency",
    "Said",
    "ScriptedCaller",
    "ScriptedLLM",
    "ScriptedSTT",
    "ScriptedTTS",
    "ScriptedTurnEnd",
    "ScriptedVAD",
    "labelled_speech",
    "labels",
]

CALLER_STEP = 100
NOISE = -100
BACKGROUND = -50
CALLER_RATE = 16000
VOICE_RATE = 24000
WORD_S = 0.1
"""How long the scripted voice takes for a word."""
PIECE_S = 0.01
FIRST_PIECE = 1000
"""Numbers of pieces begin so high that a fade from one to zero stays on no number for long."""
PIECES = 31000
LONGEST_TEXT = 24
"""Words of an utterance that can be told apart; in a longer one none is."""

Samples = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Said:
    """Something the caller does: ``text`` from ``at`` for ``seconds``. Without text it is noise: sound, but no speech."""

    at: float
    seconds: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Latency:
    """A service's delays: to its first result, and between results."""

    first_s: float = 0.0
    each_s: float = 0.0


def labels(pcm: bytes, step: int = 1) -> list[int]:
    """The distinct labels in labelled sound, in order: runs of equal samples, divided by ``step``; silence left out."""
    samples = np.frombuffer(pcm, "<i2").astype(int)
    if not samples.size:
        return []
    starts = np.flatnonzero(np.diff(samples, prepend=samples[0] - 1))
    return [int(samples[i]) // step for i in starts if samples[i]]


def labelled_speech(label: int, text: str, seconds: float) -> Samples:
    """``seconds`` of utterance ``label`` at 16 kHz: its words follow each other evenly, and each sample is
    ``label * CALLER_STEP + 1 + 4 * word + quarter``."""
    words, count = len(text.split()), round(seconds * CALLER_RATE)
    quarters = np.arange(count) * 4 * words // max(count, 1) + 1 if 0 < words <= LONGEST_TEXT else np.zeros(count, int)
    return (label * CALLER_STEP + quarters).astype(np.int16)


class ScriptedCaller(Processor):
    """A source: labelled sound in real (or virtual) time, 16 kHz mono, until ``until`` seconds have passed."""

    makes = AudioFormat(CALLER_RATE)

    def __init__(self, script: Sequence[Said], *, until: float, frame_s: float = 0.02) -> None:
        self.script = list(script)
        self.until = until
        self.frame_s = frame_s

    @property
    def texts(self) -> list[str]:
        """What the labels 1, 2, ... stand for."""
        return [said.text for said in self.script if said.text]

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """Yield each frame at the moment its last sample has been spoken."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        sound = self._sound()
        size = round(self.frame_s * CALLER_RATE)
        for number in range(len(sound) // size):
            await asyncio.sleep(began + (number + 1) * self.frame_s - loop.time())
            pcm = sound[number * size : (number + 1) * size].tobytes()
            yield InputAudioFrame(pcm, CALLER_RATE, pts=began + number * self.frame_s)

    def _sound(self) -> Samples:
        sound = np.zeros(round(self.until * CALLER_RATE), np.int16)
        spoken = 0
        for said in self.script:
            spoken += bool(said.text)
            stretch = sound[round(said.at * CALLER_RATE) :][: round(said.seconds * CALLER_RATE)]
            stretch[:] = labelled_speech(spoken, said.text, said.seconds)[: len(stretch)] if said.text else NOISE
        return sound


class ScriptedVAD(Processor):
    """Hears any sound that is not silence or ``BACKGROUND``, after ``start_s`` of it, and its end after ``stop_s`` without.

    ``levels``: of utterances, in dB of full scale, by their labels; one below ``threshold_db`` is not heard.
    """

    def __init__(
        self, *, start_s: float = 0.1, stop_s: float = 0.2, levels: Mapping[int, float] | None = None, threshold_db: float = -60.0
    ) -> None:
        self.start_s = start_s
        self.stop_s = stop_s
        self.levels = levels if levels is not None else {}
        self.threshold_db = threshold_db
        self._speaking = False
        self._run_s = 0.0
        self._level_db: float | None = None

    def process(self, frame: InputAudioFrame) -> Iterator[InputAudioFrame | SpeechStarted | SpeechStopped]:
        """Pass the sound on, and what was noticed in it after it."""
        yield frame
        ends_at = (frame.pts or 0.0) + frame.duration
        is_sound = self._hears(frame.pcm)
        self._run_s = self._run_s + frame.duration if is_sound != self._speaking else 0.0
        if self._run_s + 1e-9 >= (self.stop_s if self._speaking else self.start_s):
            at = ends_at - self._run_s
            self._speaking = not self._speaking
            self._run_s = 0.0
            level = self._level_db
            yield SpeechStarted(at=at, level_db=level) if self._speaking else SpeechStopped(at=at, silence=self.stop_s, level_db=level)

    def _hears(self, pcm: bytes) -> bool:
        if not pcm.strip(b"\0"):
            return False
        samples = np.frombuffer(pcm, "<i2")
        for value in np.unique(samples):
            level = self.levels.get(int(value) // CALLER_STEP)
            if value not in (0, BACKGROUND) and (level is None or level >= self.threshold_db):
                self._level_db = level
                return True
        return False


class ScriptedSTT(Processor):
    """Knows from the labels what was said: partials while it is being said, the final after ``latency.first_s``. Instant.

    A word is understood if its first quarter and two more came. ``texts[k - 1]`` is what label k stands for; both it and ``late``
    (label -> seconds by which its final is later still) are looked at when they are needed, so a caller may go on filling
    them. ``pre_roll_s``: how much of what came before the detector told is listened to (None: all).
    """

    def __init__(
        self,
        texts: Sequence[str],
        latency: Latency | None = None,
        *,
        partial_every_s: float = 0.4,
        late: Mapping[int, float] | None = None,
        pre_roll_s: float | None = None,
    ) -> None:
        self.texts = texts
        self.latency = latency or Latency(0.1)
        self.partial_every_s = partial_every_s
        self.late = late if late is not None else {}
        self.pre_roll_s = pre_roll_s
        self._codes: Counter[int] = Counter()  # sample value -> how often, since the last final
        self._before: deque[tuple[float, Counter[int]]] = deque()
        self._since_partial = 0.0
        self._speaking = False
        self._finals: deque[tuple[float, TranscriptFrame]] = deque()
        self._wake = asyncio.Event()

    def process(
        self, frame: InputAudioFrame | SpeechStarted | SpeechStopped | EndFrame
    ) -> Iterator[TranscriptFrame | SpeechStarted | SpeechStopped]:
        """Partials, and one final for each stretch of speech (empty for noise). Passes the detector's edges on."""
        if isinstance(frame, InputAudioFrame):
            yield from self._listen(frame)
        elif isinstance(frame, EndFrame):
            while self._finals:
                yield self._finals.popleft()[1]
        else:
            yield frame
            self._speaking = isinstance(frame, SpeechStarted)
            if isinstance(frame, SpeechStarted):
                for _, codes in self._before:
                    self._codes += codes
                self._before.clear()
            else:
                self._finish()

    async def run(self) -> AsyncIterator[TranscriptFrame]:
        """Each final when it is due."""
        while True:
            while self._finals:
                wait_s = self._finals[0][0] - self.session.time()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                if self._finals:  # the end of the call may have asked for it
                    yield self._finals.popleft()[1]
            self._wake.clear()
            await self._wake.wait()

    def _listen(self, frame: InputAudioFrame) -> Iterator[TranscriptFrame]:
        self._since_partial += frame.duration
        codes: Counter[int] = Counter()
        if frame.pcm.strip(b"\0"):
            samples = np.frombuffer(frame.pcm, "<i2")
            values, counts = np.unique(samples[samples > 0], return_counts=True)
            codes.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        if self._speaking or self.pre_roll_s is None:
            self._codes += codes
        else:
            self._before.append((frame.duration, codes))
            while sum(seconds for seconds, _ in self._before) > self.pre_roll_s + 1e-9:
                self._before.popleft()
        if self._speaking and self._since_partial >= self.partial_every_s and self._codes:
            self._since_partial = 0.0
            if text := self._text(partly=True):
                yield TranscriptFrame(text, final=False)

    def _finish(self) -> None:
        late_s = max((self.late.get(code // CALLER_STEP, 0.0) for code in self._codes), default=0.0)
        text, due = self._text(), self.session.time() + self.latency.first_s + late_s
        if self._finals:
            due = max(due, self._finals[-1][0])
        self._finals.append((due, TranscriptFrame(text, final=True)))
        self._codes.clear()
        self._wake.set()

    def _text(self, *, partly: bool = False) -> str:
        """All that was said since the last final, in the order in which it began."""
        labels = dict.fromkeys(code // CALLER_STEP for code in self._codes)
        return " ".join(filter(None, (self._words_of(label, partly=partly) for label in labels)))

    def _words_of(self, label: int, *, partly: bool) -> str:
        words = self.texts[label - 1].split()
        unmarked = self._codes[label * CALLER_STEP]
        if unmarked:  # the words were not told apart
            known = 1 + int(unmarked / CALLER_RATE / self.partial_every_s) if partly else len(words)
            return " ".join(words[:known])
        came = {code % CALLER_STEP - 1 for code in self._codes if code // CALLER_STEP == label}
        whole = [number for number in range(len(words)) if 4 * number in came and len(came & set(range(4 * number, 4 * number + 4))) >= 3]
        return " ".join(words[number] for number in whole)


class ScriptedTurnEnd(Processor):
    """Scores the end of each stretch of speech: ``unfinished`` if its text ends in a comma or dots, else ``finished``."""

    def __init__(self, texts: Sequence[str], *, finished: float = 0.9, unfinished: float = 0.1) -> None:
        self.texts = texts
        self.finished = finished
        self.unfinished = unfinished
        self._label = 0

    def process(self, frame: InputAudioFrame | SpeechStopped) -> TurnScored | None:
        """The score, at once; none for a stretch in which nothing was said."""
        if isinstance(frame, InputAudioFrame):
            self._label = max(self._label, int(np.frombuffer(frame.pcm, "<i2").max(initial=0)) // CALLER_STEP)
            return None
        label, self._label = self._label, 0
        if not label:
            return None
        is_open = self.texts[label - 1].rstrip().endswith((",", "...", "…"))
        return TurnScored(probability=self.unfinished if is_open else self.finished, at=frame.at)


class _Service(Processor):
    """Counts the steps it takes for a reply after that was interrupted: a good engine leaves none."""

    late_steps = 0
    _stubborn = False

    async def _wait(self, seconds: float, epoch: int) -> None:
        if seconds > 0 or not self._stubborn:
            await asyncio.sleep(seconds)
        if epoch != self.session.epoch and not self._stubborn:
            self.late_steps += 1


class ScriptedLLM(_Service):
    """Streams ``reply(messages)`` in pieces: the first after ``latency.first_s``, the rest ``latency.each_s`` apart.

    A reply is a text, or a row of texts and calls of tools.
    """

    def __init__(
        self,
        reply: Callable[[tuple[Message, ...]], str | tuple[str | ToolCall, ...]],
        latency: Latency | None = None,
        *,
        piece: int = 8,
    ) -> None:
        self.reply = reply
        self.latency = latency or Latency(0.2, 0.01)
        self.piece = piece
        self.requests: list[tuple[Message, ...]] = []

    async def process(self, frame: ContextFrame) -> AsyncIterator[LLMStarted | LLMTextFrame | ToolCallFrame | LLMEnded]:
        """One reply."""
        self.requests.append(frame.messages)
        yield LLMStarted(utterance=frame.utterance)
        reply = self.reply(frame.messages)
        wait_s = self.latency.first_s
        for part in (reply,) if isinstance(reply, str) else reply:
            pieces = [part[at : at + self.piece] for at in range(0, len(part), self.piece)] if isinstance(part, str) else [part]
            for piece in pieces:
                await self._wait(wait_s, frame.epoch)
                wait_s = self.latency.each_s
                if isinstance(piece, str):
                    yield LLMTextFrame(piece, utterance=frame.utterance)
                else:
                    yield ToolCallFrame(call=piece, utterance=frame.utterance)
        yield LLMEnded(utterance=frame.utterance)


class ScriptedTTS(_Service):
    """Speaks each sentence as labelled sound, in frames of one word.

    ``stubborn``: swallows its cancellation and speaks on, like a client library that catches everything.
    ``step``: the difference between two labels' samples (1000 survives resampling; 1 leaves room for 32,767 sentences).
    ``numbered``: each 10 ms have a number of their own instead, counted through the session (up to five minutes).
    ``word_s``: how long it takes for a word, a multiple of 10 ms.
    """

    makes = AudioFormat(VOICE_RATE)

    def __init__(
        self,
        latency: Latency | None = None,
        *,
        step: int = 1,
        stubborn: bool = False,
        numbered: bool = False,
        word_s: float = WORD_S,
    ) -> None:
        self.latency = latency or Latency(0.05, 0.005)
        self.step = step
        self.numbered = numbered
        self.word_s = word_s
        self._stubborn = stubborn
        self._pieces = 0
        self.sentences: list[str] = []
        """What was asked for: the label n stands for ``sentences[n - 1]``."""
        self.utterances: list[int] = []
        """The utterance of each sentence."""

    async def process(self, frame: SentenceFrame | LLMEnded) -> AsyncIterator[OutputAudioFrame | UtteranceEnded]:
        """The sentence's sound; after the reply's last sentence, UtteranceEnded."""
        if isinstance(frame, LLMEnded):
            yield UtteranceEnded(utterance=frame.utterance)
            return
        self.sentences.append(frame.text)
        self.utterances.append(frame.utterance)
        for number, word in enumerate(frame.text.split()):
            try:
                await self._wait(self.latency.each_s if number else self.latency.first_s, frame.epoch)
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
            yield OutputAudioFrame(self._word(), VOICE_RATE, words=(Word(word, 0.0, self.word_s),), utterance=frame.utterance)

    def _word(self) -> bytes:
        if not self.numbered:
            return np.full(round(self.word_s * VOICE_RATE), len(self.sentences) * self.step, "<i2").tobytes()
        count = round(self.word_s / PIECE_S)
        numbers = FIRST_PIECE + np.arange(self._pieces, self._pieces + count) % PIECES
        self._pieces += count
        return np.repeat(numbers.astype("<i2"), round(PIECE_S * VOICE_RATE)).tobytes()
