"""``voiceflow bench ttfa``: from a model's first token to the first sound of its reply, with a voice over the network.

Two questions. What voiceflow adds to what cannot be helped: the tokens of the first sentence, the way there, the voice's own
time, the way back. And what streaming is worth: batch request, streamed request and WebSocket side by side, over short and long
lines. Model, voice and line are stand-ins on this machine, with stated delays; all clocks are this process's, and the server's
own work counts against voiceflow.

Needs the extra ``services``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from html import escape
from time import perf_counter
from typing import Self

import aiohttp

from voiceflow.bench.far import HANDSHAKES, far
from voiceflow.bench.figures import median, percentile
from voiceflow.frames import LLMEnded, LLMTextFrame, OutputAudioFrame, UtteranceEnded
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor
from voiceflow.processors.services.elevenlabs_tts import ElevenLabsOptions, ElevenLabsTTS
from voiceflow.processors.text import Splitter, SplitterOptions
from voiceflow.session import Session
from voiceflow.testing.stand_ins import Pace, StandIns, tokens_of, until

__all__ = ["LINKS_MS", "WAYS", "Figures", "measure", "svg", "table"]

Figures = dict[str, float]

SHORT = "Certainly, we are open today. Come by until ten."
REPLY = f"{SHORT} The kitchen closes at nine, so it would be best to be here before that. Shall I keep a table for you?"
NEAR_S = 0.040
"""The round trip of the first question: 20 ms each way."""
LINKS_MS = (5, 100, 250)
"""Round trips of the second."""
WAYS = {
    "batch": "batch request: the whole reply, then the whole sound",
    "http": "streamed request: the whole reply, then the first of its sound",
    "http_pieces": "voiceflow, way='http': a streamed request for each sentence",
    "socket_new": "WebSocket, opened when the first sentence is there",
    "socket": "voiceflow, way='contexts': a WebSocket that is open already",
}
TOKEN_S = Pace().token_s
VOICE, RATE = "stand-in", 24000


def measure(*, turns: int = 25, runs: int = 3, links_ms: Sequence[int] = LINKS_MS) -> Figures:
    """Medians in milliseconds, from the model's first token to the first sound.

    ``overhead_ms_median`` (and ``_p90``): of ``turns`` replies, what voiceflow took beyond what cannot be helped, which is
    ``ideal_ms``; ``by_hand_ms_median``: the same of a client written by hand, in turns with it. ``half_words_ms_median``: of
    voiceflow, where the service's messages end within words: sound is held until its first word is there. ``{way}_{link}_ms``:
    of ``runs`` replies each, alternately; ``times_{link}``: batch over voiceflow's WebSocket.
    """
    return asyncio.run(_measure(turns, runs, links_ms))


async def _measure(turns: int, runs: int, links_ms: Sequence[int]) -> Figures:
    figures = await _overhead(turns)
    for link_ms in links_ms:
        for way, times in (await _side_by_side(runs, link_ms / 1000)).items():
            figures[f"{way}_{link_ms}_ms"] = round(1000 * median(times), 1)
        figures[f"times_{link_ms}"] = round(figures[f"batch_{link_ms}_ms"] / figures[f"socket_{link_ms}_ms"], 2)
    return figures


# ------------------------------------------------------------------------------------------------- what voiceflow adds


async def _overhead(turns: int) -> Figures:
    ours: list[float] = []
    by_hand: list[float] = []
    held: list[float] = []
    whole, cut = Pace(whole_words=True, speed=20), Pace(piece_s=0.1)
    ideal_s = _first_piece(tokens_of(SHORT))[0] * TOKEN_S + NEAR_S + whole.voice_s
    async with (
        StandIns(pace=whole) as there,
        StandIns(pace=cut) as there_too,
        far(there.port, NEAR_S) as origin,
        far(there_too.port, NEAR_S) as origin_too,
        _Call(origin, "contexts") as call,
        _Call(origin_too, "contexts") as cutting,
        _hand(origin) as hand,
    ):
        await asyncio.sleep(5 * NEAR_S)  # until the connections are open
        for _ in range(turns):
            ours.append(1000 * (await call.reply(SHORT) - ideal_s))
            by_hand.append(1000 * (await hand() - ideal_s))
            held.append(1000 * (await cutting.reply(SHORT) - ideal_s))
    return {
        "overhead_ms_median": round(median(ours), 2),
        "overhead_ms_p90": round(percentile(ours, 90), 2),
        "by_hand_ms_median": round(median(by_hand), 2),
        "half_words_ms_median": round(median(held), 2),
        "ideal_ms": round(1000 * ideal_s, 1),
    }


def _first_piece(tokens: Sequence[str]) -> tuple[int, str]:
    """So many tokens after the first it is known where the first sentence ends; and that sentence."""
    splitter = Splitter(SplitterOptions(mode="sentence"))
    for number, token in enumerate(tokens):
        if pieces := splitter.push(token):
            return number, pieces[0]
    raise RuntimeError("the reply is one sentence: there is nothing to stream")


async def _tokens(text: str, take: Callable[[str], None]) -> None:
    """A reply, at the pace of a model."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for token in tokens_of(text):
        await until(due)
        take(token)
        due += TOKEN_S


class _Ear(Processor):
    """Notes when the first sound of an utterance comes, and when all of it has."""

    def __init__(self) -> None:
        self.first_at: float | None = None
        self.over = asyncio.Event()

    def process(self, frame: OutputAudioFrame | UtteranceEnded) -> None:
        """Note it."""
        if isinstance(frame, UtteranceEnded):
            self.over.set()
        elif self.first_at is None:
            self.first_at = perf_counter()


class _Call(contextlib.AsyncExitStack):
    """A session with a voice. ``async with``."""

    def __init__(self, origin: str, way: str) -> None:
        super().__init__()
        chosen = ElevenLabsOptions(VOICE, way="http" if way == "http" else "contexts", base_url=origin, output_format=f"pcm_{RATE}")
        node, self._ear = ElevenLabsTTS(chosen), _Ear()
        self._session = Session(Pipeline(node.pieces()) >> node >> self._ear, inputs=[LLMTextFrame, LLMEnded])
        self._utterances = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self.enter_async_context(self._session)
        return self

    async def reply(self, text: str = REPLY) -> float:
        """Seconds from the first token to the first sound. Returns when the whole reply was spoken."""
        number, ear = next(self._utterances), self._ear
        ear.first_at = None
        ear.over.clear()
        began = perf_counter()
        await _tokens(text, lambda token: self._session.send_nowait(LLMTextFrame(token, utterance=number)))
        self._session.send_nowait(LLMEnded(utterance=number))
        async with asyncio.timeout(60):
            await ear.over.wait()
        if ear.first_at is None:
            raise RuntimeError("the voice gave no sound")
        return ear.first_at - began


# ----------------------------------------------------------------------------------------------------- written by hand


@contextlib.asynccontextmanager
async def _hand(origin: str) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """The least that a client can do on a WebSocket that is open: the first sentence as soon as it is there, the first sound noted."""
    names = itertools.count(1)
    async with aiohttp.ClientSession() as http, http.ws_connect(_socket_url(origin)) as socket:

        async def reply() -> float:
            name, began = f"hand-{next(names)}", perf_counter()
            saying = asyncio.create_task(_say_first(socket, name))
            first_at = await _first_sound(socket)
            await saying
            await socket.send_json({"context_id": name, "close_context": True})
            while not json.loads((await socket.receive()).data).get("isFinal"):
                pass
            return first_at - began

        yield reply


def _socket_url(origin: str) -> str:
    return f"{origin}/v1/text-to-speech/{VOICE}/multi-stream-input?auto_mode=true&output_format=pcm_{RATE}"


async def _say_first(socket: aiohttp.ClientWebSocketResponse, name: str) -> None:
    splitter, pieces = Splitter(SplitterOptions(mode="sentence")), list[str]()
    saying: list[asyncio.Task[None]] = []

    def take(token: str) -> None:
        pieces.extend(splitter.push(token))
        if pieces and not saying:
            saying.append(asyncio.create_task(socket.send_json({"text": pieces[0], "flush": True, "context_id": name})))

    await _tokens(SHORT, take)
    await saying[0]


async def _first_sound(socket: aiohttp.ClientWebSocketResponse) -> float:
    while not json.loads((await socket.receive()).data).get("audio"):
        pass
    return perf_counter()


async def _batch(origin: str) -> float:
    return await _request(origin, "")


async def _streamed(origin: str) -> float:
    return await _request(origin, "/stream")


async def _request(origin: str, path: str) -> float:
    """A request with the whole reply, on a connection of its own."""
    began = perf_counter()
    await _tokens(REPLY, lambda token: None)
    url = f"{origin}/v1/text-to-speech/{VOICE}{path}?output_format=pcm_{RATE}"
    async with aiohttp.ClientSession() as http, http.post(url, json={"text": REPLY}) as answer:
        if path:
            await answer.content.readany()
            return perf_counter() - began
        await answer.read()
        return perf_counter() - began


async def _socket_new(origin: str) -> float:
    """A WebSocket that is opened when it is needed."""
    tokens = tokens_of(REPLY)
    number, sentence = _first_piece(tokens)
    began = perf_counter()
    await asyncio.sleep(number * TOKEN_S)
    async with aiohttp.ClientSession() as http, http.ws_connect(_socket_url(origin)) as socket:
        await socket.send_json({"text": sentence, "flush": True, "context_id": "new"})
        return await _first_sound(socket) - began


# -------------------------------------------------------------------------------------------------------- side by side


async def _side_by_side(runs: int, round_trip_s: float) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    async with (
        StandIns(pace=Pace(whole_words=True)) as there,
        far(there.port, round_trip_s) as origin,
        _Call(origin, "http") as pieces,
        _Call(origin, "contexts") as contexts,
    ):
        await asyncio.sleep((HANDSHAKES + 3) * round_trip_s)
        for _ in range(runs):
            times["batch"].append(await _batch(origin))
            times["http"].append(await _streamed(origin))
            times["http_pieces"].append(await pieces.reply())
            times["socket_new"].append(await _socket_new(origin))
            times["socket"].append(await contexts.reply())
    return times


def table(figures: Figures, links_ms: Sequence[int] = LINKS_MS) -> str:
    """The comparison in Markdown."""
    heads = " | ".join(f"{link} ms" for link in links_ms)
    lines = [f"| first token to first sound, ms | {heads} |", "|---|" + "--:|" * len(links_ms)]
    for way, words in WAYS.items():
        values = " | ".join(format(figures[f"{way}_{link}_ms"], ".0f") for link in links_ms)
        lines.append(f"| {words} | {values} |")
    times = " | ".join(format(figures[f"times_{link}"], ".1f") for link in links_ms)
    lines.append(f"| times: batch over voiceflow's WebSocket | {times} |")
    return "\n".join(lines) + "\n"


COLOURS = ("#9ca3af", "#a78bfa", "#60a5fa", "#fbbf24", "#059669")
WIDTH, LEFT, LABELS, VALUES, BAR, GAP = 960, 20, 400, 70, 20, 28


def svg(figures: Figures, links_ms: Sequence[int] = LINKS_MS) -> str:
    """The same as bars. Plain SVG, no library."""
    longest = max(figures[f"{way}_{link}_ms"] for way in WAYS for link in links_ms)
    parts, y = [], 30
    for link in links_ms:
        parts.append(f'<text x="{LEFT}" y="{y}" font-weight="bold">round trip {link} ms</text>')
        y += 8
        for colour, (way, words) in zip(COLOURS, WAYS.items(), strict=True):
            value = figures[f"{way}_{link}_ms"]
            width = value / longest * (WIDTH - LEFT - LABELS - VALUES)
            parts.append(f'<text x="{LEFT}" y="{y + 13}">{escape(words, quote=False)}</text>')
            parts.append(f'<rect x="{LEFT + LABELS}" y="{y}" width="{width:.1f}" height="{BAR - 3}" fill="{colour}"/>')
            parts.append(f'<text x="{LEFT + LABELS + width + 6:.1f}" y="{y + 13}">{value:.0f} ms</text>')
            y += BAR
        y += GAP
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
