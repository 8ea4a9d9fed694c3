"""Run by Pipecat's own interpreter: its websocket clients, calling a server of ours. ``python rtvi_peer.py URL protobuf|wav|rtvi``.

Each says 200 ms of sound and types "one two three four"; it prints, a line each as JSON, what Pipecat's own pipeline was given.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    InputTransportMessageFrame,
    InterruptionFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    OutputTransportMessageUrgentFrame,
    TranscriptionFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.client import WebsocketClientParams, WebsocketClientTransport
from pipecat.transports.websocket.rtvi_client import RTVIClientTransport
from pipecat.workers.runner import WorkerRunner

RATE = 16000


class Heard(FrameProcessor):
    """Prints what comes."""

    def __init__(self) -> None:
        super().__init__()
        self.samples = 0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            loud = sum(frame.audio[at : at + 2] != b"\0\0" for at in range(0, len(frame.audio), 2))
            if loud:
                self.samples += loud
                say("audio", samples=self.samples, rate=frame.sample_rate, channels=frame.num_channels)
        elif isinstance(frame, InputTransportMessageFrame):
            say("message", message=frame.message)
        elif isinstance(frame, TTSTextFrame | LLMTextFrame | TranscriptionFrame):
            say(type(frame).__name__, text=frame.text)
        elif isinstance(frame, InterruptionFrame | BotStartedSpeakingFrame | BotStoppedSpeakingFrame):
            say(type(frame).__name__)
        await self.push_frame(frame, direction)


def say(kind: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **more}) + "\n")
    sys.stdout.flush()


def rtvi(kind: str, data: dict[str, Any]) -> OutputTransportMessageUrgentFrame:
    return OutputTransportMessageUrgentFrame(message={"label": "rtvi-ai", "type": kind, "id": "1", "data": data})


async def main(url: str, way: str) -> None:
    logger.remove()
    params = WebsocketClientParams(audio_in_enabled=True, audio_out_enabled=True, add_wav_header=way == "wav")
    if way == "rtvi":
        transport: WebsocketClientTransport = RTVIClientTransport(url, params)
    else:
        params.serializer = ProtobufFrameSerializer()
        transport = WebsocketClientTransport(url, params)
    pipeline = Pipeline([transport.input(), Heard(), transport.output()])
    worker = PipelineWorker(pipeline, params=PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE), idle_timeout_secs=None)

    async def talk() -> None:
        if way != "rtvi":
            await worker.queue_frame(rtvi("client-ready", {"version": "2.2.0", "about": {"library": "pipecat"}}))
        await asyncio.sleep(0.5)
        await worker.queue_frame(OutputAudioRawFrame(audio=b"\x10\x01" * (RATE // 5), sample_rate=RATE, num_channels=1))
        await asyncio.sleep(0.5)
        await worker.queue_frame(rtvi("send-text", {"content": "one two three four"}))
        if (await asyncio.to_thread(sys.stdin.readline)).strip() == "type":
            await worker.queue_frame(rtvi("send-text", {"content": "five six"}))
        await asyncio.to_thread(sys.stdin.readline)
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), talk())


asyncio.run(main(*sys.argv[1:]))
