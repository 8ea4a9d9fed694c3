"""Calls over WebRTC, with an aiortc peer of the tests' own at the other end of real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("aiortc", reason="needs aiortc: pip install 'voiceflow-framegraph[webrtc]'")

from tests.transports.webrtc_caller import RATE, Caller, Network, Parrot, Voice, quiet, tone, wav_at_48k
from voiceflow import Pipeline, Processor
from voiceflow.apps import load_app
from voiceflow.frames import Frame, Heard, InterruptFrame, PlaybackStopped, TranscriptFrame
from voiceflow.models import DEFAULT, ModelStore, path
from voiceflow.processors.stt_whisper import WhisperOptions, open_whisper
from voiceflow.testing import no_leaks
from voiceflow.transports.calls import CallRecord, Calls
from voiceflow.transports.webrtc import PeerOptions, WebRTC, WebRTCError, WebRTCOptions
from voiceflow.transports.wire import CallEnded, CallStarted, Message, Played, Received

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0
JUNK = ["", "0", "-1", "99999999999", "audio", "\u00ff", "a=x"]
"""Words of an offer that may stand where others should."""


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On a loop of its own, with nothing left behind."""

    async def clean() -> None:
        async with no_leaks():
            await test()
            await asyncio.get_running_loop().shutdown_default_executor()  # aiortc encodes the caller's sound there

    asyncio.run(clean())


class Words:
    """A wire for the data channel: ``{"type": "played" | "text" | "interrupt" | "end"}`` in, interrupts out."""

    tells: tuple[type[Frame], ...] = (InterruptFrame,)
    faults = 0

    def receive(self, message: Message) -> list[Received]:
        said = json.loads(message)
        kinds: dict[str, Callable[[], Received]] = {
            "start": lambda: CallStarted("again"),
            "played": lambda: Played(said["samples"]),
            "text": lambda: TranscriptFrame(text=said["text"], final=True),
            "interrupt": lambda: InterruptFrame(reason="the page"),
            "end": lambda: CallEnded("said goodbye"),
        }
        return [kinds[said["type"]]()]

    def answers(self) -> list[Message]:
        return []

    def tell(self, frame: Frame) -> list[Message]:
        return [json.dumps({"type": "interrupted"})] if isinstance(frame, InterruptFrame) else []

    def end(self, reason: str) -> list[Message]:
        return [json.dumps({"type": "ended"})]


class Reports(Processor):
    """Keeps what the speaker reports."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.typed: list[str] = []

    def process(self, frame: PlaybackStopped | TranscriptFrame) -> None:
        if isinstance(frame, PlaybackStopped):
            self.heard.append(frame.heard)
        else:
            self.typed.append(frame.text)


class Agent:
    """Each call's parrot, its nodes, and how the calls ended."""

    def __init__(self, limit: int = 4, words: int = 10) -> None:
        self.words = words
        self.parrots: list[Parrot] = []
        self.reports: list[Reports] = []
        self.sinks: list[Any] = []
        self.sources: list[Any] = []
        self.records: list[CallRecord] = []
        self.calls = Recorded(self, limit)

    def __call__(self, source: Processor, sink: Processor) -> Pipeline:
        parrot, reports = Parrot(self.words), Reports()
        self.parrots.append(parrot)
        self.reports.append(reports)
        self.sinks.append(sink)
        self.sources.append(source)
        return source >> reports >> parrot >> sink


class Recorded(Calls):
    """Keeps the records."""

    def __init__(self, agent: Agent, limit: int) -> None:
        super().__init__(agent, limit=limit)
        self._keep = agent.records

    def _over(self, record: CallRecord, error: BaseException | None) -> CallRecord:
        self._keep.append(record)
        return super()._over(record, error)


async def all_over(door: WebRTC, deadline_s: float = DEADLINE_S) -> None:
    """Wait until no connection is left."""
    async with asyncio.timeout(deadline_s):
        while tasks := [talk.task for talk in door._talks.values() if talk.task is not None]:
            await asyncio.wait(tasks)


@contextlib.asynccontextmanager
async def calling(door: WebRTC, voice: Voice, *, channel: bool = False, network: Network | None = None) -> AsyncIterator[Caller]:
    caller = Caller(voice, channel=channel)
    try:
        await caller.call(network.between(door.answer) if network else door.answer)
        yield caller
    finally:
        await caller.close()
        if network:
            network.close()
        await all_over(door)


class TestCall:
    def test_a_question_is_answered_and_the_answer_heard_whole(self) -> None:
        """What the agent says comes to the caller at its length, after the question."""

        async def test() -> None:
            agent = Agent(words=5)
            async with WebRTC(agent.calls) as door, calling(door, Voice(quiet(0.3), tone(0.5, 800))) as caller:
                await caller.until(lambda: caller.loud() and caller.heard[-1][0] - caller.loud()[-1] > 0.3)
                assert 0.94 <= len(caller.loud()) * 0.02 <= 1.06
                heard = np.concatenate(caller.sound)
                spectrum = np.abs(np.fft.rfft(heard[np.abs(heard) > 0][:RATE]))
                assert abs(np.argmax(spectrum) * RATE / len(heard[np.abs(heard) > 0][:RATE]) - 440) < 5
            (record,) = agent.records
            assert (record.outcome, record.why) == ("hung up", "the caller hung up")

        run(test)

    def test_sound_flows_from_the_start_on_at_the_pace_of_the_clock(self) -> None:
        """A packet of 20 ms every 20 ms, in silence too: none too many, none late for good."""

        async def test() -> None:
            agent = Agent()
            async with WebRTC(agent.calls) as door, calling(door, Voice()) as caller:
                await caller.until(lambda: len(caller.heard) > 100)
                sink, since = agent.sinks[0], asyncio.get_running_loop().time()
                left = sink.position
                await caller.until(lambda: sink.position >= left + 2 * RATE)
                took_s = asyncio.get_running_loop().time() - since
                assert abs((sink.position - left) / RATE - took_s) < 0.3
                await caller.until(lambda: sink.playout.ledger.clock.latency_s != 0.15)  # RTCP has told of the network
                assert 0.09 <= sink.playout.ledger.clock.latency_s < 0.5
                assert not sink.playout.ledger.clock.exact

        run(test)

    def test_barge_in_is_silent_at_once_and_what_was_heard_is_known(self) -> None:
        """An interrupt stops the sound within what a jitter buffer holds; the next answer is whole."""

        async def test() -> None:
            agent = Agent()
            voice = Voice(quiet(0.3), tone(0.4, 800))
            async with WebRTC(agent.calls) as door, calling(door, voice) as caller:
                await caller.until(lambda: len(caller.loud()) > 25)
                voice.say(tone(0.9, 800))  # the next answer comes a second after it began
                await caller.until(lambda: agent.reports[0].heard or agent.sinks[0].session.interruptions)
                interruption = agent.sinks[0].session.interruptions[0]
                await caller.until(lambda: caller.heard[-1][0] > interruption.at + 0.6)
                assert max(at for at in caller.loud() if at < interruption.at + 0.6) < interruption.at + 0.5
                (heard,) = interruption.heard
                assert not heard.complete
                assert "word0 word1" in heard.text
                assert heard.estimated
                before = len(caller.loud())
                await caller.until(lambda: len(caller.loud()) >= before + 98)

        run(test)

    def test_typed_words_and_buttons_come_by_the_data_channel(self) -> None:
        """Text, interrupt and end act as on any line, and what the agent's side has to say is told."""

        async def test() -> None:
            agent = Agent()
            async with WebRTC(agent.calls, words=Words) as door, calling(door, Voice(), channel=True) as caller:
                await caller.until(lambda: caller.opened.is_set() and agent.sinks)
                for said in ({"type": "start"}, {"type": "text", "text": "hello"}, {"type": "interrupt"}):
                    caller.data.send(json.dumps(said))
                caller.data.send(b"\0binary is not sound here")
                async with asyncio.timeout(DEADLINE_S):
                    told = [json.loads(await caller.told.get())["type"] for _ in range(2)]
                assert sorted(told) == ["interrupted", "rtp"]
                assert agent.reports[0].typed == ["hello"]
                caller.data.send(json.dumps({"type": "end"}))
                await all_over(door)
            assert agent.records[0].why == "said goodbye"

        run(test)

    def test_what_was_heard_follows_the_pages_reports(self) -> None:
        """With reports of what was played the heard words are right to 100 ms, and are no estimate."""

        async def test() -> None:
            agent, lag = Agent(words=30), round(0.3 * RATE)
            voice = Voice(quiet(0.3), tone(0.4, 800))
            async with WebRTC(agent.calls, words=Words) as door, calling(door, voice, channel=True) as caller:
                await caller.until(lambda: caller.opened.is_set() and agent.sinks)
                sink = agent.sinks[0]

                def report() -> bool:  # a page that is 300 ms behind
                    caller.data.send(json.dumps({"type": "played", "samples": max(sink.position - lag, 1)}))
                    return len(caller.loud()) > 60

                await caller.until(report)
                caller.data.send(json.dumps({"type": "interrupt"}))
                async with asyncio.timeout(DEADLINE_S):
                    while not sink.session.interruptions:
                        report()
                        stopped = sink.position
                        caller.stirred.clear()
                        await caller.stirred.wait()
                (heard,) = sink.session.interruptions[0].heard
                assert not heard.estimated
                began = next(i for i, sound in enumerate(caller.sound) if np.max(np.abs(sound)) > 500) * 0.02
                played_s = (stopped - lag) / RATE - began
                assert -0.03 <= played_s - len(heard.text.split()) * 0.2 < 0.23  # a word counts when it was heard whole

        run(test)


class TestNetwork:
    @pytest.mark.parametrize(("loss", "jitter_s"), [(0.01, 0.0), (0.05, 0.03), (0.2, 0.0), (0.0, 0.1)])
    def test_loss_and_jitter_leave_sound_where_it_was_spoken(self, loss: float, jitter_s: float) -> None:
        """Sound on its way in keeps its place and its length, whatever is lost; nothing piles up behind a hole."""

        async def test() -> None:
            agent, network = Agent(), Network(loss, jitter_s)
            beeps = [part for _ in range(8) for part in (tone(0.1, 1000), quiet(0.3))]
            voice = Voice(quiet(0.6), *beeps)
            async with WebRTC(agent.calls) as door, calling(door, voice, network=network) as caller:
                await caller.until(lambda: voice.position > 4 * RATE)
                frames, stream = agent.parrots[0].frames, next(iter(door._talks.values())).peer.stream
                now = asyncio.get_running_loop().time()
            assert network.passed > 150
            assert bool(stream.lost) == bool(network.lost or jitter_s > 0.06)
            assert now - (frames[-1].pts or 0) < 1.0
            steps = [b.pts - a.pts - a.duration for a, b in itertools.pairwise(frames) if a.pts and b.pts]
            assert max(abs(step) for step in steps[25:]) < 0.02  # the clock is tuned in the first half second, then holds
            sound = np.concatenate([frame.samples[:, 0] for frame in frames])
            settled = frames[50:]
            length = sum(frame.duration for frame in settled)
            assert abs(length - ((settled[-1].pts or 0) + settled[-1].duration - (settled[0].pts or 0))) < 0.03
            at = onsets(sound)
            places = np.round((at - at[0]) / 0.4)
            assert len(at) >= 6
            assert np.max(np.abs(at - at[0] - places * 0.4)) < (0.015 if not network.lost else 0.05)

        run(test)

    def test_a_far_end_that_falls_silent_is_hung_up_on(self) -> None:
        """With nothing coming any more the call ends after its deadline, and says why."""

        async def test() -> None:
            agent, network = Agent(), Network()
            options = WebRTCOptions(peer=PeerOptions(silent_s=1.0))
            async with WebRTC(agent.calls, options) as door, calling(door, Voice(), network=network) as caller:
                await caller.until(lambda: len(caller.heard) > 20)
                network.cut = True
                await all_over(door, 5.0)
            assert agent.records[0].why == "nothing came from the caller for 1 s"

        run(test)

    def test_the_reason_stands_whatever_the_line_is_about_to_do(self) -> None:
        """A writer that finds the connection gone in the same moment has no better one."""

        async def test() -> None:
            agent = Agent()
            async with WebRTC(agent.calls, words=Words) as door, calling(door, Voice(), channel=True) as caller:
                await caller.until(lambda: len(caller.heard) > 20)
                (talk,) = door._talks.values()
                agent.sinks[0].tell(InterruptFrame(reason="a word that is about to leave"))
                talk.peer.hang_up("the power failed")
                await all_over(door, 5.0)
            assert agent.records[0].why == "the power failed"

        run(test)

    def test_a_caller_who_cannot_be_reached_is_given_up(self) -> None:
        """Without a connection in time there is no call, and nothing is left."""

        async def test() -> None:
            agent = Agent()
            async with WebRTC(agent.calls, WebRTCOptions(peer=PeerOptions(connect_s=0.5))) as door:
                caller = Caller()
                await door.answer(await caller.offer())
                assert door.connections == 1
                await all_over(door, 5.0)
                await caller.close()
            assert not agent.sinks

        run(test)


class TestEnds:
    def test_calls_cut_at_any_moment_leave_nothing(self) -> None:
        """30 calls, each cut at a random moment by either side: no task, thread or socket stays."""

        async def test() -> None:
            agent, dice = Agent(limit=30), random.Random(3)
            async with WebRTC(agent.calls, words=Words) as door:

                async def one(number: int) -> None:
                    caller = Caller(Voice(tone(0.2, 800)), channel=bool(number % 2))
                    try:
                        async with asyncio.timeout(dice.random() ** 2 * 1.5):
                            await caller.call(door.answer)
                            await asyncio.Event().wait()
                    except TimeoutError:
                        pass
                    if number % 3 == 0 and (tasks := [talk.task for talk in door._talks.values() if talk.task is not None]):
                        dice.choice(tasks).cancel()  # the server ends one, this or another
                    await caller.close()

                for wave in range(3):
                    await asyncio.gather(*(one(10 * wave + n) for n in range(10)))
            assert door.connections == 0
            assert agent.calls.running == 0

        run(test)

    def test_closing_the_door_ends_the_calls(self) -> None:
        """The server's end hangs up on everybody, and takes nobody any more."""

        async def test() -> None:
            agent = Agent()
            door = WebRTC(agent.calls)
            caller = Caller()
            await caller.call(door.answer)
            await caller.until(lambda: caller.heard)
            await door.close()
            assert door.connections == 0
            with pytest.raises(WebRTCError, match="shut down") as refused:
                await door.answer({"type": "offer", "sdp": ""})
            assert refused.value.status == 503
            await caller.close()

        run(test)

    def test_a_door_closed_before_a_call_began_leaves_nothing(self) -> None:
        """An offer that was answered a moment ago: its task has not run yet, and its connection is there."""

        async def test() -> None:
            agent, caller = Agent(limit=1), Caller()
            door = WebRTC(agent.calls)
            await door.answer(await caller.offer())
            (talk,) = door._talks.values()
            await door.close()
            left = (door.connections, agent.calls.refusal(), talk.peer.gone)
            await caller.close()
            await talk.peer.close()  # again, which does nothing; open it would keep a test that fails from ending
            assert left == (0, "", "the call is over")

        run(test)

    def test_an_offer_that_is_being_connected_has_a_line(self) -> None:
        """Whoever calls meanwhile, by whichever way, is refused; from the call's first moment it counts as one, and at its end as none."""

        async def test() -> None:
            agent = Agent(limit=2)
            async with WebRTC(agent.calls, WebRTCOptions(peer=PeerOptions(connect_s=0.5))) as door, calling(door, Voice()) as caller:
                await caller.until(lambda: caller.heard)
                assert agent.calls.refusal() == ""
                nobody = Caller()
                await door.answer(await nobody.offer())
                assert agent.calls.refusal() == "all 2 lines are busy; try again later"
                await nobody.connection.close()
                tasks = [talk.task for talk in door._talks.values() if talk.task is not None]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)  # it is given up
                assert agent.calls.refusal() == ""
                with pytest.raises(WebRTCError):
                    await door.answer({"type": "offer", "sdp": NO_SOUND})
                assert agent.calls.refusal() == ""

        run(test)

    def test_one_call_too_many_is_refused(self) -> None:
        """The limit is that of the calls; a place is free again as soon as a call is over."""

        async def test() -> None:
            agent = Agent(limit=1)
            async with WebRTC(agent.calls) as door:
                async with calling(door, Voice()) as caller:
                    await caller.until(lambda: caller.heard)
                    other = Caller()
                    with pytest.raises(WebRTCError, match="busy") as refused:
                        await other.call(door.answer)
                    assert refused.value.status == 503
                    await other.close()
                async with calling(door, Voice()) as caller:
                    await caller.until(lambda: caller.heard)

        run(test)


NO_SOUND = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"


class TestOffers:
    @pytest.mark.parametrize(
        ("offer", "says", "status"),
        [
            ({}, "type None", 400),
            ({"type": "answer", "sdp": NO_SOUND}, "type 'answer'", 400),
            ({"type": "offer", "sdp": 5}, "sdp is int", 400),
            ({"type": "offer", "sdp": "x" * 70000}, "70000 characters", 413),
            ({"type": "offer", "sdp": ""}, "no sound|cannot be read", 400),
            ({"type": "offer", "sdp": "rubbish\r\n" * 20}, "no sound|cannot be read", 400),
            ({"type": "offer", "sdp": NO_SOUND}, "no sound", 400),
        ],
    )
    def test_what_is_no_offer_is_said(self, offer: dict[str, Any], says: str, status: int) -> None:
        """An offer that cannot be answered gets an error that names what is wrong."""

        async def test() -> None:
            async with WebRTC(Agent().calls) as door:
                with pytest.raises(WebRTCError, match=says) as error:
                    await door.answer(offer)
                assert error.value.status == status
                assert door.connections == 0

        run(test)

    @pytest.mark.parametrize(
        ("old", "new", "says"),
        [
            ("a=sendrecv", "a=sendonly", "is sendonly"),
            ("opus", "opus7", "no Opus"),
            ("a=ice-ufrag", "a=x", "no ICE name"),
            ("a=fingerprint", "a=x", "no DTLS fingerprint"),
        ],
    )
    def test_an_offer_with_something_missing_leaves_nothing_behind(self, old: str, new: str, says: str) -> None:
        """A peer that was half made is closed again."""

        async def test() -> None:
            async with WebRTC(Agent().calls) as door:
                caller = Caller()
                offer = await caller.offer()
                with pytest.raises(WebRTCError, match=says):
                    await door.answer(offer | {"sdp": offer["sdp"].replace(old, new)})
                assert door.connections == 0
                await caller.close()

        run(test)

    @pytest.mark.parametrize(
        ("old", "new", "says"),
        [
            ("a=group:BUNDLE 0 1", "a=group:BUNDLE 7 0 1", "BUNDLE group begins with '7'"),
            ("a=mid:0", "a=mid:7", "BUNDLE group begins with '0'"),
            (" typ host", " typ host\r\na=candidate:1 1 udp 1 127.0.0.1 70000 typ host", "port 70000"),
        ],
    )
    def test_an_offer_that_would_leave_a_connection_half_made_is_refused(self, old: str, new: str, says: str) -> None:
        """Before aiortc has it: there a part without a transport raises when it is answered, and again when it is closed."""

        async def test() -> None:
            door, caller = WebRTC(Agent().calls), Caller(channel=True)
            offer = await caller.offer()
            with pytest.raises(WebRTCError, match=says):
                await door.answer(offer | {"sdp": offer["sdp"].replace(old, new, 1)})
            await caller.close()

        run(test)

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from("dtcsr"), st.integers(0, 500), st.integers(0, 500), st.sampled_from(JUNK)), max_size=4))
    def test_whatever_an_offer_says_it_is_answered_or_refused(self, changes: list[tuple[str, int, int, str]]) -> None:
        """Lines deleted, doubled, cut, swapped, and words replaced: nothing else is raised, and nothing is left."""

        async def test() -> None:
            door, caller = WebRTC(Agent().calls), Caller(channel=True)
            offer = await caller.offer()
            lines = offer["sdp"].split("\r\n")
            for how, first, second, junk in changes:
                one, other = first % len(lines), second % len(lines)
                if how == "d":
                    del lines[one]
                elif how == "t":
                    lines.insert(other, lines[one])
                elif how == "c":
                    lines[one] = lines[one][: second % 20]
                elif how == "s":
                    lines[one], lines[other] = lines[other], lines[one]
                else:
                    words = lines[one].split(" ")
                    words[second % len(words)] = junk
                    lines[one] = " ".join(words)
            with contextlib.suppress(WebRTCError):
                await door.answer(offer | {"sdp": "\r\n".join(lines)})
            await door.close()
            await caller.close()

        run(test)

    def test_late_candidates_make_the_connection(self) -> None:
        """An offer without addresses connects by those that follow; nonsense among them is refused."""

        async def test() -> None:
            agent = Agent()
            async with WebRTC(agent.calls) as door:
                caller = Caller()
                offer = await caller.offer()
                lines = offer["sdp"].split("\r\n")
                found = [line.removeprefix("a=") for line in lines if (line.startswith("a=candidate") and "192." in line) or "127." in line]
                bare = "\r\n".join(line for line in lines if not line.startswith(("a=candidate", "a=end-of-candidates")))
                answer = await door.answer({"type": "offer", "sdp": bare})
                with pytest.raises(WebRTCError, match="not a candidate"):
                    await door.add_candidates(answer["pc_id"], [{"candidate": "candidate:nonsense", "sdp_mid": "0"}])
                good = "candidate:1 1 udp 1 127.0.0.1 9 typ host"
                for wrong in ({"candidate": good.replace(" 9 ", " 70000 "), "sdp_mid": "0"}, {"candidate": good, "sdp_mid": []}):
                    with pytest.raises(WebRTCError, match="its port, sdp_mid or sdp_mline_index is none"):
                        await door.add_candidates(answer["pc_id"], [wrong])
                with pytest.raises(WebRTCError, match="no such call"):
                    await door.add_candidates("other", [])
                await door.add_candidates(
                    answer["pc_id"], [{"candidate": line, "sdp_mid": "0", "sdp_mline_index": 0} for line in [*found, ""]]
                )
                await caller.accept(answer)
                await caller.until(lambda: caller.heard)
                await caller.close()
                await all_over(door)

        run(test)


def test_the_local_models_answer_a_spoken_question() -> None:
    """Whisper, a language model and Piper behind a real connection: the caller hears the capital named, and cuts in."""
    missing = [name for name in DEFAULT if ModelStore().find(name) is None]
    if missing:
        pytest.skip(f"the models are not here; run: voiceflow models get {' '.join(missing)}")

    async def test() -> None:
        question = wav_at_48k(ROOT / "examples" / "data" / "question.wav")
        calls = Calls(load_app(str(ROOT / "examples" / "local_agent.py")), limit=1)
        async with WebRTC(calls) as door:
            voice = Voice(quiet(0.1))
            async with calling(door, voice) as caller:
                await caller.until(lambda: caller.heard, 60)
                voice.say(question)
                await caller.until(lambda: caller.loud() and caller.heard[-1][0] - caller.loud()[-1] > 1.0, 60)
                sound = np.concatenate(caller.sound)[::3].astype(np.float32) / 32768
                (session,) = calls.sessions
                before = len(caller.loud())
                voice.say(question)
                await caller.until(lambda: len(caller.loud()) > before + 20, 60)  # it answers again,
                voice.say(np.tile(question, 2))  # and is cut short
                await caller.until(lambda: any(each.heard for each in session.interruptions), 60)
                cut = next(each for each in session.interruptions if each.heard)
                assert not cut.heard[-1].complete
                await caller.until(lambda: caller.heard[-1][0] > cut.at + 0.3)
                assert not [at for at in caller.loud() if cut.at + 0.2 < at < cut.at + 0.3]
        heard = open_whisper(path("whisper-tiny.en"), WhisperOptions()).transcribe(sound[np.flatnonzero(np.abs(sound) > 0.02)[0] :])
        assert "canberra" in heard.text.lower()

    asyncio.run(test())


def onsets(sound: np.ndarray) -> np.ndarray:
    """Where beeps begin, in seconds."""
    step = RATE // 200
    level = np.sqrt(np.mean(sound[: len(sound) // step * step].reshape(-1, step).astype(float) ** 2, axis=1))
    loud = level > 1500
    found, last = [], -100
    for i in np.flatnonzero(loud):
        if i - last > 40:  # 200 ms of quiet before it
            found.append(i)
        last = i
    return np.array(found) / 200
