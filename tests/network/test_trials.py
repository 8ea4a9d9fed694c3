"""Calls on bad networks: nothing old is heard, nothing is lost or doubled, and what cannot go on ends with a reason."""

from __future__ import annotations

import asyncio
import re

import pytest

pytest.importorskip("aiortc", reason="needs aiortc: pip install 'voiceflow-framegraph[webrtc]'")

from tests.network import by_browser, by_webrtc, by_websocket
from tests.network.report import hold_all, table
from tests.network.talk import Result
from voiceflow.testing import no_leaks

pytestmark = pytest.mark.timeout(300)  # the first test that wants a path waits for all its trials

Results = dict[str, Result]

NARROW = "50 ms, 64 kbit/s to the caller only"
HELD = 65536
"""Bytes that wait at most where no interrupt takes them back: in the library, in two systems, and before the narrow link."""


@pytest.fixture(scope="module")
def websocket() -> Results:
    """All trials of the websocket, held at once; nothing may be left of any."""

    async def main() -> list[Result]:
        async with no_leaks():
            return await hold_all(by_websocket.hold, by_websocket.TRIALS, len(by_websocket.TRIALS))

    return {result.trial.name: result for result in asyncio.run(main())}


@pytest.fixture(scope="module")
def webrtc() -> Results:
    """The same of WebRTC."""

    async def main() -> list[Result]:
        async with no_leaks():
            return await hold_all(by_webrtc.hold, by_webrtc.TRIALS, by_webrtc.AT_ONCE)

    return {result.trial.name: result for result in asyncio.run(main())}


@pytest.fixture(scope="module")
def page_by_websocket() -> Results:
    """The same of the page, in a browser."""

    async def main() -> list[Result]:
        async with no_leaks():
            return await by_browser.hold_all(by_browser.TRIALS, webrtc=False)

    return {result.trial.name: result for result in asyncio.run(main())}


@pytest.fixture(scope="module")
def page_by_webrtc() -> Results:
    """And of the page that is served with --webrtc."""

    async def main() -> list[Result]:
        async with no_leaks():
            return await by_browser.hold_all(by_browser.TRIALS, webrtc=True)

    return {result.trial.name: result for result in asyncio.run(main())}


@pytest.fixture(params=["websocket", "webrtc", "page_by_websocket", "page_by_webrtc"])
def results(request: pytest.FixtureRequest) -> Results:
    """Of each path."""
    found: Results = request.getfixturevalue(request.param)
    return found


def wide(results: Results) -> list[Result]:
    """Those whose link carries all that is said, in the end."""
    return [result for result in results.values() if not (result.way == "websocket" and result.trial.link.rate) and not gone(result)]


def gone(result: Result) -> bool:
    """The peer is not there any more, as far as the path can tell: WebRTC cannot come back after its 8 s."""
    return result.trial.half_open or (result.way == "webrtc" and result.trial.outage_s > 8)


def test_no_old_sound_is_played_after_an_interrupt_on_any_link(results: Results) -> None:
    """What was made before an interrupt is not heard once the far end knows of it (websocket), and never leaves after it (WebRTC)."""
    assert {name: result.stale for name, result in results.items()} == dict.fromkeys(results, 0)
    assert all(len(result.silence_s) == result.trial.cuts for result in wide(results))


@pytest.mark.parametrize("path", ["websocket", "page_by_websocket"])
def test_an_interrupt_is_silent_after_one_way_of_the_link(path: str, request: pytest.FixtureRequest) -> None:
    """Without loss the last old sample is heard no later than the link takes, and this loop's timers were late."""
    for result in wide(request.getfixturevalue(path)):
        if not result.trial.link.loss:
            # Two blocks, and the timers of server, link and ear; in a page also the way from one thread to another.
            limit_s = result.trial.one_way_s + 0.04 + 3 * result.late_s + (2 * by_browser.STOP_S if result.page else 0)
            assert max(result.silence_s) <= limit_s, (result.trial.name, limit_s)


def test_the_conversation_comes_to_its_end_on_every_link_that_carries_it(results: Results) -> None:
    """Three questions, three answers, whatever the delay and the loss."""
    assert [result.trial.name for result in wide(results) if not result.finished] == []
    assert all(len(result.latency_s) == 3 for result in wide(results))


def test_a_reply_that_was_heard_out_is_known_to_have_been(results: Results) -> None:
    """To the word, and none was said twice."""
    for result in wide(results):
        words = result.words[3]
        assert words.complete, result.trial.name
        assert words.believed == words.made, result.trial.name
        if result.way == "websocket" or not result.trial.link.loss:
            assert words.wrong == 0, result.trial.name


def test_no_sample_is_lost_or_doubled_on_a_websocket(websocket: Results) -> None:
    """But the word that an outage cut is said again from its start: with what is believed unheard, at most."""
    for result in wide(websocket):
        for number, words in result.words.items():
            assert words.lost <= (25 if lost_connection(result) and number == 1 else 0), (result.trial.name, words)
            assert words.doubled <= (35 if lost_connection(result) and number == 1 else 0), (result.trial.name, words)


def lost_connection(result: Result) -> bool:
    return bool(result.trial.outage_s) and result.trial.ping_s < 5


def test_what_is_believed_of_a_cut_reply_is_behind_the_ear_by_the_way_there_and_back(results: Results) -> None:
    """The words that came to the ear until it knew are not in the context; never is one there that did not, but at the border."""
    for result in wide(results):
        if result.trial.link.loss:
            continue  # a retransmission is a longer way, and a lost packet is a piece of a word
        # Back: a report, which is made every so often. There: until the old sound has ended, over WebRTC what the jitter buffer held too.
        back_s = result.trial.one_way_s + (0.15 if result.way == "websocket" else 0.3) + 2 * result.late_s
        way_s = back_s + max([result.trial.one_way_s, *(result.silence_s if result.way == "webrtc" else ())])
        for words in result.words.values():
            assert words.wrong <= 2 + way_s / 0.1, (result.trial.name, words)
            assert words.believed <= words.heard + 1, (result.trial.name, words)


def test_an_outage_is_gone_on_from(results: Results) -> None:
    """When the network is back the reply that was cut is heard to its end: over WebRTC but for what left in the last moment before."""
    for result in wide(results):
        if result.trial.outage_s:
            lost = 0 if result.way == "websocket" else 4
            assert result.words[1].complete, result.trial.name
            assert 40 - lost <= result.words[1].heard <= 40, result.trial.name
            assert result.recovery_s is not None


def test_a_dead_page_is_given_up_and_notices_too(page_by_websocket: Results, page_by_webrtc: Results) -> None:
    """The server within its deadline; the page says that it is trying again, and over WebRTC begins a new call when the network is back."""
    for results, why in (
        (page_by_websocket, "the connection was lost, and did not come back"),
        (page_by_webrtc, f"nothing came from the caller for {by_browser.RESUME_S:g} s"),
    ):
        dead = results["50 ms, half open"]
        assert dead.why == why
        assert dead.given_up_s is not None
        assert dead.given_up_s <= by_browser.GIVEN_UP_S[dead.way] + 3 * dead.late_s
    for result in (page_by_websocket["50 ms, half open"], page_by_webrtc["50 ms, cut for 10 s"]):
        assert result.noticed_s is not None
        assert result.noticed_s <= by_browser.NOTICED_S + 3 * result.late_s
    assert page_by_webrtc["50 ms, cut for 10 s"].recovery_s is not None


def test_a_dead_peer_is_given_up(websocket: Results, webrtc: Results) -> None:
    """Within its deadline, with the reason, and nothing is left (see the fixtures)."""
    by_socket = websocket["50 ms, half open"]
    assert by_socket.why == by_socket.caller_why == "the connection was lost, and did not come back"
    assert by_socket.given_up_s is not None
    assert by_socket.given_up_s <= by_websocket.HALF_OPEN_S + 3 * by_socket.late_s
    by_peer = webrtc["50 ms, half open"]
    assert by_peer.why == "nothing came from the caller for 1.5 s"
    assert by_peer.given_up_s is not None
    assert by_peer.given_up_s <= 2 * by_webrtc.SILENT_S + 3 * by_peer.late_s


def test_a_link_that_is_too_narrow_leaves_the_server_bounded(websocket: Results, page_by_websocket: Results) -> None:
    """Raw sound wants six times of 64 kbit/s: no more waits than the stall's limit, and what never left is not believed to be heard."""
    for narrow in (websocket["50 ms, 64 kbit/s"], websocket[NARROW], page_by_websocket["50 ms, 64 kbit/s"]):
        assert narrow.most_waiting < 1000, narrow.most_waiting  # 50 blocks of sound a second for 10 s, and words
        assert narrow.why
        for words in narrow.words.values():
            assert words.believed <= words.heard + 3, words


def test_an_interrupt_overtakes_the_sound_that_has_not_left(websocket: Results) -> None:
    """To a caller on a narrow line: what is heard after it is what the network and the systems hold, not the seconds that wait."""
    narrow = websocket[NARROW]
    assert narrow.finished
    assert len(narrow.told_s) == 2
    assert narrow.longest_waiting_s > 3
    assert max(narrow.after_s) <= HELD / 48000, narrow.after_s


def test_opus_fits_into_64_kbits(webrtc: Results, page_by_webrtc: Results) -> None:
    """The same link carries a call by WebRTC, and is bounded."""
    assert webrtc["50 ms, 64 kbit/s"].finished
    assert page_by_webrtc["50 ms, 64 kbit/s"].finished


def test_the_report_has_a_row_for_each_trial(websocket: Results) -> None:
    """With numbers in it."""
    rows = table(list(websocket.values())).splitlines()[2:]
    assert len(rows) == len(by_websocket.TRIALS)
    assert all(re.search(r"\d", row.split("|")[2]) for row in rows)
