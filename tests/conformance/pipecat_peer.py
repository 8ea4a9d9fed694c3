"""Run by Pipecat's own interpreter: its serialisers, fed with what a test writes to standard input as JSON.

In: ``{"carrier", "rate", "options", "from_carrier": [message], "sounds": [PCM in base64]}``; a binary message is ``{"b64": ...}``.
Out: what the serialiser understood of the messages, and what it would send for the sounds and for an interruption.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

from loguru import logger
from pipecat.frames.frames import InputAudioRawFrame, InputDTMFFrame, InterruptionFrame, OutputAudioRawFrame
from pipecat.serializers.exotel import ExotelFrameSerializer
from pipecat.serializers.plivo import PlivoFrameSerializer
from pipecat.serializers.telnyx import TelnyxFrameSerializer
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.serializers.vonage import VonageFrameSerializer


def serializer(asked: dict[str, Any]) -> Any:
    rate = asked["rate"]
    match asked["carrier"]:
        case "twilio":
            return TwilioFrameSerializer("MZ0123456789", params=TwilioFrameSerializer.InputParams(auto_hang_up=False, sample_rate=rate))
        case "telnyx":
            params = TelnyxFrameSerializer.InputParams(auto_hang_up=False, sample_rate=rate)
            return TelnyxFrameSerializer("MZ0123456789", asked["codec"], asked["codec"], params=params)
        case "plivo":
            return PlivoFrameSerializer("MZ0123456789", params=PlivoFrameSerializer.InputParams(auto_hang_up=False, sample_rate=rate))
        case "vonage":
            return VonageFrameSerializer(params=VonageFrameSerializer.InputParams(vonage_sample_rate=rate, sample_rate=rate))
        case "exotel":
            params = ExotelFrameSerializer.InputParams(exotel_sample_rate=rate, sample_rate=rate)
            return ExotelFrameSerializer("MZ0123456789", params=params)
    raise ValueError(asked["carrier"])


class Setup:
    """All that a serialiser reads of its setup."""

    def __init__(self, rate: int) -> None:
        self.audio_in_sample_rate = self.audio_out_sample_rate = rate


async def main() -> None:
    logger.remove()
    asked = json.load(sys.stdin)
    peer = serializer(asked)
    await peer.setup(Setup(asked["rate"]))
    understood: list[dict[str, Any]] = []
    for message in asked["from_carrier"]:
        frame = await peer.deserialize(base64.b64decode(message["b64"]) if isinstance(message, dict) else message)
        if isinstance(frame, InputAudioRawFrame):
            understood.append({"pcm": base64.b64encode(frame.audio).decode(), "rate": frame.sample_rate})
        elif isinstance(frame, InputDTMFFrame):
            understood.append({"key": frame.button.value})
    sent = [
        await peer.serialize(OutputAudioRawFrame(base64.b64decode(pcm), sample_rate=asked["rate"], num_channels=1))
        for pcm in asked["sounds"]
    ]
    sent.append(await peer.serialize(InterruptionFrame()))
    json.dump(
        {"understood": understood, "sent": [{"b64": base64.b64encode(m).decode()} if isinstance(m, bytes) else m for m in sent]}, sys.stdout
    )


asyncio.run(main())
