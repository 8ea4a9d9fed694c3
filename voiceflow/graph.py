"""``voiceflow graph APP``: draw the pipeline of an application, without a microphone or a loudspeaker.

One rule: nothing runs. The pipeline is made and checked, with ends that stand for whatever transport will be there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator, Sequence

from voiceflow.apps import AppError, load_app
from voiceflow.errors import VoiceflowError
from voiceflow.frames import (
    HoldFrame,
    InputAudioFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    ResumeFrame,
    UtteranceEnded,
    WordsHeard,
)
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor

__all__ = ["main"]


class _Caller(Processor):
    """Stands for the transport's end that hears."""

    name = "caller"

    async def run(self) -> AsyncIterator[InputAudioFrame]:
        """Never called."""
        yield InputAudioFrame(b"", 16000)  # makes it a generator


class _Loudspeaker(Processor):
    """Stands for the transport's end that speaks."""

    name = "loudspeaker"

    async def process(self, frame: OutputAudioFrame | UtteranceEnded | HoldFrame | ResumeFrame) -> None:
        """Never called."""

    async def run(self) -> AsyncIterator[PlaybackStarted | WordsHeard | PlaybackStopped]:
        """Never called."""
        yield PlaybackStarted()  # makes it a generator


def main(arguments: Sequence[str]) -> int:
    """Print the picture. 0, or 1 if there is no such application or its pipeline cannot work."""
    parser = argparse.ArgumentParser(prog="voiceflow graph", description="Draw the pipeline of an application.")
    parser.add_argument("app", metavar="APP", help="FILE.py[:function] or package.module:function")
    parser.add_argument("--as", dest="form", choices=("text", "mermaid", "dot"), default="text", help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        pipeline: object = load_app(options.app)(_Caller(), _Loudspeaker())
        if not isinstance(pipeline, Pipeline):
            raise AppError(f"{options.app} gave {type(pipeline).__name__}, not a Pipeline; end it with `return source >> ... >> sink`")
        picture = {"text": pipeline.__str__, "mermaid": pipeline.mermaid, "dot": pipeline.dot}[options.form]()
    except VoiceflowError as error:
        sys.stderr.write(f"voiceflow graph: {error}\n")
        return 1
    sys.stdout.write(picture.rstrip("\n") + "\n")
    return 0
