"""Whatever is wrong with a graph is found before it runs, and who gets what from whom is known."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from voiceflow import (
    AudioFormat,
    EndFrame,
    ErrorFrame,
    Frame,
    HoldFrame,
    InputAudioFrame,
    InterruptFrame,
    LLMTextFrame,
    OutputAudioFrame,
    Pipeline,
    PipelineError,
    PlaybackStopped,
    Processor,
    SayFrame,
    SentenceFrame,
    Session,
    SessionError,
    StartFrame,
    TextFrame,
    TranscriptFrame,
    UtteranceEnded,
)
from voiceflow.testing import Collector, Feeder, run_virtual

PHONE, WIDE, VOICE = AudioFormat(8000), AudioFormat(16000), AudioFormat(24000)


def node(
    name: str, takes: Any, yields: Any = None, *, waits: bool = False, formats: Any = (), makes: AudioFormat | None = None
) -> Processor:
    """A node of that name with that contract; it passes its frame on."""

    def instant(self: Processor, frame: Any) -> Any:
        return frame if yields is not None else None

    async def waiting(self: Processor, frame: Any) -> Any:
        return frame if yields is not None else None

    process: Any = waiting if waits else instant
    process.__annotations__ = {"frame": takes, "return": yields}
    made: Processor = type(name, (Processor,), {"process": process})()
    made.name = name
    made.takes, made.makes = tuple(formats), makes
    return made


def source(name: str, yields: Any, makes: AudioFormat | None = None) -> Processor:
    async def run(self: Processor) -> AsyncIterator[Any]:
        if False:
            yield

    run.__annotations__ = {"return": AsyncIterator[yields]}
    made: Processor = type(name, (Processor,), {"run": run})()
    made.name, made.makes = name, makes
    return made


def receivers(pipeline: Pipeline, of: Processor | None, frame_type: type[Frame], *inputs: type[Frame]) -> list[str]:
    return [target.receiver.name for target in pipeline.plan(inputs).targets(of, frame_type)]


# ----------------------------------------------------------------------------------------- who gets what


def test_a_frame_goes_to_the_next_node_that_takes_it() -> None:
    """Nodes that do not take it are not visited, and a node that takes it consumes it."""
    mic, llm = source("mic", SentenceFrame | InputAudioFrame), node("llm", SentenceFrame, SayFrame)
    tts, sink = node("tts", SayFrame, OutputAudioFrame), node("sink", OutputAudioFrame | InputAudioFrame | SentenceFrame)
    pipeline = mic >> llm >> tts >> sink
    assert receivers(pipeline, mic, InputAudioFrame) == ["sink"]
    assert receivers(pipeline, mic, SentenceFrame) == ["llm"]
    assert receivers(pipeline, llm, SayFrame) == ["tts"]


def test_each_acceptor_gets_it_once_through_joins() -> None:
    """However many ways lead to a node, it is one receiver."""
    a, d = source("a", TextFrame), node("d", TextFrame, TextFrame)
    b, c, e = node("b", SayFrame), node("c", SayFrame), node("e", TextFrame)
    say = source("say", SayFrame)
    pipeline = (a >> [b, c] >> d >> e).link(a, d).link(say, b).link(say, c)
    assert receivers(pipeline, a, TextFrame) == ["d"]
    assert receivers(pipeline, say, SayFrame) == ["b", "c"]


def test_reports_go_up_against_the_arrows() -> None:
    """To the next nodes before that take them, nearest first, each once."""
    a = node("a", TextFrame | PlaybackStopped, SayFrame)
    b, c = node("b", SayFrame, OutputAudioFrame), node("c", SayFrame | PlaybackStopped, OutputAudioFrame)
    d = node("d", OutputAudioFrame, PlaybackStopped)
    pipeline = a >> [b, c] >> d
    assert receivers(pipeline, d, PlaybackStopped, TextFrame) == ["c", "a"]


def test_agent_frames_pass_a_waiting_node_by_way_of_its_inbox() -> None:
    """So that they stay behind its output; the caller's and control frames, and frames past an instant node, go straight."""
    a, slow = source("a", SayFrame | LLMTextFrame | TranscriptFrame | HoldFrame), node("slow", SayFrame, SayFrame, waits=True)
    quick, sink = node("quick", SayFrame, SayFrame), node("sink", SayFrame | LLMTextFrame | TranscriptFrame | HoldFrame)
    plan = (a >> slow >> quick >> sink).plan()

    def through(frame_type: type[Frame]) -> list[str]:
        return [n.name for n in plan.targets(a, frame_type)[0].through]

    assert through(LLMTextFrame) == ["slow"]
    assert through(TranscriptFrame) == through(HoldFrame) == []


@pytest.mark.parametrize("order", [("slow", "other"), ("other", "slow")])
def test_of_two_ways_the_one_past_the_waiting_node_is_taken(order: tuple[str, str]) -> None:
    """In which order branches were written does not decide whether an agent frame may overtake the speech."""
    a, sink = source("a", SayFrame | UtteranceEnded), node("sink", OutputAudioFrame | UtteranceEnded)
    branches = {"slow": node("slow", SayFrame, OutputAudioFrame, waits=True), "other": node("other", SayFrame)}
    plan = (a >> [branches[name] for name in order] >> sink).plan()
    [target] = plan.targets(a, UtteranceEnded)
    assert [n.name for n in target.through] == ["slow"]


def test_the_applications_frames_enter_at_the_heads() -> None:
    """Wherever there is no node before."""
    a, b, c = node("a", TextFrame, SayFrame), node("b", TextFrame | SayFrame), node("c", TextFrame)
    assert receivers(Pipeline([a >> b, c]), None, TextFrame, TextFrame) == ["a", "c"]


def test_nodes_stand_in_an_order_in_which_each_follows_those_that_feed_it() -> None:
    """Whatever the order of writing."""
    a, b, c, d = source("a", TextFrame), node("b", TextFrame, TextFrame), node("c", TextFrame, TextFrame), node("d", TextFrame)
    pipeline = Pipeline(d).link(c, d).link(b, c).link(a, b)
    assert [n.name for n in pipeline.plan().nodes] == ["a", "b", "c", "d"]


# --------------------------------------------------------------------------------- nobody feeds, nobody takes


def test_a_node_with_nothing_before_it_says_who_could_feed_it() -> None:
    """A source, or the application."""
    with pytest.raises(PipelineError) as caught:
        (node("stt", InputAudioFrame, TranscriptFrame) >> node("log", TranscriptFrame)).plan()
    assert str(caught.value) == (
        "nobody feeds stt: it takes InputAudioFrame, has no node before it and no frame is sent to it; "
        "link a source to it, or say what the application sends: Session(pipeline, inputs=[InputAudioFrame])"
    )


def test_a_node_that_gets_none_of_its_types_is_shown_what_there_is() -> None:
    """The error names the node, what it takes and what everyone yields."""
    with pytest.raises(PipelineError) as caught:
        (source("mic", TranscriptFrame) >> node("log", TranscriptFrame) >> node("tts", SentenceFrame | SayFrame, OutputAudioFrame)).plan()
    assert str(caught.value) == (
        "nobody feeds tts: it takes SayFrame | SentenceFrame, but no frame of these types reaches it "
        "(mic yields TranscriptFrame; log yields nothing)"
    )


def test_a_node_whose_frames_nobody_takes_is_shown_who_follows() -> None:
    """The error names the node, what it yields and what everyone takes."""
    mic, stt = source("mic", InputAudioFrame | HoldFrame), node("stt", InputAudioFrame, TranscriptFrame)
    with pytest.raises(PipelineError) as caught:
        (mic >> stt >> node("sink", HoldFrame)).plan()
    assert str(caught.value) == "nobody takes what stt yields (TranscriptFrame): sink takes HoldFrame"


def test_a_last_node_that_yields_into_nothing_is_named() -> None:
    """With nobody after it."""
    with pytest.raises(PipelineError, match=r"nobody takes what mic yields \(InputAudioFrame\): there is no node after it"):
        Pipeline(source("mic", InputAudioFrame)).plan()
    with pytest.raises(PipelineError, match=r"nobody takes what last yields \(TextFrame\): there is no node after it"):
        (source("mic", TextFrame) >> node("first", TextFrame, TextFrame) >> node("last", TextFrame, TextFrame)).plan()


def test_an_input_that_nobody_takes_is_named() -> None:
    """What the application says it sends must be for someone."""
    with pytest.raises(PipelineError, match="nobody takes InputAudioFrame, which the application says it sends; remove it from inputs"):
        Pipeline(node("sink", TextFrame)).plan([TextFrame, InputAudioFrame])


def test_some_of_the_types_is_enough() -> None:
    """A union is a choice: one of its types must come, and one of the yielded ones be taken."""
    (source("mic", TextFrame | InputAudioFrame) >> node("sink", TextFrame | OutputAudioFrame)).plan()


def test_a_base_type_in_an_annotation_may_carry_any_of_its_kinds() -> None:
    """`-> Frame` feeds whoever takes any frame; `frame: Frame` is fed by anyone."""
    (Feeder([]) >> node("tts", SayFrame, OutputAudioFrame) >> Collector()).plan()


def test_a_base_type_among_the_inputs_feeds_whoever_takes_a_kind_of_it() -> None:
    """An application that sends several kinds may name their common type."""
    Pipeline(node("sink", SayFrame)).plan([Frame])


def test_what_the_session_gives_needs_no_feeder_and_what_it_takes_no_taker() -> None:
    """StartFrame, EndFrame and ErrorFrame come from the session; InterruptFrame, EndFrame and ErrorFrame go to it."""
    greeter = node("greeter", StartFrame, SayFrame)
    watchdog = node("watchdog", TextFrame | ErrorFrame, InterruptFrame | EndFrame | ErrorFrame)
    (greeter >> node("sink", SayFrame | EndFrame) >> watchdog).link(source("mic", TextFrame), watchdog).plan()


# --------------------------------------------------------------------------------------------------- circles


@pytest.mark.parametrize("length", [1, 2, 4])
def test_a_circle_is_shown_from_node_to_node(length: int) -> None:
    """The error names every node on the way round, in the direction of the arrows."""
    mic = source("mic", TextFrame)
    ring = [node(f"n{i}", TextFrame, TextFrame) for i in range(length)]
    tail = node("tail", TextFrame)
    pipeline = mic >> ring[0]
    for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
        pipeline = pipeline.link(a, b)
    pipeline.link(ring[-1], tail)
    with pytest.raises(PipelineError, match="the pipeline runs in a circle") as caught:
        pipeline.plan()
    way = str(caught.value).partition("circle: ")[2].partition(";")[0].split(" -> ")
    assert way[0] == way[-1]
    assert set(way) == {n.name for n in ring}
    assert len(way) == length + 1
    assert all((a, b) in {(x.name, y.name) for x, y in pipeline.edges} for a, b in itertools.pairwise(way))
    assert "remove one of these links" in str(caught.value)


# --------------------------------------------------------------------------------------------------- formats


def conversions(pipeline: Pipeline, *inputs: type[Frame]) -> list[str]:
    return [
        f"{c.source.name if c.source else 'application'} > {c.target.name}: {', '.join(map(str, c.formats))} => {c.wanted}"
        for c in pipeline.plan(inputs).conversions
    ]


def test_equal_formats_cost_nothing() -> None:
    """No converter where what is made is among what is taken."""
    mic, vad = source("mic", InputAudioFrame, PHONE), node("vad", InputAudioFrame, formats=[WIDE, PHONE])
    assert conversions(mic >> vad) == []


def test_where_formats_do_not_meet_a_converter_is_inserted_and_shown() -> None:
    """To the receiver's best format; the picture has it on the arrow."""
    mic, vad = source("mic", InputAudioFrame, VOICE), node("vad", InputAudioFrame, formats=[WIDE, PHONE])
    assert conversions(mic >> vad) == ["mic > vad: 24000 Hz x1 => 16000 Hz x1"]
    assert "[24000 Hz x1 => 16000 Hz x1]" in str(mic >> vad)
    assert "1 converters" in str(mic >> vad)


def test_a_format_not_known_before_it_runs_is_converted() -> None:
    """A source that does not say is not trusted; whoever takes anything gets it as it is."""
    mic, vad, log = source("mic", InputAudioFrame), node("vad", InputAudioFrame, formats=[WIDE]), node("log", InputAudioFrame)
    assert conversions(mic >> [vad, log]) == ["mic > vad: None => 16000 Hz x1"]


def test_a_node_without_makes_hands_on_the_format_it_got() -> None:
    """Formats are followed through nodes that change nothing, after a conversion too."""
    mic, gain = source("mic", InputAudioFrame, PHONE), node("gain", InputAudioFrame, InputAudioFrame)
    fixed = node("fixed", InputAudioFrame, InputAudioFrame, formats=[WIDE])
    last = node("last", InputAudioFrame, formats=[WIDE])
    assert conversions(mic >> gain >> last) == ["gain > last: 8000 Hz x1 => 16000 Hz x1"]
    assert conversions(source("mic", InputAudioFrame, PHONE) >> fixed >> node("end", InputAudioFrame, formats=[WIDE])) == [
        "mic > fixed: 8000 Hz x1 => 16000 Hz x1"
    ]


def test_two_formats_on_one_edge_are_both_listed() -> None:
    """Two sources before a node that changes nothing."""
    a, b = source("a", InputAudioFrame, PHONE), source("b", InputAudioFrame, VOICE)
    gain, vad = node("gain", InputAudioFrame, InputAudioFrame), node("vad", InputAudioFrame, formats=[WIDE])
    [line] = conversions([a, b] >> gain >> vad)
    assert line.startswith("gain > vad: ")
    assert set(line.removeprefix("gain > vad: ").removesuffix(" => 16000 Hz x1").split(", ")) == {"8000 Hz x1", "24000 Hz x1"}


@pytest.mark.parametrize(
    ("makes", "takes", "lists"),
    [
        (AudioFormat(48000, 6), [WIDE, PHONE], "mic makes 48000 Hz x6 and vad takes 16000 Hz x1, 8000 Hz x1: only mono and stereo"),
        (WIDE, [AudioFormat(48000, 4)], "mic makes 16000 Hz x1 and vad takes 48000 Hz x4: only mono and stereo"),
        (None, [AudioFormat(48000, 4)], "mic makes a format not known before it runs and vad takes 48000 Hz x4: only mono and stereo"),
    ],
)
def test_more_than_two_channels_are_an_error_with_both_lists(makes: AudioFormat | None, takes: list[AudioFormat], lists: str) -> None:
    """The engine mixes mono and stereo only, and says what stands on each side."""
    with pytest.raises(PipelineError) as caught:
        (source("mic", InputAudioFrame, makes) >> node("vad", InputAudioFrame, formats=takes)).plan()
    assert str(caught.value) == f"{lists} can be converted; put a node between them that mixes the channels"


def test_equal_formats_of_many_channels_are_no_error() -> None:
    """Nothing needs mixing where both sides agree."""
    many = AudioFormat(48000, 6)
    assert conversions(source("mic", InputAudioFrame, many) >> node("array", InputAudioFrame, formats=[many])) == []


def test_sound_from_the_application_is_converted_where_it_enters() -> None:
    """Its format is not known before it runs either."""
    assert conversions(Pipeline(node("vad", InputAudioFrame, formats=[WIDE])), InputAudioFrame) == [
        "application > vad: None => 16000 Hz x1"
    ]

    async def main() -> None:
        vad = Collector()
        vad.takes = (WIDE,)
        async with Session(Pipeline(vad), inputs=[InputAudioFrame, TextFrame]) as session:
            session.send_nowait(InputAudioFrame(bytes(640), 16000))
            session.send_nowait(TextFrame("past it"))
            for _ in range(4):
                session.send_nowait(InputAudioFrame(bytes(320), 8000))
        sound = [f for f in vad.frames if isinstance(f, InputAudioFrame)]
        assert {f.sample_rate for f in sound} == {16000}
        assert sum(f.duration for f in sound) == pytest.approx(0.02 + 4 * 0.02, abs=1e-3)
        assert TextFrame("past it", epoch=0) in vad.frames

    run_virtual(main())


def test_converted_sound_arrives_once_where_two_ways_lead() -> None:
    """A converter on one edge must not leave the other edge open for the same sound."""

    async def main() -> None:
        mic = Feeder([InputAudioFrame(bytes(160), 8000)] * 10)
        mic.makes = PHONE
        sink = Collector()
        sink.takes = (WIDE,)
        await Session(mic >> [node("b", TextFrame, TextFrame), node("c", TextFrame, TextFrame)] >> sink).run()
        sound = [f for f in sink.frames if isinstance(f, InputAudioFrame)]
        assert {f.sample_rate for f in sound} == {16000}
        assert sum(len(f.pcm) for f in sound) == 10 * 320

    run_virtual(main())


def test_the_delay_held_back_is_that_of_the_slowest_way() -> None:
    """Along a way delays add up, between ways the longest counts."""
    a, b, c, d = source("a", TextFrame), node("b", TextFrame, TextFrame), node("c", TextFrame, TextFrame), node("d", TextFrame)
    a.holds_ms, b.holds_ms, c.holds_ms, d.holds_ms = 10, 5, 30, 2
    pipeline = a >> [b, c] >> d
    assert pipeline.plan().held_ms() == 42
    assert "42 ms held back by design" in str(pipeline)


# ------------------------------------------------------------------------------------------- into a session


def test_a_node_belongs_to_one_session() -> None:
    """A second session with the same node is refused, and says how to build for each call."""
    pipeline = source("mic", TextFrame) >> node("sink", TextFrame)
    Session(pipeline)
    with pytest.raises(
        SessionError, match=r"mic has already been in a session: a node belongs to one call; make the pipeline in a function"
    ):
        Session(pipeline)


def test_a_session_that_could_not_be_made_leaves_its_nodes_free() -> None:
    """A mistake in the graph can be corrected and the nodes used."""
    stt, log = node("stt", InputAudioFrame, TranscriptFrame), node("log", TranscriptFrame)
    with pytest.raises(PipelineError):
        Session(stt >> log)
    Session(source("mic", InputAudioFrame) >> stt >> log)


@pytest.mark.parametrize("inputs", [TextFrame, [str], ["TextFrame"], [TextFrame("")]])
def test_inputs_are_frame_types(inputs: Any) -> None:
    """Anything else is told what to write."""
    with pytest.raises(SessionError, match=r"inputs is a list of frame types, such as inputs=\[TextFrame\]"):
        Session(Pipeline(node("sink", TextFrame)), inputs=inputs)
