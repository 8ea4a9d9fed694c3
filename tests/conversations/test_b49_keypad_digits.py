"""Case B49: digits keyed in while somebody speaks, across an interruption, beside words, and at the end."""

from __future__ import annotations

import asyncio

from voiceflow import SayFrame
from voiceflow.phone import DigitReceived
from voiceflow.processors.dtmf import Keypad
from voiceflow.processors.idle import Idle, IdleOptions
from voiceflow.processors.tones import DigitCollector
from voiceflow.testing import run_virtual

from .rig import PONG, Call, final
from .test_b53_the_idle_timer import IdleLog

LIMIT_S = 2.0


def call(idle: IdleLog | None = None) -> Call:
    """Entries of digits go to the model; with a limit of two seconds between them."""
    after = [Idle(IdleOptions(idle_s=3.0)), idle] if idle else []
    return Call(head=[Keypad(DigitCollector(timeout_s=LIMIT_S))], after_turns=after, inputs=[DigitReceived])


def press(call: Call, *digits: str) -> None:
    call.send(*(DigitReceived(digit=digit) for digit in digits))


def test_an_entry_while_the_agent_speaks_is_asked_at_once() -> None:
    """On its terminator, without a recogniser, and the agent lets itself be interrupted by it."""

    async def main() -> None:
        async with call() as it:
            it.send(SayFrame("one two three four five six seven eight nine ten."))
            await it.until(0.5)
            for digit in "123#":
                press(it, digit)
                await asyncio.sleep(0.1)
            await it.until(3.0)
            assert [request[-1].text for request in it.model.requests] == ["1 2 3"]
            assert it.model.asked_at[0] < 1.5
            assert it.heard()[-len(PONG.split()) :] == PONG.split()
            await it.alive()

    run_virtual(main())


def test_an_interruption_loses_no_digit() -> None:
    """Those before it and those after it are one entry, which the limit completes; a digit twice is two digits."""

    async def main() -> None:
        async with call() as it:
            await it.until(0.5)
            press(it, "4")
            await it.until(0.7)
            it.session.interrupt("from elsewhere")
            await it.until(0.9)
            press(it, "5")
            await it.until(6.0)
            press(it, "7", "7")
            await it.until(12.0)
            assert [request[-1].text for request in it.model.requests] == ["4 5", "7 7"]
            assert it.model.asked_at[0] >= 0.9 + LIMIT_S
            await it.alive()

    run_virtual(main())


def test_digits_and_words_keep_their_order() -> None:
    """Both are the caller's."""

    async def main() -> None:
        async with call() as it:
            await it.until(0.5)
            press(it, "1", "#")
            it.send(final("hello"))
            await it.until(5.0)
            assert it.said("user") == ["1", "hello"]
            await it.alive()

    run_virtual(main())


def test_a_key_shows_that_the_caller_is_there() -> None:
    """The idle timer begins anew with each."""

    async def main() -> None:
        idle = IdleLog()
        async with call(idle) as it:
            for number in range(4):
                await it.until(1.0 + 1.9 * number)
                press(it, str(number))
            assert idle.times == []
            await it.until(10.5)
            assert [request[-1].text for request in it.model.requests] == ["0 1 2 3"]

    run_virtual(main())


def test_what_is_pending_at_the_end_is_an_entry() -> None:
    """The call ends, nothing waits for the limit, and the digits are in the conversation."""

    async def main() -> float:
        async with call() as it:
            await it.until(0.5)
            press(it, "9")
        assert it.said("user") == ["9"]
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) < 0.5 + LIMIT_S
