"""A wire and a socket joined to the nodes of a call: the handshake, the slow far end, the interrupt, the ends, the lost connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow import (
    AudioFormat,
    InputAudioFrame,
    LLMEnded,
    Pipeline,
    Processor,
    SentenceFrame,
    Session,
    TranscriptFrame,
    TurnEnded,
    replace,
)
from voiceflow.phone import DigitsFrame
from voiceflow.testing import Latency, ScriptedTTS
from voiceflow.transports.calls import CallRecord, Calls
from voiceflow.transports.line import LineOptions, Lines, answer
from voiceflow.transports.line_ends import ConnectionClock, LineIn, LineOut
from voiceflow.transports.outbox import Outbox, Positions
from voiceflow.transports.speaker import SpeakerOptions
from voiceflow.transports.telephony.twilio import TwilioWire
from voiceflow.transports.wire import CallStarted, Message, Received, TellFrame, WireError
from voiceflow.transports.wire_frames import FramesOptions, FramesWire

from .line_rig import Ears, MemorySocket, Page, Parrot, parrot

SENTENCE = "one two three four five six seven eight nine ten"


class Call:
    """One call of a page, and what watches it from inside."""

    def __init__(self, socket: MemorySocket, *, calls: Calls | None = None, wire: Any = None, **options: Any) -> None:
        self.socket = socket
        self.calls = calls or Calls(parrot, limit=5, watch=self.look)
        self.lines = Lines()
        self.sessions: list[Session] = []
        self.options = LineOptions(**options)
        self.task = asyncio.create_task(answer(wire or FramesWire(), socket, self.calls, self.options, who="a test", lines=self.lines))

    def look(self, session: Session, pipeline: Pipeline, sink: Processor) -> None:
        self.sessions.append(session)

    def comes_back(self, socket: MemorySocket) -> asyncio.Task[CallRecord | None]:
        return asyncio.create_task(answer(FramesWire(), socket, self.calls, self.options, who="again", lines=self.lines))

    async def record(self) -> CallRecord:
        async with asyncio.timeout(300):
            record = await self.task
        assert record is not None
        return record


# ------------------------------------------------------------------------------------------------- the beginning


async def test_a_call_goes_from_its_handshake_to_its_closed_socket() -> None:
    """The client is greeted, heard, answered and told that the call is over, and the socket is closed with the code of that."""
    async with Page() as page:
        call = Call(page)
        assert (await page.hears_of("started"))["hears"] == {"sample_rate": 24000}
        page.tell(type="text", text="hello there")
        await page.hears_of("playback_stopped")
        page.tell(type="text", text="bye")
        record = await call.record()
    assert (record.outcome, record.who) == ("ended", "websocket a test")
    assert page.labels == [1, 2]
    assert page.seconds(1) == pytest.approx(0.2, abs=0.001)
    assert page.told_of("ended") == [{"type": "ended", "reason": "the agent ended it"}]
    assert page.closed == (1000, "the agent ended it")
    assert len(call.lines) == 0


async def test_a_far_end_that_begins_no_call_is_closed() -> None:
    """After the time for the handshake the socket is closed, and the call was refused."""
    socket = MemorySocket()
    record = await Call(socket, handshake_s=3).record()
    assert record.outcome == "refused"
    assert record.seconds == pytest.approx(3)
    assert socket.closed == (1008, "the far end did not begin a call within 3 s")


async def test_a_far_end_that_goes_away_in_the_handshake_is_let_go() -> None:
    """A socket that closes before the call began is no call."""
    socket = MemorySocket()
    call = Call(socket)
    await asyncio.sleep(1)
    socket.hang_up()
    assert (await call.record()).why == "the connection was lost before the call began"


@pytest.mark.parametrize("message", ["not json", b"\x00\x01", '{"type":"text","text":"hello"}', "[]", "null", b""])
async def test_a_far_end_that_speaks_another_protocol_is_told_so(message: Message) -> None:
    """The close code is that of a broken protocol, and the reason says what was expected."""
    socket = MemorySocket(message)
    assert (await Call(socket).record()).outcome == "refused"
    assert socket.closed is not None
    assert socket.closed[0] == 1002
    assert "has to be a start" in socket.closed[1]


async def test_when_all_lines_are_busy_the_caller_is_told_before_anything_is_read() -> None:
    """The socket is closed with 1013, try again later."""
    calls = Calls(parrot, limit=1)
    async with Page() as page:
        first = Call(page, calls=calls)
        await page.hears_of("state")
        socket = MemorySocket("anything")
        assert (await Call(socket, calls=calls).record()).outcome == "refused"
        assert socket.closed == (1013, "all 1 lines are busy; try again later")
        page.tell(type="end")
        assert (await first.record()).outcome == "hung up"


async def test_a_call_cancelled_in_its_handshake_closes_its_socket() -> None:
    """Cancelling is Python's, and leaves no socket open."""
    socket = MemorySocket()
    call = Call(socket)
    await asyncio.sleep(1)
    call.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.task
    assert socket.closed == (1001, "the server stops")


# ------------------------------------------------------------------------------------------------------ the ends


@pytest.mark.parametrize("how", ["end", "close"])
async def test_a_caller_who_hangs_up_ends_the_call_at_once(how: str) -> None:
    """In mid-speech nothing more is sent, whether the client says so or just closes."""
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("words_heard", 2)
        if how == "end":
            page.tell(type="end")
        else:
            page.hang_up()
        sent = len(page.sent)
        record = await call.record()
    assert record.outcome == "hung up"
    assert len(page.sent) <= sent + 2
    assert page.closed is not None


async def test_a_shutdown_tells_the_far_end() -> None:
    """A call that is cancelled by a drain says ``ended``, and closes with 1001."""
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("playback_started")
        await call.calls.drain(0)
        assert (await call.record()).outcome == "stopped"
        assert page.closed == (1001, "this server is being shut down")
        assert page.told_of("ended")


async def test_an_agent_that_fails_ends_its_call_with_a_code_of_its_own() -> None:
    """1011, and the reason names the node."""

    class Broken(Processor):
        async def start(self) -> None:
            raise RuntimeError("no model")

        async def process(self, frame: InputAudioFrame) -> None:
            """Nothing."""

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return source >> [Broken(), Ears() >> Parrot() >> ScriptedTTS() >> sink]

    async with Page() as page:
        record = await Call(page, calls=Calls(agent, limit=1)).record()
    assert record.outcome == "failed"
    assert page.closed is not None
    assert page.closed[0] == 1011
    assert "Broken" in page.closed[1]


class Faulty(FramesWire):
    def receive(self, message: Message) -> list[Received]:
        if message == '{"type": "boom"}':
            raise KeyError("a fault in the wire")
        return super().receive(message)


async def test_a_fault_of_the_wire_ends_its_call_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is not taken for the far end's doing, and the traceback is kept."""
    async with Page() as page:
        call = Call(page, wire=Faulty())
        await page.hears_of("state")
        page.tell(type="boom")
        record = await call.record()
    assert page.closed is not None
    assert page.closed[0] == 1011
    assert "KeyError" in record.why
    assert "Traceback" in caplog.text


async def test_a_far_end_that_breaks_its_protocol_in_mid_call_is_hung_up_on() -> None:
    """The WireError's text and code close the socket."""
    async with Page() as page:
        call = Call(page, messages_per_s=100, burst=50)
        await page.hears_of("state")
        page.say(*['{"type": "nonsense"}'] * 200)
        record = await call.record()
    assert record.outcome == "hung up"
    assert page.closed == (1008, "more than 100 messages a second")


async def test_more_typed_text_than_can_be_taken_is_hung_up_on() -> None:
    """What waits for a pipeline that does not take it is bounded, and never dropped in silence."""

    class Slow(Processor):
        async def process(self, frame: TranscriptFrame) -> None:
            await asyncio.sleep(1)

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return source >> Slow()

    async with Page() as page:
        call = Call(page, calls=Calls(agent, limit=1))
        await page.hears_of("state")
        page.say(*['{"type": "text", "text": "again"}'] * 1500)
        record = await call.record()
    assert record.why == "more came than could be taken in"


# ------------------------------------------------------------------------------------------- the caller's sound


def sound(value: int, ms: int = 20) -> InputAudioFrame:
    return InputAudioFrame(pcm=value.to_bytes(2, "little") * (16 * ms), sample_rate=16000)


async def test_live_sound_never_waits_and_the_oldest_is_dropped() -> None:
    """A pipeline that is not there yet finds the newest two seconds, and what was lost is counted; typed text is kept."""
    source = LineIn(AudioFormat(16000), CallStarted(""), live_s=2.0)
    assert source.deliver(TranscriptFrame("typed first"), 0.0)
    for number in range(250):
        assert source.deliver(sound(number), number * 0.02)
    frames = list(source.waiting())
    assert source.dropped == 150
    assert isinstance(frames[0], TranscriptFrame)
    assert [frame.pcm[0] + 256 * frame.pcm[1] for frame in frames[1:] if isinstance(frame, InputAudioFrame)] == list(range(150, 250))
    assert frames[-1].pts == pytest.approx(249 * 0.02 - 0.02)


async def test_sound_without_samples_is_no_sound() -> None:
    """It fills no queue."""
    source = LineIn(AudioFormat(16000), CallStarted(""))
    assert all(source.deliver(InputAudioFrame(pcm=b"", sample_rate=16000), 0.0) for _ in range(100_000))
    assert list(source.waiting()) == []


async def test_the_callers_sound_arrives_while_the_agent_speaks_and_while_nothing_is_read() -> None:
    """A far end that takes nothing is heard all the same."""
    ears = Ears()

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return source >> ears >> Parrot() >> ScriptedTTS(Latency(), step=1000) >> sink

    async with Page() as page:
        call = Call(page, calls=Calls(agent, limit=1))
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("playback_started")
        page.reads.clear()
        for _ in range(50):
            page.say(b"\1\0" * 480)
            await asyncio.sleep(0.02)
        assert sum(frame.duration for frame in ears.sound) == pytest.approx(1.0)
        page.hang_up()
        await call.record()


# ----------------------------------------------------------------------------------------------- interrupt and clear


async def test_an_interrupt_gets_through_a_full_pipe_at_once() -> None:
    """Of the sound that waits nothing leaves any more, and the clear is the next message a slow client takes."""
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=" ".join([SENTENCE] * 3))
        await page.hears_of("words_heard", 3)
        page.reads.clear()
        await asyncio.sleep(1.5)  # 75 messages and more wait
        before = len(page.sent)
        page.tell(type="interrupt")
        await asyncio.sleep(0.01)
        assert len(call.sessions[0].interruptions) == 1
        page.reads.set()
        await asyncio.sleep(2)
        after = [message for _, message in page.sent[before:]]
        clear = after.index('{"type":"clear"}')
        assert clear <= 1  # one message was in the library's hands
        assert not [message for message in after[clear:] if isinstance(message, bytes)]
        assert page.told_of("interrupted")
        page.tell(type="text", text="well now")
        await page.hears_of("playback_stopped", 2)
        assert page.seconds(2) == pytest.approx(0.2, abs=0.001)  # the next answer is heard whole
        page.tell(type="end")
        await call.record()


class Bufferless(FramesWire):
    """A far end that plays what comes when it comes, and has nothing to clear."""

    clears = False
    proof = ""

    def clear(self) -> list[Message]:
        raise AssertionError("there is no such message")


async def test_a_far_end_without_a_clear_gets_no_old_sound_either() -> None:
    """What waits here is thrown away all the same."""
    async with Page() as page:
        call = Call(page, wire=Bufferless(FramesOptions(ahead_s=0)))
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("playback_started")
        page.reads.clear()
        await asyncio.sleep(0.5)
        page.tell(type="interrupt")
        await asyncio.sleep(0.01)
        before = len(page.sent)
        page.reads.set()
        await page.hears_of("interrupted")
        await asyncio.sleep(1)
        assert (
            sum(isinstance(message, bytes) for _, message in page.sent[before:]) <= 2
        )  # one was in the library's hands; the level it stood at decays
        page.tell(type="end")
        await call.record()


async def test_a_client_that_stops_reporting_is_believed_to_hear_what_comes_after_a_clear() -> None:
    """A quarter of a second of it, by estimate: what it was last heard of lies before the clear."""
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("words_heard", 2)
        page.tell(type="interrupt")
        await page.hears_of("playback_stopped")
        page.reports = False
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("playback_started", 2)
        await asyncio.sleep(1)
        page.tell(type="interrupt")
        stopped = await page.hears_of("playback_stopped", 2)
        assert stopped["text"] in ("one two", "one two three")
        assert stopped["estimated"] is True
        page.tell(type="end")
        await call.record()


@pytest.mark.parametrize("way_s", [0.0, 0.08])
@pytest.mark.parametrize("at", [0.03, 0.31, 0.55, 0.751])
async def test_what_was_heard_is_known_by_the_clients_reports(at: float, way_s: float) -> None:
    """At an interrupt, and after one that threw away what had not left, the words told are those that the ear had."""
    async with Page(way_s=way_s) as page:
        call = Call(page)
        for number in (1, 2):
            page.tell(type="text", text=SENTENCE)
            await page.hears_of("playback_started", number)
            await asyncio.sleep(at)
            page.tell(type="interrupt")
            stopped = await page.hears_of("playback_stopped", number)
            await asyncio.sleep(0.5)
            words = len(stopped["text"].split())
            heard_s = page.seconds(number)
            # A word counts from its middle; a clear takes its way to get there.
            assert heard_s * 10 - 1.5 - way_s * 20 <= words <= heard_s * 10 + 0.5
            assert stopped["complete"] is False
        page.tell(type="end")
        await call.record()


async def test_a_client_that_reports_nothing_has_heard_by_estimate() -> None:
    """The end of a reply comes all the same, and says that it is a guess."""
    async with Page(reports=False) as page:
        call = Call(page)
        page.tell(type="text", text="bye")
        record = await call.record()
    assert record.seconds < 2
    assert page.told_of("playback_stopped")[0]["estimated"] is True


async def test_reports_of_more_than_was_sent_prove_no_more_than_that() -> None:
    """A client cannot claim to have heard what it was not sent."""
    async with Page(reports=False) as page:
        call = Call(page)
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("playback_started")
        page.tell(type="played", samples=10**12)
        await asyncio.sleep(0.1)
        page.tell(type="interrupt")
        stopped = await page.hears_of("playback_stopped")
        assert len(stopped["text"].split()) <= 6  # a tenth of a second, and 0.2 s ahead, and the time until then
        page.tell(type="end")
        await call.record()


async def test_what_is_being_said_is_sent_a_little_ahead_and_no_more() -> None:
    """The curve of what was sent stays within the lead and a block of real time."""
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("playback_stopped")
        began = next(at for at, message in page.sent if isinstance(message, bytes))
        total = 0.0
        for at, message in page.sent:
            if isinstance(message, bytes):
                total += len(message) / 48000
                assert total <= at - began + 0.2 + 0.0201
        assert total == pytest.approx(1.0, abs=0.021)
        page.tell(type="end")
        await call.record()


async def test_a_hold_takes_back_what_was_sent_ahead_and_a_resume_says_it_again() -> None:
    """The far end is silent at once, and afterwards hears the cut word from its start and the rest, whole."""
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("playback_started")
        await asyncio.sleep(0.33)
        call.sessions[0].hold("perhaps the caller wants to speak")
        await page.hears_of("clear")
        heard_s = page.seconds(1)
        await asyncio.sleep(1)
        assert page.seconds(1) == heard_s
        call.sessions[0].resume("it was a cough")
        stopped = await page.hears_of("playback_stopped")
        assert (stopped["text"], stopped["complete"]) == (SENTENCE, True)
        assert 1.0 <= page.seconds(1) <= 1.13
        assert len(page.told_of("utterance_ended")) >= 1
        page.tell(type="end")
        await call.record()


@pytest.mark.parametrize("held", [False, True])
async def test_a_connection_that_is_back_goes_on_with_what_was_held_for_it_alone(held: bool) -> None:
    """Speech that the agent itself holds waits for the agent, whatever the connection did meanwhile."""
    now = asyncio.get_running_loop().time
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("playback_started")
        await asyncio.sleep(0.33)
        session = call.sessions[0]
        (sink,) = (node for node in session.pipeline.nodes if isinstance(node, LineOut))
        if held:
            session.hold("perhaps the caller wants to speak")
            await page.hears_of("clear")
        for _ in range(4):
            sink.lose(now())
            await asyncio.sleep(0.25)
        heard_s = page.seconds(1)
        sink.find(now())
        if held:
            await asyncio.sleep(1)
            assert page.seconds(1) == heard_s
            session.resume("it was a cough")
        assert (await page.hears_of("playback_stopped"))["text"] == SENTENCE
        assert 1.0 <= page.seconds(1) <= 1.13
        page.tell(type="end")
        await call.record()


def test_a_far_end_is_believed_while_its_connection_stands() -> None:
    """A quarter of a second beyond its last report, or beyond the last proof that it is there at all."""
    clock = ConnectionClock(1000, 0.1, sent=lambda: 10**6)
    clock.pulled(0, 0.0)
    assert clock.report(500, 0.6)
    assert [clock.ear(at) for at in (0.7, 0.8, 2.0)] == [pytest.approx(600), pytest.approx(700), 750]
    clock.stood = lambda: 1.5
    assert [clock.ear(at) for at in (1.6, 2.0, 3.0)] == [pytest.approx(1500), 1650, 1650]
    clock.cleared(3000, 3.0)
    assert not clock.report(900, 3.1), "what was thrown away proves nothing"


async def test_the_end_of_an_utterance_is_told_behind_its_last_sound() -> None:
    """A page that knows it takes the silence behind for no gap; so also when the end was taken back and sent again."""
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=SENTENCE)
        await page.hears_of("utterance_ended")
        sent = [message for _, message in page.sent]
        assert sum(len(m) for m in sent if isinstance(m, bytes)) == 48000
        assert json.loads(sent[-1])["type"] in ("utterance_ended", "words_heard")
        call.sessions[0].hold()  # 0.2 s of it are not heard yet
        await page.hears_of("clear")
        call.sessions[0].resume()
        await page.hears_of("utterance_ended", 2)
        await page.hears_of("playback_stopped")
        page.tell(type="end")
        await call.record()


async def test_a_line_that_is_never_quiet_tells_each_end_once() -> None:
    """Silence leaves from start to end, and an utterance ends once all the same."""
    speaker = SpeakerOptions(continuous=True)
    async with Page() as page:
        call = Call(page, speaker=speaker)
        for number in (1, 2):
            page.tell(type="text", text="hello there")
            await page.hears_of("playback_stopped", number)
            await asyncio.sleep(1)
        page.tell(type="end")
        await call.record()
    assert [message["utterance"] for message in page.told_of("utterance_ended")] == [1, 2]
    assert sum(len(message) for _, message in page.sent if isinstance(message, bytes)) / 48000 > 2.3


# ------------------------------------------------------------------------------------------------- the slow far end


async def test_a_far_end_that_takes_nothing_is_hung_up_on_and_others_are_unharmed() -> None:
    """After ``stall_s`` it is closed; a second call in the same process hears every sample meanwhile."""
    calls = Calls(parrot, limit=5)
    async with Page() as stuck, Page() as good:
        slow, well = Call(stuck, calls=calls, stall_s=3), Call(good, calls=calls)
        for page in (stuck, good):
            page.tell(type="text", text=" ".join([SENTENCE] * 10))
            await page.hears_of("playback_started")
        stuck.reads.clear()
        record = await slow.record()
        assert record.why == "the far end took nothing for 3 s"
        assert stuck.closed is not None
        assert stuck.closed[0] == 1008
        await good.hears_of("playback_stopped")
        assert good.seconds(1) == pytest.approx(10.0, abs=0.001)
        good.tell(type="end")
        assert (await well.record()).outcome == "hung up"


async def test_a_far_end_that_takes_too_little_is_hung_up_on() -> None:
    """One that reads, but slower than sound is made, is not kept for ever either: nothing waits longer than ``stall_s``."""
    async with Page() as page:
        call = Call(page, stall_s=2)
        page.tell(type="text", text=" ".join([SENTENCE] * 10))
        await page.hears_of("playback_started")

        page.takes_s = 0.1
        record = await call.record()
    assert record.why == "the far end took nothing for 2 s"
    assert record.seconds < 8


async def test_an_application_that_tells_too_much_overflows_no_memory() -> None:
    """The messages that wait are counted, and a far end that takes them too slowly is hung up on."""
    async with Page() as page:
        call = Call(page)
        await page.hears_of("state")
        page.reads.clear()
        line_out = next(node for node in call.sessions[0]._flow.router.hops if type(node).__name__ == "LineOut")
        for number in range(10_000):
            line_out.tell(TellFrame(kind="news", data=number))  # type: ignore[attr-defined]
        page.reads.set()
        record = await call.record()
        assert "took nothing" in record.why
        assert len(page.told_of("news")) < 5000


# --------------------------------------------------------------------------------------------------- what is told


async def test_digits_to_be_pressed_wait_for_what_is_said_before_them() -> None:
    """They keep their place in the agent's lane: behind the sound, and before the next."""

    class Dialer(Processor):
        def process(self, frame: SentenceFrame | LLMEnded) -> list[SentenceFrame | DigitsFrame | LLMEnded]:
            if isinstance(frame, LLMEnded):
                return [frame]
            return [frame, DigitsFrame(digits="12"), replace(frame, text="and now")]

    class Keys(FramesWire):
        tells = (*FramesWire.tells, DigitsFrame)

        def tell(self, frame: Any) -> list[Message]:
            return [json.dumps({"type": "keys"})] if isinstance(frame, DigitsFrame) else super().tell(frame)

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return source >> Ears() >> Parrot() >> Dialer() >> ScriptedTTS(Latency(), step=1000) >> sink

    async with Page() as page:
        call = Call(page, calls=Calls(agent, limit=1), wire=Keys())
        page.tell(type="text", text="press the keys")
        await page.hears_of("playback_stopped")
        page.tell(type="end")
        await call.record()
    before = sum(len(m) for _, m in page.sent[: [m for _, m in page.sent].index('{"type": "keys"}')] if isinstance(m, bytes)) / 48000
    assert before == pytest.approx(0.3, abs=0.021)
    assert page.labels == [1, 2]
    assert len(page.told_of("keys")) == 1


async def test_a_frame_is_told_once_and_as_it_was_in_the_end() -> None:
    """A node that corrects what it hands on, a branch and a node that takes it: the client is told the corrected one, once."""

    class Corrects(Processor):
        def process(self, frame: TranscriptFrame) -> TranscriptFrame:
            return replace(frame, text=frame.text.upper())

    class Keeps(Processor):
        def process(self, frame: TranscriptFrame) -> None:
            """Takes it."""

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return source >> Corrects() >> [Keeps(), Ears()] >> Parrot() >> ScriptedTTS(Latency()) >> sink

    async with Page() as page:
        call = Call(page, calls=Calls(agent, limit=1))
        page.tell(type="text", text="hello")
        await page.hears_of("playback_stopped")
        page.tell(type="end")
        await call.record()
    assert [message["text"] for message in page.told_of("transcript")] == ["HELLO"]
    assert [message["text"] for message in page.told_of("turn_ended")] == ["HELLO"]
    assert [message["state"] for message in page.told_of("state")] == ["listening", "thinking", "speaking", "listening"]


class Loud(Processor):
    """Corrects what it hands on."""

    def process(self, frame: TranscriptFrame) -> TranscriptFrame:
        return replace(frame, text=frame.text.upper())


class Louder(Loud):
    """Another of the kind."""


class Deaf(Processor):
    """Stands where one was that handed on, and does not."""

    def process(self, frame: TranscriptFrame) -> TurnEnded:
        return TurnEnded(text=frame.text)


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [(Loud, "", "TWO"), (Louder, "", "TWO"), (Deaf, "", "two"), (Deaf, "Loud", "two")],
)
async def test_after_a_replacement_a_frame_is_told_once_all_the_same(kind: type[Processor], name: str, told: str) -> None:
    """A node that came later counts as it is: what leaves it is told if it hands on, and what comes to it if it does not."""
    old, new = Loud(), kind()
    new.name = name

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return source >> old >> Ears() >> Parrot() >> ScriptedTTS(Latency()) >> sink

    sessions: list[Session] = []
    async with Page() as page:
        call = Call(page, calls=Calls(agent, limit=1, watch=lambda session, *_: sessions.append(session)))
        page.tell(type="text", text="one")
        await page.hears_of("playback_stopped")
        await sessions[0].replace(old, new)
        page.tell(type="text", text="two")
        await page.hears_of("playback_stopped", 2)
        page.tell(type="end")
        await call.record()
    assert [message["text"] for message in page.told_of("transcript")] == ["ONE", told]


async def test_what_no_node_takes_is_told_all_the_same() -> None:
    """A turn that ends in a pipeline where nobody listens to turns comes to the line, which tells it."""

    class Talks(Processor):
        async def run(self) -> AsyncIterator[TurnEnded | TellFrame]:
            yield TurnEnded(text="well")
            yield TellFrame(kind="weather", data={"sun": True, "type": "x"})
            yield TellFrame(kind="ended", data={})  # a word of the protocol's own

    def agent(source: Processor, sink: Processor) -> Pipeline:
        return [source >> Ears(), Talks()] >> sink

    async with Page() as page:
        call = Call(page, calls=Calls(agent, limit=1))
        await page.hears_of("weather")
        page.tell(type="end")
        await call.record()
    assert page.told_of("turn_ended") == [{"type": "turn_ended", "text": "well", "continues": False}]
    assert page.told_of("weather") == [{"type": "weather", "sun": True}]
    assert page.told_of("ended") == []


# -------------------------------------------------------------------------------------------- the lost connection


async def lose_in_mid_speech(call: Call, page: Page, after_s: float = 0.55) -> str:
    page.tell(type="text", text=SENTENCE)
    await page.hears_of("playback_started")
    await asyncio.sleep(after_s)
    page.lose()
    return str(page.told_of("started")[0]["resume"])


async def test_a_lost_connection_holds_the_agent_and_a_resume_goes_on_from_the_cut_word() -> None:
    """Nothing is lost of the sentence: the two connections together heard all of it, and the cut word from its start."""
    async with Page() as page:
        call = Call(page)
        token = await lose_in_mid_speech(call, page)
        await asyncio.sleep(4)
        async with Page(resume=token) as again:
            carrying = call.comes_back(again)
            started = await again.hears_of("started")
            assert started["resumed"] is True
            assert started["call"] == page.told_of("started")[0]["call"]
            assert started["resume"] not in ("", token)
            stopped = await again.hears_of("playback_stopped")
            assert stopped["text"] == SENTENCE
            assert stopped["complete"] is True
            whole = page.seconds(1) + again.seconds(1)
            assert 1.0 <= whole <= 1.0 + 0.1 + 0.25  # at most the cut word twice, and what the page had queued
            again.tell(type="text", text="bye")
            assert (await call.record()).outcome == "ended"
            assert await carrying is None
            assert again.closed == (1000, "the agent ended it")
            assert again.told_of("ended")


async def test_a_connection_that_is_lost_and_lost_again_can_be_resumed_each_time() -> None:
    """Each connection has a token of its own, good for one return."""
    async with Page() as page:
        call = Call(page)
        token = await lose_in_mid_speech(call, page, 0.25)
        for wait_s in (0.3, 0.35):
            async with Page(resume=token) as again:
                carrying = call.comes_back(again)
                await again.hears_of("started")
                await asyncio.sleep(wait_s)
                old, token = token, again.told_of("started")[0]["resume"]
                again.lose()
                await carrying
        async with Page(resume=old) as thief:
            await call.comes_back(thief)
            assert thief.closed == (1008, "there is no such call any more")
        async with Page(resume=token) as last:
            carrying = call.comes_back(last)
            assert (await last.hears_of("playback_stopped"))["text"] == SENTENCE
            last.tell(type="end")
            assert (await call.record()).outcome == "hung up"
            await carrying


async def test_a_client_that_comes_back_before_its_loss_was_noticed_takes_the_call_over() -> None:
    """The old connection, half open, is closed."""
    async with Page() as page:
        call = Call(page)
        page.tell(type="text", text=f"{SENTENCE} {SENTENCE}")
        await page.hears_of("words_heard", 4)
        page.reads.clear()  # the network is gone, and nobody knows
        await asyncio.sleep(2)
        async with Page(resume=page.told_of("started")[0]["resume"]) as again:
            carrying = call.comes_back(again)
            stopped = await again.hears_of("playback_stopped")
            assert page.closed is not None
            assert stopped["text"] == f"{SENTENCE} {SENTENCE}"
            assert page.seconds(1) + again.seconds(1) >= 2.0 - 0.25  # so long it is believed to play on without word of it
            again.tell(type="end")
            await call.record()
            await carrying


async def test_a_connection_that_stays_away_ends_the_call_with_a_clear_reason() -> None:
    """After ``resume_s`` the call is over, and cannot be taken up any more."""
    async with Page() as page:
        call = Call(page, wire=FramesWire(FramesOptions(resume_s=5)))
        began = asyncio.get_running_loop().time()
        token = await lose_in_mid_speech(call, page)
        record = await call.record()
        assert record.why == "the connection was lost, and did not come back"
        assert record.outcome == "hung up"
        assert 5 <= asyncio.get_running_loop().time() - began <= 7
        async with Page(resume=token) as late:
            assert (await call.comes_back(late)) is not None
            assert late.closed == (1008, "there is no such call any more")


async def test_a_call_that_ends_during_an_outage_is_over() -> None:
    """A shutdown does not wait for a connection that may never come back."""
    async with Page() as page:
        call = Call(page)
        await lose_in_mid_speech(call, page)
        await asyncio.sleep(1)
        now = asyncio.get_running_loop().time()
        await call.calls.drain(0)
        assert (await call.record()).outcome == "stopped"
        assert asyncio.get_running_loop().time() - now < 0.1


async def test_what_was_said_into_an_outage_is_said_again() -> None:
    """An agent that was let speak while there was no connection has not been heard: all of it comes afterwards."""
    async with Page() as page:
        call = Call(page)
        token = await lose_in_mid_speech(call, page, 0.25)
        await asyncio.sleep(0.5)
        call.sessions[0].resume("a turn-taking node thinks it was a cough")
        await asyncio.sleep(3)
        async with Page(resume=token) as again:
            carrying = call.comes_back(again)
            stopped = await again.hears_of("playback_stopped")
            assert stopped["text"] == SENTENCE
            assert page.seconds(1) + again.seconds(1) >= 1.0 - 0.25  # an ear is believed to have had so much without word of it
            again.tell(type="end")
            await call.record()
            await carrying


async def test_words_told_during_an_outage_are_told_afterwards() -> None:
    """Messages that are not sound wait for the connection."""
    async with Page() as page:
        call = Call(page)
        token = await lose_in_mid_speech(call, page)
        await asyncio.sleep(0.5)
        await call.sessions[0].started()
        call.sessions[0].interrupt("from elsewhere")
        async with Page(resume=token) as again:
            carrying = call.comes_back(again)
            await again.hears_of("interrupted")
            assert again.events[0][1]["type"] == "started"
            stopped = await again.hears_of("playback_stopped")
            assert stopped["complete"] is False
            assert again.seconds(1) == 0
            again.tell(type="end")
            await call.record()
            await carrying


async def test_a_resume_with_other_rates_is_refused_and_the_call_waits_on() -> None:
    """It is told why; the right one is let in afterwards."""
    async with Page() as page:
        call = Call(page)
        token = await lose_in_mid_speech(call, page)
        async with Page(resume=token, wants=16000) as wrong:
            await call.comes_back(wrong)
            assert wrong.closed is not None
            assert "rates" in wrong.closed[1]
        async with Page(resume=token) as again:
            carrying = call.comes_back(again)
            await again.hears_of("playback_stopped")
            again.tell(type="end")
            await call.record()
            await carrying


async def test_a_phone_call_whose_socket_closes_is_over() -> None:
    """A protocol in which nobody comes back is not waited for."""
    start = {"event": "start", "streamSid": "MZ1", "start": {"callSid": "CA1", "streamSid": "MZ1", "accountSid": "AC1"}}
    socket = MemorySocket(json.dumps(start))
    call = Call(socket, wire=TwilioWire())
    await asyncio.sleep(0.1)
    socket.lose()
    record = await call.record()
    assert record.why == "the connection was lost"
    assert record.seconds == pytest.approx(0.1)


# ------------------------------------------------------------------------------------------------ the pure parts


@given(
    st.lists(st.one_of(st.tuples(st.just("put"), st.integers(1, 50)), st.just(("take", 1)), st.just(("throw", 0)), st.just(("again", 0))))
)
def test_positions_lead_from_what_came_to_where_it_stood(steps: list[tuple[str, int]]) -> None:
    """For any order of sound queued, sent, thrown away and begun again, each sample that was sent is found at its place,
    and it is known how many wait."""
    outbox, made, sent = Outbox(limit=10_000), 0, []
    for step, count in steps:
        if step == "put":
            outbox.put_sound([",".join(str(made + i) for i in range(count))], count, 0.0)
            made += count
        elif step == "take" and (message := outbox.take()) is not None:
            sent += [int(number) for number in str(message).split(",")]
        elif step == "throw":
            outbox.throw_away_sound()
        elif step == "again":
            outbox.start_again(made)
            sent = []
    for count, number in enumerate(sent, 1):
        assert outbox.positions.of(count) == number + 1
    assert outbox.positions.of(len(sent) + 1000) == outbox.positions.of(len(sent))
    waiting, left = outbox.waiting, 0
    while (message := outbox.take()) is not None:
        left += len(str(message).split(","))
    assert (left, outbox.waiting) == (waiting, 0)


def test_positions_forget_the_oldest_places() -> None:
    """Thousands of clears cost no memory, and what is told now is still exact."""
    positions = Positions()
    for _ in range(10_000):
        positions.sent(10)
        positions.left_out(5)
    positions.sent(10)
    assert positions.of(100_010) == 150_010
    assert len(positions._places) <= 256


@given(st.lists(st.sampled_from(["sound", "mark", "word", "clear", "take"]), max_size=60))
def test_an_outbox_loses_no_word_and_no_order(steps: list[str]) -> None:
    """Sound and words leave in order; what was thrown away never; and the clear before all that was put before it."""
    outbox, left, expected = Outbox(), [], []
    for number, step in enumerate(steps):
        name = f"{step} {number}"
        if step in ("sound", "mark"):
            outbox.put_sound([name], 1 if step == "sound" else 0, 0.0)
            expected.append(name)
        elif step == "word":
            outbox.put([name], 0.0)
            expected.append(name)
        elif step == "clear":
            outbox.throw_away_sound()
            outbox.put_first([name], 0.0)
            clears = [e for e in expected if e.startswith("clear")]
            expected = [*clears, name, *(e for e in expected if e.startswith("word"))]
        elif (message := outbox.take()) is not None:
            left.append(message)
            assert message == expected.pop(0)
    while (message := outbox.take()) is not None:
        assert message == expected.pop(0)
    assert expected == []


@pytest.mark.parametrize("name", ["handshake_s", "stall_s", "live_s", "messages_per_s", "burst", "close_s"])
def test_options_that_allow_nothing_are_errors(name: str) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=name):
        LineOptions(**{name: 0})


def test_the_text_of_a_wire_error_is_a_reason_to_close() -> None:
    """It carries a close code."""
    assert WireError("nonsense").code == 1002
