"""Speech to text with PocketSphinx: small, truly streaming, and much less accurate than Whisper.

Owns the import of pocketsphinx, and the process it works in. Its one rule: the decoder is given every sample of a
segment once, as it comes, so a final costs only what is left to hear.

It works in a process of its own because it never lets go of Python's lock: in a thread it would stop every call of
the process for 0.2 s at each end of speech. The process is this module, run as a program: a line of JSON and its sound
on standard input, a line of JSON back for each.

On people reading it gets about three words of ten wrong where Whisper tiny.en gets one of thirty. It is for a machine
on which nothing else runs, and for commands from a grammar.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import pocketsphinx  # type: ignore[import-untyped]  # it ships no annotations; every use of it is in this module

from voiceflow.audio import to_pcm
from voiceflow.errors import ModelError, SessionError, VoiceflowError
from voiceflow.processors.dictation import DictationOptions, Job, SpeechToText, Transcription
from voiceflow.processors.segments import SegmentOptions

__all__ = ["PocketSphinxOptions", "PocketSphinxSTT", "main"]

_ALL_THERE_IS_S = 60.0

_STREAMING = DictationOptions(
    first_partial_s=0.1,
    partial_every_s=0.1,
    reuse_partials=False,
    tell_stable=False,  # two of its partials in a row often agree on the same mistake
    segments=SegmentOptions(post_roll_s=_ALL_THERE_IS_S, cut_where_quiet=False),
)
"""What has been fed cannot be taken back: a segment ends where the sound does that had come by the time its end was known."""


@dataclass(frozen=True, slots=True)
class PocketSphinxOptions:
    """Paths of an acoustic model, language model and dictionary; None: US English, which the package brings along.

    ``grammar``: the text of a JSGF grammar, to be used instead of a language model.
    """

    acoustic_model: str | None = None
    language_model: str | None = None
    dictionary: str | None = None
    grammar: str | None = None


class PocketSphinxSTT(SpeechToText):
    """Speech to text with PocketSphinx, as described at ``SpeechToText``. Words come in lower case, without punctuation.

    Each node has a process of its own, of some 130 MB, from ``start`` to ``stop``. No word of a partial is told as stable.
    """

    def __init__(self, options: PocketSphinxOptions | None = None) -> None:
        super().__init__(_STREAMING)
        self.options = options or PocketSphinxOptions()
        self._recognizer: _Recognizer | None = None
        self._number = 0  # of the segment that the recognizer is in
        self._fed = 0  # samples of it

    async def start(self) -> None:
        """Start the process and load the models. Raises ModelError."""
        await self.run_blocking(self._open)

    async def stop(self) -> None:
        """End the process."""
        if self._recognizer is not None:
            await self.run_blocking(self._recognizer.close)

    def _open(self) -> None:
        self._recognizer = _Recognizer(self.options)

    def decode(self, job: Job) -> Transcription:
        """See ``SpeechToText``."""
        if self._recognizer is None:
            raise SessionError(
                f"{self.name or type(self).__name__} was to decode before start(); run it in a Session, which starts its nodes"
            )
        is_new = self._number != job.number
        if is_new:
            self._number, self._fed = job.number, 0
        samples = job.segment.samples[self._fed :]
        self._fed = len(job.segment.samples)
        return Transcription(self._recognizer.recognize(to_pcm(samples), is_new=is_new, is_final=job.final))


class _Recognizer:
    """The process, from the outside. Its methods block; ``close`` may be called while another is under way."""

    def __init__(self, options: PocketSphinxOptions) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "voiceflow.processors.stt_pocketsphinx", json.dumps(asdict(options))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        try:
            self._read()
        except VoiceflowError as error:
            self.close()
            raise ModelError(f"PocketSphinx cannot work with {options}: {error}") from error

    def recognize(self, pcm: bytes, *, is_new: bool, is_final: bool) -> str:
        """The words so far of a segment whose next sound is ``pcm``."""
        assert self._process.stdin is not None
        header = json.dumps({"is_new": is_new, "is_final": is_final, "size": len(pcm)}).encode()
        try:
            self._process.stdin.write(header + b"\n" + pcm)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise VoiceflowError("the process of PocketSphinx has ended") from error
        return self._read()

    def close(self) -> None:
        """End it. It has nothing to save."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # of what was still to be written to it
                    pipe.close()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise VoiceflowError("the process of PocketSphinx has ended; what it wrote on standard error says why")
        answer = json.loads(line)
        if "error" in answer:
            raise VoiceflowError(answer["error"])
        return str(answer["text"])


# ------------------------------------------------------------------------------------------------ inside the process


def main(arguments: list[str], requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end. ``arguments``: the options, as JSON."""

    def answer(content: Mapping[str, str]) -> None:
        answers.write(json.dumps(content).encode() + b"\n")
        answers.flush()

    try:
        decoder = _open(PocketSphinxOptions(**json.loads(arguments[0])))
    except (RuntimeError, ValueError) as error:
        answer({"error": str(error)})
        return
    answer({"text": ""})
    is_open = False
    while line := requests.readline():
        request = json.loads(line)
        pcm = requests.read(request["size"])
        if request["is_new"]:
            if is_open:
                decoder.end_utt()
            decoder.start_utt()
        if pcm:  # it takes no empty buffer
            decoder.process_raw(pcm)
        is_open = not request["is_final"]
        if request["is_final"]:
            decoder.end_utt()
        hypothesis = decoder.hyp()
        answer({"text": "" if hypothesis is None else hypothesis.hypstr.strip()})


def _open(options: PocketSphinxOptions) -> Any:
    settings: dict[str, Any] = {"samprate": 16000, "loglevel": "FATAL"}
    given = {"hmm": options.acoustic_model, "lm": options.language_model, "dict": options.dictionary}
    settings |= {name: value for name, value in given.items() if value is not None}
    if options.grammar is None:
        return pocketsphinx.Decoder(**settings)
    decoder = pocketsphinx.Decoder(**{**settings, "lm": None})
    decoder.add_jsgf_string("grammar", options.grammar)
    decoder.activate_search("grammar")
    return decoder


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's business, who then ends this process
    main(sys.argv[1:], sys.stdin.buffer, sys.stdout.buffer)
