"""B25: a model that refuses or stalls gives no dead air: an error in time, out of which a spoken fallback can be made, and the next turn is answered."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("aiohttp", reason="pip install aiohttp")

from tests.conformance.servers.openai_server import KEY, Pause, Reply, Silence, Step, chunk, words
from tests.conformance.servers.sockets import over_sockets
from tests.conversations.llm_rig import ServedCall
from voiceflow.processors.services.http import Deadlines
from voiceflow.processors.services.retry import RetryOptions

PONG = "pong it is indeed."
SORRY = "Sorry, one moment please."
LIMITS = Deadlines(first_s=3.0, idle_s=3.0)
SECRET = f"a sentence of the provider that quotes {KEY}"
TOLD = {"error": {"message": SECRET, "type": "requests", "code": "rate_limit_exceeded"}}


def limited(after: str) -> Reply:
    return Reply(status=429, headers={"Retry-After": after}, body=TOLD)


def spoken_is_clean(served: ServedCall) -> None:
    """Neither heard nor remembered nor told is anything of the provider's own words."""
    everything = [
        *served.sink.words(),
        *(message.text for message in served.context.conversation.messages),
        *(error for _, error in served.reports.errors),
    ]
    assert not [text for text in everything if KEY in text or "provider" in text or "rate limit" in text.lower()]


@over_sockets
async def test_b25_a_limit_that_lasts() -> None:
    """It is not asked again before its time, three times in all; then an error, a fallback that is heard, and the next turn."""
    script = iter([limited("2"), limited("2"), limited("2"), words(PONG)])
    async with ServedCall(script, fallback=SORRY, deadlines=LIMITS) as served:
        assert await served.says("hello", 8.0) == SORRY.split()
        assert served.asked_at == pytest.approx([0.0, 2.0, 4.0], abs=0.06)
        assert all(b - a >= 2.0 for a, b in zip(served.asked_at, served.asked_at[1:], strict=False))
        ((at, error),) = served.reports.errors
        assert at == pytest.approx(4.0, abs=0.06)
        assert "429" in error
        spoken_is_clean(served)
        assert await served.says("ping", 1.5) == PONG.split()


@over_sockets
async def test_b25_a_limit_that_passes() -> None:
    """The caller gets the answer two seconds late, and no error."""
    async with ServedCall(iter([limited("2"), words(PONG)]), fallback=SORRY, deadlines=LIMITS) as served:
        assert await served.says("hello") == PONG.split()
        assert served.reports.errors == []


@over_sockets
async def test_b25_a_limit_longer_than_a_caller_waits() -> None:
    """The error comes at once, and the service is left alone until then, whatever the caller says meanwhile."""
    async with ServedCall(iter([limited("60"), words(PONG)]), fallback=SORRY, deadlines=LIMITS) as served:
        assert await served.says("hello", 3.0) == SORRY.split()
        assert served.reports.errors[0][0] < 0.06
        assert await served.says("hello?", 3.0) == SORRY.split()
        assert len(served.asked_at) == 1
        assert "asked for a pause" in served.reports.errors[1][1]
        await asyncio.sleep(55.0)
        assert await served.says("ping", 1.5) == PONG.split()


@pytest.mark.parametrize("again_s", [0.1, 1.0, 1.9])
@over_sockets
async def test_b25_a_turn_while_it_waits_to_ask_again(again_s: float) -> None:
    """The next turn takes the place of the one that waits; the service is not asked before its time for that one either."""
    async with ServedCall(iter([limited("2"), words(PONG)]), deadlines=LIMITS) as served:
        served.asks("hello")
        await asyncio.sleep(again_s)
        assert await served.says("ping") == PONG.split()
        assert served.asked_at == pytest.approx([0.0, 2.0], abs=0.06)
        assert served.server.asked[1].body["messages"][-1]["content"].endswith("ping")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
@over_sockets
async def test_b25_what_will_not_change_is_not_tried_again(status: int) -> None:
    """One request, an error at once that says what to do, and the next turn is asked as ever."""
    async with ServedCall(iter([Reply(status=status, body=TOLD), words(PONG)]), fallback=SORRY, deadlines=LIMITS) as served:
        assert await served.says("hello") == SORRY.split()
        ((at, error),) = served.reports.errors
        assert [len(served.asked_at), at < 0.06, f"answered {status}" in error] == [1, True, True]
        spoken_is_clean(served)
        assert await served.says("ping", 1.5) == PONG.split()


SILENT: dict[str, tuple[Step, ...]] = {
    "nothing but the headers": (),
    "only that it lives": tuple(step for _ in range(40) for step in (b": keep-alive\n\n", Pause(0.5))),
    "only the role": (chunk({"role": "assistant", "content": ""}),),
}


@pytest.mark.parametrize("kind", [*SILENT, "no headers"])
@over_sockets
async def test_b25_it_takes_the_request_and_says_nothing(kind: str) -> None:
    """After three seconds an error, the connection is closed, the fallback is heard; it is not asked a second time."""

    async with ServedCall(iter([Reply([*SILENT.get(kind, ()), Silence()]), words(PONG)]), fallback=SORRY, deadlines=LIMITS) as served:
        if kind == "no headers":
            served.server.before_headers_s = 20.0
        heard = await served.says("hello")
        served.server.before_headers_s = 0.0
        ((at, _),) = served.reports.errors
        assert at == pytest.approx(3.0, abs=0.06)
        assert served.server.asked[0].left_at == pytest.approx(3.0, abs=0.06)
        assert heard == SORRY.split()
        assert await served.says("ping", 1.5) == PONG.split()
        assert len(served.asked_at) == 2


@over_sockets
async def test_b25_it_stalls_in_the_middle_of_a_sentence() -> None:
    """Three seconds after the last token an error, the stream is closed; what came is said, once; "hello?" is a new request."""
    stalled = Reply([chunk({"content": word}) for word in ("I am ", "afraid ", "that ", "the")] + [Pause(20.0), chunk({"content": " end"})])
    async with ServedCall(iter([stalled, words(PONG)]), deadlines=LIMITS) as served:
        assert await served.says("is it open", 6.0) == ["I", "am", "afraid", "that", "the"]
        ((at, error),) = served.reports.errors
        assert at == pytest.approx(3.0, abs=0.06)
        assert "no token came for 3 s" in error
        assert served.server.asked[0].left_at == pytest.approx(3.0, abs=0.06)
        assert await served.says("hello?", 1.5) == PONG.split()
        assert served.seen.ended == 2
        said = [(message["role"], message["content"]) for message in served.server.asked[1].body["messages"]]
        assert said == [("user", "is it open"), ("assistant", "I am afraid that the"), ("user", "hello?")]
        await asyncio.sleep(20.0)
        assert "end" not in served.sink.words()


@over_sockets
async def test_b25_the_caller_speaks_before_the_limit_is_over() -> None:
    """The stalled stream is closed at that moment, without an error, and the new turn is answered."""
    async with ServedCall(iter([Reply([chunk({"content": "I am afraid"}), Silence()]), words(PONG)]), deadlines=LIMITS) as served:
        served.asks("is it open")
        await asyncio.sleep(1.0)
        assert await served.says("hello?", 1.5) == PONG.split()
        assert served.server.asked[0].left_at == pytest.approx(1.0, abs=0.06)
        assert served.reports.errors == []


@over_sockets
async def test_b25_two_failures_then_an_answer() -> None:
    """The caller hears the answer, within a second, and there is no error."""
    failure = Reply(status=500, body=TOLD)
    async with ServedCall(iter([failure, failure, words(PONG)]), fallback=SORRY, deadlines=LIMITS) as served:
        assert await served.says("hello", 1.5) == PONG.split()
        assert len(served.asked_at) == 3
        assert served.reports.errors == []


@over_sockets
async def test_b25_failures_that_last() -> None:
    """Limited tries with growing waits, one error in time."""
    async with ServedCall(lambda body: Reply(status=503), fallback=SORRY, deadlines=LIMITS, retries=RetryOptions(tries=4)) as served:
        assert await served.says("hello", 6.0) == SORRY.split()
        waits = [b - a for a, b in zip(served.asked_at, served.asked_at[1:], strict=False)]
        assert len(waits) == 3
        assert all(low <= wait <= 2 * low + 0.06 for wait, low in zip(waits, (0.125, 0.25, 0.5), strict=True))
        assert len(served.reports.errors) == 1
        assert served.reports.errors[0][0] < 2.0
