"""The pacing speaker in a running session: when blocks leave, who waits, what is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from voiceflow import (
    AudioFormat,
    Heard,
    HoldFrame,
    OutputAudioFrame,
    PlaybackStarted,
    PlaybackStopped,
    Processor,
    ResumeFrame,
    Session,
    UtteranceEnded,
    Word,
    replace,
)
from voiceflow.playout.refill import PlayoutOptions
from voiceflow.testing import check_processor, interrupt_everywhere, no_leaks, run_virtual
from voiceflow.transports.speaker import Speaker, SpeakerOptions

RATE = 24000
BLOCK = 480
BARE = SpeakerOptions(playout=PlayoutOptions(fade_ms=0, declick_ms=0))


def speech(ms, value=1000, utterance=1, words=()):
    pcm = np.full(round(ms * RATE / 1000), value, "<i2").tobytes()
    return OutputAudioFrame(pcm=pcm, sample_rate=RATE, utterance=utterance, words=tuple(words))


def spoken(*texts, value=1000, utterance=1):
    words = [Word(text, i * 0.1, (i + 1) * 0.1) for i, text in enumerate(texts)]
    return speech(100 * len(texts), value, utterance, words)


class Voice(Processor):
    """Yields a script of frames and pauses (seconds), and keeps the reports that come up."""

    makes = AudioFormat(RATE)

    def __init__(self, *script):
        self.script = script
        self.made: list[OutputAudioFrame | UtteranceEnded] = []
        self.given: list[tuple[float, OutputAudioFrame | UtteranceEnded]] = []
        self.reports: list[PlaybackStarted | PlaybackStopped] = []

    def process(self, frame: PlaybackStarted | PlaybackStopped) -> None:
        self.reports.append(frame)

    async def run(self) -> AsyncIterator[OutputAudioFrame | UtteranceEnded | HoldFrame | ResumeFrame]:
        for item in self.script:
            if isinstance(item, int | float):
                await asyncio.sleep(item)
            elif callable(item):
                item(self.session)
            else:
                self.made.append(item)
                yield replace(item, epoch=self.session.epoch)
                self.given.append((self.session.time(), item))


class Out:
    """What left, and when."""

    def __init__(self):
        self.blocks: list[tuple[float, np.ndarray]] = []

    def __call__(self, pcm):
        self.blocks.append((asyncio.get_running_loop().time(), np.frombuffer(pcm, "<i2")))

    @property
    def times(self):
        return [at for at, _ in self.blocks]

    @property
    def pcm(self):
        return np.concatenate([pcm for _, pcm in self.blocks])

    def heard_at(self):
        """Start times of the blocks that hold sound."""
        return [at for at, pcm in self.blocks if pcm.any()]


def play(*script, options=BARE, meanwhile=None, speaker=None):
    """Run the script to its end; the voice (with its reports), what left, and when the session was over."""
    out, voice = Out(), Voice(*script)
    node = speaker or Speaker(out, AudioFormat(RATE), options)

    async def main():
        session = Session(voice >> node)
        async with no_leaks(threads=False, descriptors=False):
            if meanwhile is None:
                await session.run()
            else:
                await asyncio.gather(session.run(), meanwhile(session))
        return asyncio.get_running_loop().time()

    return voice, out, run_virtual(main())


def test_the_first_block_leaves_at_once_and_the_rest_on_time():
    """A second of sound made in one burst leaves in 50 blocks, 20 ms apart to the float, the first without delay."""
    voice, out, end = play(0.5, *[speech(100)] * 10, UtteranceEnded(utterance=1))
    assert out.heard_at() == [0.5 + n * 0.02 for n in range(50)]
    assert (out.pcm == 1000).sum() == RATE
    assert end == pytest.approx(1.5)
    assert voice.reports == [
        PlaybackStarted(utterance=1, at=0.5, epoch=0),
        PlaybackStopped(heard=Heard(1, "", True), at=pytest.approx(1.5), epoch=0),
    ]


def test_a_block_of_an_odd_rate_drifts_nowhere():
    """At 11025 Hz blocks of 220 and 221 samples alternate: two seconds of sound take two seconds."""
    out = Out()
    speaker = Speaker(out, AudioFormat(11025), BARE)
    frame = OutputAudioFrame(pcm=b"\1\0" * 22050, sample_rate=11025, utterance=1)
    _, _, end = play(frame, UtteranceEnded(utterance=1), speaker=speaker)
    assert {len(pcm) for _, pcm in out.blocks[:-1]} == {220, 221}
    assert sum(len(pcm) for _, pcm in out.blocks[:100]) == 22050
    assert end == pytest.approx(2.0)


def test_a_late_block_delays_no_other():
    """When a step of the loop took 130 ms the blocks due in it leave at once, and the next on its own time."""

    class Stalling(Out):
        def __call__(self, pcm):
            super().__call__(pcm)
            if len(self.blocks) == 10:
                asyncio.get_running_loop().now += 0.13

    out = Stalling()
    speaker = Speaker(out, AudioFormat(RATE), BARE)
    play(speech(1000), UtteranceEnded(utterance=1), speaker=speaker)
    late = 9 * 0.02 + 0.13
    assert out.heard_at() == pytest.approx([n * 0.02 if n < 10 else max(n * 0.02, late) for n in range(50)])


def test_nothing_leaves_while_nothing_is_said():
    """In ten seconds with half a second of speech, half a second of blocks leaves, and no timer runs in between."""
    steps = []

    async def count(session):
        loop = asyncio.get_running_loop()
        await asyncio.sleep(2.0)
        steps.append(loop.steps)
        await asyncio.sleep(7.0)
        steps.append(loop.steps)

    _, out, _ = play(speech(500), UtteranceEnded(utterance=1), 9.5, meanwhile=count)
    assert len(out.blocks) <= 27
    assert steps[1] - steps[0] < 5


def test_a_continuous_speaker_lets_silence_leave_too():
    """With ``continuous`` a block leaves every 20 ms from start to end, with the sound at its place in them."""
    options = SpeakerOptions(continuous=True, playout=BARE.playout)
    _, out, end = play(1.01, speech(500), UtteranceEnded(utterance=1), 1.0, options=options)
    assert out.times == pytest.approx([n * 0.02 for n in range(len(out.blocks))])
    assert end - 0.04 < len(out.blocks) * 0.02 < end + 0.04
    assert np.flatnonzero(out.pcm)[0] == 51 * BLOCK


def test_two_stretches_never_overlap():
    """Speech that comes 5 ms after the last block began waits for its end: what takes the sound plays in real time."""
    _, out, _ = play(speech(20), UtteranceEnded(utterance=1), 0.025, speech(20, utterance=2), UtteranceEnded(utterance=2))
    gaps = np.diff(out.times)
    assert gaps.min() >= 0.02 - 1e-9


def test_whoever_makes_sound_waits_for_a_full_playout():
    """Of ten seconds made at once no more than the lead, the inbox and a frame are ahead of the ear at any time."""
    voice, _, end = play(*[speech(100)] * 100, UtteranceEnded(utterance=1))
    ahead = [0.1 * (n + 1) - at for n, (at, _) in enumerate(voice.given)]
    assert max(ahead) <= 1.0 + 2.0 + 0.2 + 1e-6
    assert end == pytest.approx(10.0)


def test_one_huge_frame_is_taken():
    """Half a minute in one frame plays through."""
    _, out, end = play(speech(30_000), UtteranceEnded(utterance=1))
    assert (out.pcm == 1000).sum() == 30 * RATE
    assert end == pytest.approx(30.0)


def test_the_end_waits_until_all_is_heard():
    """With 150 ms from block to ear the session ends when the last sample has come to the ear."""
    options = SpeakerOptions(latency_s=0.15, playout=BARE.playout)
    voice, _, end = play(spoken("one", "two"), UtteranceEnded(utterance=1), options=options)
    assert end == pytest.approx(0.36)  # the pull that sees it is at the next block
    assert voice.reports[-1] == PlaybackStopped(heard=Heard(1, "one two", True), at=pytest.approx(0.35), epoch=0)


def test_the_end_lets_go_of_a_hold_and_of_an_open_utterance():
    """A session ended during a hold, with no UtteranceEnded, still says everything."""
    voice, out, _ = play(spoken("one", "two"), 0.05, HoldFrame(), 0.5)
    assert (out.pcm == 1000).sum() >= 4800
    assert voice.reports[-1].heard == Heard(1, "one two", True)


def test_a_hold_acts_within_a_block_while_the_voice_waits():
    """A hold reaches the playout although the agent's lane is blocked by a full one, and resume goes on from the cut word."""
    words = [f"w{i}" for i in range(10)]
    script = [replace(spoken(*words), utterance=1)] * 6

    async def hold(session):
        await session.started()
        await asyncio.sleep(0.345)  # in w3
        session.hold("a cough")
        await asyncio.sleep(0.5)
        session.resume("it was a cough")

    voice, out, end = play(*script, UtteranceEnded(utterance=1), meanwhile=hold)
    assert not [at for at in out.heard_at() if 0.36 <= at < 0.845 - 1e-9]
    assert (out.pcm == 1000).sum() == 6 * RATE + round(0.06 * RATE), "60 ms of w3 are said twice"
    assert end == pytest.approx(6.0 + 0.06 + 0.845 - 0.36)
    assert voice.reports[-1].heard.text.split() == words * 6


def test_an_interrupt_is_silent_at_once_and_knows_what_was_heard():
    """After the interrupt not one old sample leaves; its record holds the text, and no PlaybackStopped repeats it."""
    records = []

    def interrupt(session):
        records.append(session.interrupt("barge-in"))

    voice, out, _ = play(
        spoken("one", "two", "three", "four", value=1),
        UtteranceEnded(utterance=1),
        0.255,
        interrupt,
        spoken("five", value=2, utterance=2),
        UtteranceEnded(utterance=2),
    )
    after = [pcm for at, pcm in out.blocks if at >= 0.255]
    assert set(np.concatenate(after)) - {0} == {2}
    assert records[0].heard == [Heard(1, "one two three", False)]
    assert [type(r).__name__ for r in voice.reports] == ["PlaybackStarted", "PlaybackStarted", "PlaybackStopped"]
    assert voice.reports[-1].heard == Heard(2, "five", True)


def test_an_interrupt_with_nothing_in_hand_does_nothing():
    """Before any sound, twice in a row and after the last, an interrupt hears nothing and the next speech is whole."""
    records = []

    def interrupt(session):
        records.append(session.interrupt())

    _, out, _ = play(
        interrupt, interrupt, spoken("one"), UtteranceEnded(utterance=1), 0.5, interrupt, speech(20, 5, 2), UtteranceEnded(utterance=2)
    )
    assert [r.heard for r in records] == [[], [], []]
    assert (out.pcm == 1000).sum() == 2400
    assert (out.pcm == 5).sum() == BLOCK


def test_what_was_completed_right_before_an_interrupt_is_reported():
    """An utterance whose last sample was heard between two pulls is a PlaybackStopped, not part of the interrupt."""
    records = []

    def interrupt(session):
        records.append(session.interrupt())

    voice, _, _ = play(speech(90), UtteranceEnded(utterance=1), 0.095, interrupt, 1.0)
    assert records[0].heard == []
    assert [type(r) for r in voice.reports] == [PlaybackStarted, PlaybackStopped]


def test_an_interrupt_during_the_end_ends_it():
    """While the last speech is being drained an interrupt silences it and the session is over at once."""

    async def interrupt(session):
        await session.started()
        await asyncio.sleep(1.0)
        session.interrupt()

    _, _, end = play(speech(5000), UtteranceEnded(utterance=1), meanwhile=interrupt)
    assert end == pytest.approx(1.0, abs=0.03)


def test_interrupted_at_every_point_nothing_stale_leaves():
    """An interrupt at any step of the loop: of what was made before it not one sample leaves after it, and the rest is whole."""

    async def scenario(probe):
        out = Out()
        marks = []

        class Marked(Speaker):
            def on_interrupt(self, interrupt):
                super().on_interrupt(interrupt)
                marks.append((len(out.blocks), {frame.samples[0, 0] for frame in voice.made if isinstance(frame, OutputAudioFrame)}))

        script = []
        for n in (1, 2, 3):
            script += [
                spoken("a", "b", value=2 * n, utterance=n),
                spoken("c", value=2 * n + 1, utterance=n),
                UtteranceEnded(utterance=n),
                0.25,
            ]
        voice = Voice(*script)
        session = Session(voice >> Marked(out, AudioFormat(RATE), BARE))
        probe.watch(session)
        await session.run()
        blocks, made = marks[0] if marks else (0, set())
        later = np.concatenate([pcm for _, pcm in out.blocks[blocks:]] or [np.zeros(0, int)])
        if stale := made & set(later):
            probe.problems.append(f"samples of {stale} left after the interrupt")
        whole = {value for value in range(2, 8) if (later == value).sum() == (2400 if value % 2 else 4800)}
        if whole != set(range(2, 8)) - made:
            probe.problems.append(f"made before: {made}, whole after: {whole}")
        heard = [r.heard.utterance for r in voice.reports if isinstance(r, PlaybackStopped) and r.heard.complete]
        heard += [h.utterance for h in probe.interruption.heard] if probe.interruption else []
        if len(heard) != len(set(heard)):
            probe.problems.append(f"reported twice: {heard}")

    result = interrupt_everywhere(scenario)
    result.check()
    assert result.tried > 40


def test_an_unpaced_speaker_is_as_fast_as_the_voice():
    """Without pacing a minute leaves in no time, sample for sample, and counts as heard; a hold changes nothing."""
    options = SpeakerOptions(paced=False)
    voice, out, end = play(
        *[spoken(f"w{i}", "x", value=i + 1) for i in range(50)],
        HoldFrame(),
        *[speech(1000)] * 50,
        UtteranceEnded(utterance=1),
        options=options,
    )
    assert end == 0.0
    assert len(out.pcm) == 60 * RATE
    assert voice.reports[-1].heard == Heard(1, " ".join(f"w{i} x" for i in range(50)), True)


def test_underruns_are_logged_once_an_utterance(caplog):
    """A voice that comes too late is named with its share of silence, in one line for each utterance."""
    play(speech(100), 0.3, speech(200), UtteranceEnded(utterance=1), 1.0, speech(100, utterance=2), UtteranceEnded(utterance=2))
    (line,) = [r.message for r in caplog.records if "too late" in r.message]
    assert line.startswith("Speaker: the voice came too late 1 times, 42.3 %")


def test_a_failing_device_ends_the_session():
    """What ``play`` raises is not swallowed: the session ends and names the node."""

    def broken(pcm):
        raise OSError("unplugged")

    with pytest.raises(ExceptionGroup) as error:
        play(speech(20), 1.0, speaker=Speaker(broken, AudioFormat(RATE)))
    assert error.group_contains(Exception, match="Speaker: run\\(\\) raised OSError: unplugged")


@pytest.mark.parametrize(
    ("wrong", "says"), [({"block_ms": 0}, "block_ms"), ({"lead_s": 0.1}, "lead_s 0.1 is less"), ({"latency_s": -1}, "latency_s")]
)
def test_impossible_options_are_refused(wrong, says):
    """Options that cannot work are an error naming the option."""
    with pytest.raises(ValueError, match=says):
        Speaker(print, AudioFormat(RATE), SpeakerOptions(**wrong))


def test_it_conforms():
    """The conformance kit passes: strangers, order, slow and failing neighbours, an interrupt everywhere."""
    feed = [spoken("one", "two"), UtteranceEnded(utterance=1), HoldFrame(), ResumeFrame()]
    check_processor(lambda: Speaker(Out(), AudioFormat(RATE)), feed)
