"""ElevenLabs' voices, spoken while the reply is still being written.

The one rule: how it is spoken (context, socket, request) makes no difference to what is heard. That is ``speech_stream``'s; here
is only the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from voiceflow.processors.filters import FilterMaker
from voiceflow.processors.services.elevenlabs_http import RequestVoice
from voiceflow.processors.services.elevenlabs_options import KEY_VARIABLE, ElevenLabsOptions, VoiceSettings
from voiceflow.processors.services.elevenlabs_sockets import ContextVoice, SocketVoice
from voiceflow.processors.services.speech_stream import SpeechStream
from voiceflow.processors.services.voice_service import VoiceService
from voiceflow.processors.text import FILTERS, Sentences, SplitterOptions

__all__ = ["ElevenLabsOptions", "ElevenLabsTTS", "VoiceSettings"]

_WAYS: dict[str, Callable[[ElevenLabsOptions], VoiceService]] = {"contexts": ContextVoice, "socket": SocketVoice, "http": RequestVoice}


class ElevenLabsTTS(SpeechStream):
    """Speaks with a voice of ElevenLabs. ``options``: or the voice's id alone.

    ``llm >> voice.pieces() >> voice >> speaker``, where ``pieces()`` cuts the text as ``options.aggregation`` says. Sound comes
    with the times of its words as the service tells them. Everything else is as ``SpeechStream`` says.
    """

    key_variable = KEY_VARIABLE

    def __init__(self, options: ElevenLabsOptions | str) -> None:
        self.options = ElevenLabsOptions(options) if isinstance(options, str) else options
        super().__init__(_WAYS[self.options.way](self.options), self.options.stream)

    def pieces(self, filters: Sequence[FilterMaker] = FILTERS) -> Sentences:
        """The node that cuts a reply into what this one is made for."""
        options = self.options
        return Sentences(SplitterOptions(mode=options.aggregation, schedule=options.chunk_length_schedule), filters)
