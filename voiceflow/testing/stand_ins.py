"""Stand-ins for services of vendors, on this machine: a model that speaks Anthropic's protocol, a voice that speaks ElevenLabs'.

For the bench and for trying an agent out without keys. They answer what the vendors would in a plain conversation, after the
delays they are given, and check nothing: the model says what it is told to say, the voice plays a tone for each word. The one
rule: what takes time in the real thing takes the stated time here, and nothing else does.

Needs aiohttp (the extra ``services``), so ``voiceflow.testing`` does not import it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

import numpy as np
from aiohttp import WSMsgType, web

__all__ = ["Pace", "StandIns", "tokens_of", "until"]

CHAR_S = 0.065
"""What a character takes to say: fifteen a second."""
TIMERS_S = 0.002
PITCHES_HZ = (220.0, 262.0, 294.0, 330.0, 392.0)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take."""

    model_s: float = 0.2
    """To the model's first token."""
    token_s: float = 0.02
    """Between two tokens."""
    voice_s: float = 0.075
    """From a text to the first of its sound."""
    speed: float = 5.0
    """The voice makes so many seconds of sound in a second."""
    piece_s: float = 0.25
    """Of sound in each message."""
    whole_words: bool = False
    """A message ends where a word does: it is of ``piece_s`` or more."""


async def until(due: float) -> None:
    """Sleep until this time of the loop's clock, to a fraction of a millisecond: a loop's timers alone are late by one or two."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(due - loop.time() - TIMERS_S)
    patience = perf_counter() + TIMERS_S  # a virtual clock does not move meanwhile
    while loop.time() < due and perf_counter() < patience:  # noqa: ASYNC110  # nothing but the clock can tell
        await asyncio.sleep(0)
    await asyncio.sleep(due - loop.time())


def tokens_of(text: str) -> list[str]:
    """Words with the blank before them and marks, as models write them."""
    return re.findall(r"\s*(?:\w+|[^\w\s]+)", text)


class StandIns:
    """``async with StandIns(lambda asked: "Gladly.") as there: ... base_url=there.url``, for the model and the voice.

    ``reply``: what the model says to the caller's last words.
    """

    def __init__(self, reply: Callable[[str], str] = lambda asked: f"You said: {asked}", pace: Pace | None = None) -> None:
        self.reply = reply
        self.pace = pace or Pace()
        self.url = ""
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app, speech = web.Application(), "/v1/text-to-speech/{voice}"
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post(speech, self._whole)
        app.router.add_post(f"{speech}/stream", self._stream)
        app.router.add_post(f"{speech}/stream/with-timestamps", self._stream)
        app.router.add_get(f"{speech}/stream-input", self._talk)
        app.router.add_get(f"{speech}/multi-stream-input", self._talk)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    # ----------------------------------------------------------------------------------------------- the model

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        tokens = tokens_of(self.reply(_last_words(body["messages"])))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        usage = {"input_tokens": 1, "output_tokens": len(tokens)}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [], "usage": usage}
        await response.write(_event("message_start", message=message))
        await response.write(_event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
        due = asyncio.get_running_loop().time() + self.pace.model_s
        for token in tokens:
            await until(due)
            due += self.pace.token_s
            await response.write(_event("content_block_delta", index=0, delta={"type": "text_delta", "text": token}))
        await response.write(_event("content_block_stop", index=0))
        await response.write(_event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage))
        await response.write(_event("message_stop"))
        return response

    # ----------------------------------------------------------------------------------------------- the voice

    async def _whole(self, request: web.Request) -> web.StreamResponse:
        """The batch request: nothing is sent before all of it is made."""
        text = (await request.json())["text"]
        sound = [pcm async for pcm, _ in self._speak(text, _rate(request))]
        return web.Response(body=b"".join(sound), content_type="audio/pcm")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        text = (await request.json())["text"]
        timed = request.path.endswith("with-timestamps")
        response = web.StreamResponse(headers={"Content-Type": "application/json" if timed else "audio/pcm"})
        await response.prepare(request)
        async for pcm, (chars, starts, ends) in self._speak(text, _rate(request)):
            told = {"characters": chars, "character_start_times_seconds": starts, "character_end_times_seconds": ends}
            line = {"audio_base64": base64.b64encode(pcm).decode(), "alignment": told}
            await response.write(json.dumps(line).encode() + b"\n" if timed else pcm)
        return response

    async def _talk(self, request: web.Request) -> web.StreamResponse:
        """A WebSocket: of contexts, or of one stream, which has no name."""
        socket = web.WebSocketResponse(compress=False, timeout=0.2)
        await socket.prepare(request)
        at_once, rate = request.query.get("auto_mode") == "true", _rate(request)
        contexts: dict[str, tuple[list[str], asyncio.Queue[str | None]]] = {}
        async with asyncio.TaskGroup() as group:
            async for said in socket:
                if said.type is not WSMsgType.TEXT:
                    break
                message = json.loads(said.data)
                name = message.get("context_id", "")
                if name not in contexts:
                    contexts[name] = ([], asyncio.Queue())
                    group.create_task(self._voice(socket, name, contexts[name][1], rate))
                gathered, jobs = contexts[name]
                text, is_last = message.get("text", ""), message.get("close_context", False) or (not name and message.get("text") == "")
                gathered += [text] if text.strip() else []  # the blank that opens a stream is no text
                if (at_once or message.get("flush") or is_last) and "".join(gathered).strip():
                    jobs.put_nowait("".join(gathered))
                    gathered.clear()
                if is_last:
                    jobs.put_nowait(None)
                    del contexts[name]
            for _, jobs in contexts.values():
                jobs.put_nowait(None)
        return socket

    async def _voice(self, socket: web.WebSocketResponse, context: str, jobs: asyncio.Queue[str | None], rate: int) -> None:
        named = {"contextId": context} if context else {}
        while (text := await jobs.get()) is not None:
            async for pcm, (chars, starts, ends) in self._speak(text, rate):
                if socket.closed:
                    return
                begins = [round(1000 * at) for at in starts]
                lasts = [round(1000 * end) - begin for end, begin in zip(ends, begins, strict=True)]
                told = {"chars": chars, "charStartTimesMs": begins, "charDurationsMs": lasts}
                await socket.send_json({"audio": base64.b64encode(pcm).decode(), "alignment": told, **named})
        if not socket.closed:
            await socket.send_json({"audio": None, "isFinal": True, **named})
            if not context:
                await socket.close()

    async def _speak(self, text: str, rate: int) -> AsyncIterator[tuple[bytes, tuple[list[str], list[float], list[float]]]]:
        """The sound of a text, piece by piece as it is made, with the characters that begin in each: when, and until when."""
        pace = self.pace
        due = asyncio.get_running_loop().time() + pace.voice_s
        sound = _tones(text, rate)
        for begin, end in self._cuts(text):
            await until(due)
            due += (end - begin) * CHAR_S / pace.speed
            chars = range(math.ceil(begin), math.ceil(end))
            timing = [text[n] for n in chars], [(n - begin) * CHAR_S for n in chars], [(n + 1 - begin) * CHAR_S for n in chars]
            yield sound[round(begin * CHAR_S * rate) : round(end * CHAR_S * rate)].tobytes(), timing

    def _cuts(self, text: str) -> Iterator[tuple[float, float]]:
        """Where the pieces begin and end, in characters."""
        begin, each = 0.0, self.pace.piece_s / CHAR_S
        while begin < len(text):
            end = begin + each
            if self.pace.whole_words:
                blank = text.find(" ", math.ceil(end))
                end = blank + 1 if blank >= 0 else len(text)
            end = min(end, len(text))
            yield begin, end
            begin = end


def _last_words(messages: list[dict[str, Any]]) -> str:
    content = messages[-1]["content"]
    return content if isinstance(content, str) else " ".join(block.get("text", "") for block in content)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _rate(request: web.Request) -> int:
    return int(request.query.get("output_format", "pcm_24000").split("_")[1])


def _tones(text: str, rate: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    """A soft tone for each word, higher and lower in turn; mono."""
    sound = np.zeros(round(len(text) * CHAR_S * rate), np.float64)
    for number, word in enumerate(re.finditer(r"\S+", text)):
        begin, end = round(word.start() * CHAR_S * rate), round(word.end() * CHAR_S * rate)
        at = np.arange(end - begin)
        swell = np.sin(np.pi * at / len(at)) ** 0.5
        sound[begin:end] = 0.2 * swell * np.sin(2 * np.pi * PITCHES_HZ[number % len(PITCHES_HZ)] * at / rate)
    return np.round(sound * 32767).astype("<i2")
