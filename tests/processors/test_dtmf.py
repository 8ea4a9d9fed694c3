"""Keys as tones: heard by the limits of ITU-T Q.24, never in speech, and counted once."""

from __future__ import annotations

import asyncio
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voiceflow import InputAudioFrame, Session, TurnEnded
from voiceflow.audio import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode, resample
from voiceflow.models import ModelStore
from voiceflow.phone import KEYS, DigitReceived, DigitsFrame
from voiceflow.processors.dtmf import DTMFIn, DTMFOut, DTMFOutOptions, Keypad
from voiceflow.processors.tones import HIGH, LOW, PAD, DigitCollector, Entry, ToneDetector, key_tone
from voiceflow.processors.turns import Turns
from voiceflow.testing import Collector, check_processor, run_virtual
from voiceflow.transports.memory import pair

DATA = Path(__file__).parents[1] / "data"
RATE = 8000


def pair_of(key: str) -> tuple[float, float]:
    row = next(i for i, keys in enumerate(PAD) if key in keys)
    return LOW[row], HIGH[PAD[row].index(key)]


def tone(
    key: str, ms: float, *, rate: int = RATE, low_db: float = -12.0, high_db: float = -12.0, off: tuple[float, float] = (0.0, 0.0)
) -> np.ndarray:
    """A pair of sines, each with its level in dB of full scale and its error in parts of its frequency."""
    t = np.arange(round(rate * ms / 1000)) / rate
    low, high = pair_of(key)
    return 10 ** (low_db / 20) * np.sin(2 * np.pi * low * (1 + off[0]) * t + 1) + 10 ** (high_db / 20) * np.sin(
        2 * np.pi * high * (1 + off[1]) * t
    )


def silence(ms: float, rate: int = RATE) -> np.ndarray:
    return np.zeros(round(rate * ms / 1000))


def pcm(*parts: np.ndarray, noise_db: float | None = None, seed: int = 1) -> bytes:
    whole = np.concatenate(parts)
    if noise_db is not None:
        whole = whole + np.random.default_rng(seed).normal(0, 10 ** (noise_db / 20), len(whole))
    return np.clip(np.round(whole * 32767), -32768, 32767).astype("<i2").tobytes()


def heard(data: bytes, rate: int = RATE, size: int = 320) -> str:
    detector = ToneDetector(rate)
    return "".join(key for at in range(0, len(data), size) for key, _ in detector.feed(data[at : at + size]))


# -------------------------------------------------------------------------------------------------- hearing


@given(
    keys=st.text(KEYS, min_size=1, max_size=6),
    rate=st.sampled_from([8000, 16000, 22050, 24000, 44100, 48000]),
    size=st.sampled_from([2, 64, 320, 641 * 2, 100000]),
    lead_ms=st.floats(0, 30),
)
@settings(max_examples=40, deadline=None)
def test_what_is_played_is_heard(keys: str, rate: int, size: int, lead_ms: float) -> None:
    """Each key once, at any rate, however the sound is cut, wherever it begins."""
    data = pcm(silence(lead_ms, rate)) + b"".join(key_tone(key, rate) for key in keys)
    size = max(size, len(data) // 2000 * 2)
    assert heard(data, rate, size) == keys


@given(
    key=st.sampled_from(KEYS),
    lead_ms=st.floats(0, 20),
    level_db=st.floats(-34, -8),
    twist_db=st.floats(-7.5, 3.5),
    off=st.tuples(st.floats(-0.014, 0.014), st.floats(-0.014, 0.014)),
    law=st.sampled_from(["none", "mu", "a"]),
    noise_under_db=st.floats(17, 60),
    seed=st.integers(0, 1000),
)
@settings(max_examples=300, deadline=None)
def test_all_that_a_receiver_must_take(
    key: str, lead_ms: float, level_db: float, twist_db: float, off: tuple[float, float], law: str, noise_under_db: float, seed: int
) -> None:
    """50 ms of tone, frequencies 1.4 % off, levels apart, faint or loud, with noise, through either law: the key, once."""
    body = tone(key, 50, low_db=level_db, high_db=level_db + twist_db, off=off)
    noise_db = level_db + min(twist_db, 0) - noise_under_db
    data = pcm(silence(50 + lead_ms), body, silence(60), noise_db=noise_db, seed=seed)
    if law != "none":
        data = mulaw_decode(mulaw_encode(data)) if law == "mu" else alaw_decode(alaw_encode(data))
    assert heard(data) == key


@given(
    key=st.sampled_from(KEYS),
    which=st.sampled_from(["short", "low off", "high off", "twist up", "twist down", "one tone", "faint", "noisy"]),
    lead_ms=st.floats(0, 13),
)
@example(key="9", which="short", lead_ms=1.0)
@settings(max_examples=150, deadline=None)
def test_all_that_a_receiver_must_not_take(key: str, which: str, lead_ms: float) -> None:
    """Too short, frequencies 4 % off, levels too far apart, one tone alone, too faint, drowned: no key."""
    made = {
        "short": lambda: tone(key, 20),
        "low off": lambda: tone(key, 100, off=(0.045, 0.0)),
        "high off": lambda: tone(key, 100, off=(0.0, -0.04)),
        "twist up": lambda: tone(key, 100, high_db=-4.0),
        "twist down": lambda: tone(key, 100, high_db=-24.0),
        "one tone": lambda: tone(key, 100, high_db=-90.0),
        "faint": lambda: tone(key, 100, low_db=-50, high_db=-50),
        "noisy": lambda: tone(key, 100) + np.random.default_rng(3).normal(0, 0.3, 800),
    }[which]()
    assert heard(pcm(silence(40 + lead_ms), made, silence(40))) == ""


@pytest.mark.parametrize("gap_ms", [2, 5, 9])
def test_a_break_of_less_than_ten_milliseconds_is_no_second_key(gap_ms: float) -> None:
    """The tone goes on."""
    for lead in range(0, 13, 2):
        assert heard(pcm(silence(30 + lead), tone("5", 80), silence(gap_ms), tone("5", 80), silence(60))) == "5"


def test_the_same_key_twice_is_two() -> None:
    """With the shortest pause that there may be."""
    for lead in range(0, 13):
        assert heard(pcm(silence(30 + lead), tone("5", 50), silence(45), tone("5", 50), silence(60))) == "55"


def speech() -> list[tuple[str, bytes]]:
    """Real speech, and a minute of a synthetic voice where there is one, at 8 kHz."""
    found = []
    for path in sorted(DATA.glob("*.wav")):
        with wave.open(str(path)) as file:
            found.append((path.stem, resample(file.readframes(file.getnframes()), file.getframerate(), RATE, file.getnchannels())))
    return found


def test_speech_is_no_key() -> None:
    """Human voices, loud and faint, and at other speeds, which move the pitch: none."""
    clips = speech()
    assert clips
    for name, data in clips:
        for speed in (0.8, 0.9, 1.0, 1.1, 1.25):
            moved = resample(data, round(RATE * speed), RATE)
            loud = np.clip(np.frombuffer(moved, "<i2").astype(np.float64) * 4, -32768, 32767).astype("<i2").tobytes()
            assert (heard(moved), heard(loud)) == ("", ""), (name, speed)


def test_a_synthetic_voice_is_no_key() -> None:
    """Two minutes of sentences, letters and numbers."""
    piper = pytest.importorskip("voiceflow.processors.tts_piper", reason="pip install -e '.[local]'")
    if ModelStore().find("piper-joe") is None:
        pytest.skip("the model is not here; run: voiceflow models get piper-joe")
    voice = piper.Piper.shared(ModelStore().path("piper-joe"))
    sentences = (DATA / "sentences.txt").read_text(encoding="utf-8").splitlines()
    latin = [line.split("\t")[-1] for line in sentences if line.isascii() and len(line) > 20][:25]
    for sentence in [*latin, "One two three four five six seven eight nine zero.", "Eee, ooo, aaa, mmm, sss, shhh."]:
        clip = voice.synthesize(sentence, piper.PiperOptions())
        assert heard(resample(clip.pcm, clip.sample_rate, RATE)) == "", sentence


# -------------------------------------------------------------------------------------------------- the nodes


def test_keys_go_through_a_line_as_tones() -> None:
    """One side plays them behind what it says, the other hears them in its sound, in order."""

    async def main() -> list[str]:
        near, far = pair()
        out = Collector()
        listening = Session(far.source >> DTMFIn() >> out)
        speaking = Session(DTMFOut() >> near.sink, inputs=[DigitsFrame])
        async with listening, speaking:
            await speaking.send(DigitsFrame(digits="12w#"))
            await asyncio.sleep(2.0)
        return [frame.digit for frame in out.frames if isinstance(frame, DigitReceived)]

    assert run_virtual(main()) == ["1", "2", "#"]


def test_keys_alone_are_over_when_they_were_heard() -> None:
    """The agent is not taken to be speaking for ever: the caller's next words are a turn at once."""

    async def main() -> list[tuple[str, float]]:
        near, far = pair()
        reports: list[tuple[str, float]] = []
        session = Session(near.source >> Turns() >> DTMFOut() >> near.sink, inputs=[DigitsFrame])
        session.tap(lambda frame, *_: reports.append((type(frame).__name__, frame.at)), source=near.sink.name, target=None)
        async with Session(far.source >> Collector()), session:
            began = session.time()
            await session.send(DigitsFrame(digits="12"))
            await asyncio.sleep(2.0)
        return [(name, at - began) for name, at in reports]

    (first, _), (last, at) = run_virtual(main())
    assert (first, last) == ("PlaybackStarted", "PlaybackStopped")
    assert at < 0.5


@pytest.mark.parametrize("first", ["message", "tone"])
def test_a_key_that_comes_both_ways_counts_once(first: str) -> None:
    """As a message and as a tone, in either order; the same key again counts again."""

    async def main() -> list[str]:
        out = Collector()
        session = Session(DTMFIn() >> out, inputs=[InputAudioFrame, DigitReceived])
        sound = InputAudioFrame(pcm=key_tone("5", RATE), sample_rate=RATE)
        async with session:
            for _ in range(2):
                for frame in (DigitReceived(digit="5"), sound) if first == "message" else (sound, DigitReceived(digit="5")):
                    await session.send(frame)
                    await asyncio.sleep(0.3)
                await asyncio.sleep(2.0)
            await session.send(sound)
        return [frame.digit for frame in out.frames if isinstance(frame, DigitReceived)]

    assert run_virtual(main()) == ["5", "5", "5"]


def test_what_is_keyed_in_becomes_a_turn() -> None:
    """The digits are the caller's words, with what they are; by the terminator, by time."""

    async def main() -> list[tuple[float, str]]:
        out = Collector()
        turns: list[tuple[float, str]] = []
        session = Session(Keypad(DigitCollector(timeout_s=2.0), prefix="Account number:") >> Turns() >> out, inputs=[DigitReceived])
        session.tap(lambda frame, *_: turns.append((session.time(), frame.text)) if isinstance(frame, TurnEnded) else None)
        async with session:
            began = session.time()
            for digit in "427#":
                await session.send(DigitReceived(digit=digit))
                await asyncio.sleep(0.2)
            await asyncio.sleep(3.0)
            await session.send(DigitReceived(digit="1"))
            await asyncio.sleep(6.0)
        return [(at - began, text) for at, text in turns]

    (first, said), (second, also) = run_virtual(main())
    assert (said, also.endswith(" Account number: 1")) == ("Account number: 4 2 7", True)
    assert first < 2.0
    assert 3.8 + 2.0 <= second < 3.8 + 4.0


@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.floats(0, 5)), max_size=20), st.sampled_from(["#", "*", ""]), st.none() | st.integers(1, 4)
)
def test_an_entry_is_what_was_keyed_in(presses: list[tuple[str, float]], terminator: str, length: int | None) -> None:
    """No key is lost or doubled, none is in an entry that came too late, and no entry is empty or too long."""
    collector = DigitCollector(terminator=terminator, length=length, timeout_s=3.0)
    now, entries = 0.0, []
    for key, pause in presses:
        if entry := collector.press(key, now):
            entries.append(entry)
        now += pause
        if collector.deadline is not None and now >= collector.deadline and (entry := collector.tick(now)):
            entries.append(entry)
    assert "".join(entry.digits for entry in entries) + collector.digits == "".join(key for key, _ in presses if key != terminator)
    assert all(entry.digits and (length is None or len(entry.digits) <= length) for entry in entries)
    if all(pause < 3.0 for _, pause in presses):
        assert "timeout" not in {entry.why for entry in entries}


def test_a_terminator_alone_is_no_entry() -> None:
    """And what was forgotten does not come back."""
    collector = DigitCollector()
    assert collector.press("#", 0.0) is None
    collector.press("1", 0.0)
    collector.clear()
    assert collector.tick(100.0) is None
    collector.press("2", 101.0)
    assert collector.press("#", 101.5) == Entry("2", "terminator")


@pytest.mark.parametrize("key", ["", "12", "x"])
def test_what_is_no_key_is_refused(key: str) -> None:
    """In a tone, in a frame, in options."""
    with pytest.raises(ValueError, match="not a key"):
        key_tone(key, RATE)
    with pytest.raises(ValueError, match="not a key"):
        DigitReceived(digit=key)


def test_wrong_options_are_refused() -> None:
    """The error names the field."""
    for wrong, says in (({"on_ms": 10}, "on_ms"), ({"off_ms": 0}, "off_ms"), ({"level_db": 0}, "level_db")):
        with pytest.raises(ValueError, match=says):
            DTMFOutOptions(**wrong)  # type: ignore[arg-type]
    for wrong, says in (({"terminator": "12"}, "terminator"), ({"length": 0}, "length"), ({"timeout_s": 0}, "timeout_s")):
        with pytest.raises(ValueError, match=says):
            DigitCollector(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3430 Hz"):
        ToneDetector(3000)
    with pytest.raises(ValueError, match="cannot be dialled"):
        DigitsFrame(digits="12x")


@pytest.mark.parametrize("rate", [8000, 11025, 48000])
def test_a_tone_is_what_it_says(rate: int) -> None:
    """Its two frequencies at their level, its length, and a silent pause."""
    made = np.frombuffer(key_tone("6", rate, on_ms=200, off_ms=100, level_db=-12), "<i2").astype(np.float64) / 32768
    assert len(made) == pytest.approx(rate * 0.3, abs=2)
    assert not made[round(rate * 0.2) :].any()
    body = made[round(rate * 0.05) : round(rate * 0.15)]
    t = np.arange(len(body)) / rate
    for frequency in pair_of("6"):
        amplitude = 2 * abs(np.mean(body * np.exp(-2j * np.pi * frequency * t)))
        assert 20 * np.log10(amplitude) == pytest.approx(-12, abs=0.4)


def test_the_nodes_conform() -> None:
    """The conformance kit."""
    sound = InputAudioFrame(pcm=key_tone("1", RATE), sample_rate=RATE)
    check_processor(DTMFIn, [sound, sound])
    check_processor(DTMFOut, [DigitsFrame(digits="12", utterance=1)])
    check_processor(Keypad, [DigitReceived(digit="1"), DigitReceived(digit="#")])
