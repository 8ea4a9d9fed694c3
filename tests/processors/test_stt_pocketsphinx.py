"""Tests of speech to text with PocketSphinx, whose model comes with the package."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
import pytest

from voiceflow.errors import NodeError
from voiceflow.frames import ErrorFrame, InputAudioFrame, SpeechStarted, SpeechStopped, TranscriptFrame
from voiceflow.processor import Processor
from voiceflow.processors.dictation import Job
from voiceflow.processors.segments import Segment
from voiceflow.session import Session
from voiceflow.testing import Collector, Feeder, check_processor, no_leaks, run_virtual

sphinx = pytest.importorskip("voiceflow.processors.stt_pocketsphinx", reason="pip install pocketsphinx", exc_type=ImportError)

PocketSphinxOptions, PocketSphinxSTT = sphinx.PocketSphinxOptions, sphinx.PocketSphinxSTT

CARDS = "#JSGF V1.0; grammar cards; public <card> = (seven | ten | queen) of (clubs | hearts | spades);"

Sent = list[InputAudioFrame | SpeechStarted | SpeechStopped]


@pytest.fixture(scope="module")
def call(recording: Callable[[str], np.ndarray]) -> Sent:
    """Someone says "seven of clubs" from 1.0 s to 2.5 s, and again 0.6 s later, with the edges of a detector."""
    word = recording("seven_of_clubs")
    sound = np.concatenate((np.zeros(16000, "<i2"), word, np.zeros(9600, "<i2"), word, np.zeros(16000, "<i2")))
    frames: Sent = [InputAudioFrame(sound[i : i + 320].tobytes(), 16000, pts=i / 16000) for i in range(0, len(sound), 320)]
    ends = [(1.0, 1.0 + len(word) / 16000), (1.6 + len(word) / 16000, 1.6 + 2 * len(word) / 16000)]
    for begin, end in reversed(ends):
        frames.insert(round((end + 0.2) * 50), SpeechStopped(at=end, silence=0.2))
        frames.insert(round((begin + 0.1) * 50), SpeechStarted(at=begin))
    return frames


def converse(node: object, sent: Sent) -> list[TranscriptFrame]:
    collector = Collector()

    async def main() -> None:
        async with no_leaks():
            await Session(Feeder(sent, rest_s=0.02) >> node >> collector).run()

    run_virtual(main())
    return [f for f in collector.frames if isinstance(f, TranscriptFrame)]


def test_speech_is_heard_as_it_comes(call: Sent):
    """Partials grow while the caller speaks, none of their words is called stable, and each utterance gets its final."""
    told = converse(PocketSphinxSTT(), call)

    finals = [f for f in told if f.final]
    assert [f.text.split()[:2] for f in finals] == [["seven", "of"]] * 2  # clubs or close: it is not that good
    partials = [f for f in told if not f.final and f.pts == 1.0]
    assert len(partials) >= 4
    assert {f.stable for f in partials} == {0}
    assert len(partials[-1].text.split()) > len(partials[0].text.split())


def test_a_grammar_limits_what_can_be_heard(call: Sent):
    """With a grammar every word told is one of the grammar's."""
    told = converse(PocketSphinxSTT(PocketSphinxOptions(grammar=CARDS)), call)

    assert [f.text for f in told if f.final] == ["seven of clubs"] * 2
    assert set(" ".join(f.text for f in told).split()) <= {"seven", "ten", "queen", "of", "clubs", "hearts", "spades"}


def test_silence_gives_a_final_with_no_text():
    """When the detector heard a voice and there was none, the final says so."""
    sent: Sent = [InputAudioFrame(bytes(640), 16000, pts=n * 0.02) for n in range(100)]
    sent.insert(60, SpeechStarted(at=1.0))
    sent.insert(90, SpeechStopped(at=1.5))

    assert [(f.text, f.final) for f in converse(PocketSphinxSTT(PocketSphinxOptions(grammar=CARDS)), sent) if f.final] == [("", True)]


def test_a_model_that_is_not_there_ends_the_session_at_its_start(call: Sent):
    """The error names the node and the options; no process is left."""
    with pytest.raises(ExceptionGroup) as caught:
        converse(PocketSphinxSTT(PocketSphinxOptions(acoustic_model="/no/such/model")), call)

    (error,) = caught.value.exceptions
    assert isinstance(error, NodeError)
    assert "/no/such/model" in str(error)


def test_when_its_process_dies_the_call_goes_on(call: Sent):
    """A dead process is reported for each utterance it should have heard, whose final is empty; the session ends well."""
    errors = []

    class Errors(Processor):
        def process(self, frame: ErrorFrame) -> None:
            errors.append(frame.error)

    class Dying(PocketSphinxSTT):
        async def start(self) -> None:
            await super().start()
            self._recognizer.close()

    collector = Collector()
    run_virtual(Session(Feeder(call, rest_s=0.02) >> Errors() >> Dying() >> collector).run())

    assert [f.text for f in collector.frames if isinstance(f, TranscriptFrame)] == ["", ""]
    assert all("the process of PocketSphinx has ended" in error for error in errors)
    assert len(errors) >= 2


def test_every_sample_is_given_to_the_decoder_once(monkeypatch: pytest.MonkeyPatch):
    """Of jobs that grow, only what is new is sent on; another segment begins anew."""
    sent = []

    class Ear:
        def recognize(self, pcm: bytes, *, is_new: bool, is_final: bool) -> str:
            sent.append((np.frombuffer(pcm, "<i2").tolist(), is_new, is_final))
            return "words"

    def job(number: int, count: int, *, final: bool) -> Job:
        return Job(number, Segment(0, np.arange(count, dtype=np.float32) / 32768), 0.0, final)

    node = PocketSphinxSTT()
    node._recognizer = Ear()
    for item in [job(1, 3, final=False), job(1, 5, final=False), job(1, 6, final=True), job(2, 2, final=False), job(2, 2, final=True)]:
        assert node.decode(item).text == "words"

    assert sent == [([0, 1, 2], True, False), ([3, 4], False, False), ([5], False, True), ([0, 1], True, False), ([], False, True)]


def test_the_process_answers_each_request_with_a_line(recording: Callable[[str], np.ndarray]):
    """Its protocol: ready, then the words so far for each piece; an unfinished segment is dropped when another begins."""
    pcm = recording("seven_of_clubs").tobytes()
    half = len(pcm) // 4 * 2
    requests = io.BytesIO()
    for is_new, is_final, piece in [(True, False, pcm[:half]), (True, False, pcm[:half]), (False, False, pcm[half:]), (False, True, b"")]:
        requests.write(json.dumps({"is_new": is_new, "is_final": is_final, "size": len(piece)}).encode() + b"\n" + piece)
    requests.seek(0)
    answers = io.BytesIO()

    sphinx.main([json.dumps({"grammar": CARDS})], requests, answers)

    told = [json.loads(line)["text"] for line in answers.getvalue().splitlines()]
    assert len(told) == 5
    assert (told[0], told[-1]) == ("", "seven of clubs")


def test_it_passes_the_conformance_kit(call: Sent):
    """Strangers pass, interrupts change nothing, and slow or failing neighbours do no harm."""
    pieces = [frame for frame in call[:150] if not isinstance(frame, InputAudioFrame)]
    sound = b"".join(frame.pcm for frame in call[:150] if isinstance(frame, InputAudioFrame))
    feed = [InputAudioFrame(sound, 16000, pts=0.0), *pieces]

    check_processor(lambda: PocketSphinxSTT(PocketSphinxOptions(grammar=CARDS)), feed, every=20)
