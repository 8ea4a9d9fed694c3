"""A stream of packets, put in order and on the clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voiceflow.transports.rtp import OPUS_RATE, Piece, RtpStream, opus_samples

BLOCK = 960
PAYLOAD = bytes([0b01111_0_00, 1, 2])  # hybrid, 20 ms, one frame
FLIGHT_S = 0.03


def put(stream: RtpStream, number: int, now: float, *, base: int = 0, stamp: int = 0, payload: bytes = PAYLOAD) -> None:
    stream.add((base + number) % 2**16, (stamp + number * BLOCK) % 2**32, payload + bytes([number % 256]), now)


def carried(
    order: list[tuple[float, int]], *, wait_s: float = 0.06, base: int = 0, stamp: int = 0
) -> tuple[RtpStream, list[tuple[float, Piece]]]:
    """What comes out of packets that arrive at these times, looked at with each and when one is due."""
    stream, out = RtpStream(wait_s), []
    for now, number in sorted(order):
        while (at := stream.due) is not None and at <= now:
            out += [(at, piece) for piece in stream.take(at)]
        put(stream, number, now, base=base, stamp=stamp)
        out += [(now, piece) for piece in stream.take(now)]
    while (at := stream.due) is not None:
        out += [(at, piece) for piece in stream.take(at)]
    return stream, out


def numbers(out: list[tuple[float, Piece]]) -> list[int]:
    return [piece.payload[-1] for _, piece in out]


class TestOrder:
    def test_what_is_next_comes_out_as_it_arrives(self) -> None:
        """In order and without loss nothing waits."""
        _, out = carried([(n * 0.02, n) for n in range(50)])
        assert [at for at, _ in out] == [n * 0.02 for n in range(50)]
        assert numbers(out) == list(range(50))

    def test_swapped_packets_are_put_right(self) -> None:
        """A packet that overtook another waits for it."""
        stream, out = carried([(0, 0), (0.02, 2), (0.03, 1), (0.06, 3)])
        assert numbers(out) == [0, 1, 2, 3]
        assert stream.lost == 0
        assert all(piece.missing == 0 for _, piece in out)

    def test_a_lost_packet_is_waited_for_no_longer_than_told(self) -> None:
        """Behind a hole sound goes on after ``wait_s``, and then nothing stays behind."""
        stream, out = carried([(n * 0.02, n) for n in range(100) if n != 50])
        assert stream.lost == 1
        late = {piece.payload[-1]: at - piece.payload[-1] * 0.02 for at, piece in out}
        assert late[51] == pytest.approx(0.06)
        assert max(late.values()) == pytest.approx(0.06)
        assert late[60] == late[99] == 0

    def test_the_same_packet_twice_is_heard_once(self) -> None:
        """Doubles are counted and dropped, in time or late."""
        stream, out = carried([(0, 0), (0.02, 1), (0.02, 1), (0.04, 2), (0.05, 0)])
        assert numbers(out) == [0, 1, 2]
        assert stream.late == 2

    def test_what_comes_after_it_was_given_up_is_dropped(self) -> None:
        """Sound never goes back."""
        stream, out = carried([(0, 0), (0.04, 2), (0.2, 1), (0.21, 3)])
        assert numbers(out) == [0, 2, 3]
        assert (stream.lost, stream.late) == (1, 1)

    def test_another_stream_in_its_place_begins_anew(self) -> None:
        """A jump no loss explains is a new beginning, without a hole."""
        stream = RtpStream()
        put(stream, 0, 0.0)
        stream.take(0.0)
        stream.add(40000, 7, PAYLOAD, 1.0)
        (piece,) = stream.take(1.0)
        assert stream.restarts == 1
        assert piece.missing == 0
        assert piece.pts == pytest.approx(1.0 - 0.02)

    def test_probes_without_sound_leave_no_hole(self) -> None:
        """An empty packet counts in the order and nowhere else."""
        stream = RtpStream()
        stream.add(0, 0, PAYLOAD, 0.0)
        stream.add(1, 0, b"", 0.01)
        stream.add(2, BLOCK, PAYLOAD, 0.02)
        assert [piece.missing for piece in stream.take(0.02)] == [0, 0]


class TestTime:
    @pytest.mark.parametrize("loss", [0.01, 0.05, 0.2])
    @pytest.mark.parametrize("jitter_s", [0.0, 0.05])
    def test_sound_after_loss_is_where_it_was_spoken(self, loss: float, jitter_s: float) -> None:
        """Every piece has the time at which it was spoken, and the holes before it make up for what is missing."""
        dice = random.Random(5)
        sent = [(n * 0.02 + FLIGHT_S + dice.random() * jitter_s, n) for n in range(250) if n == 0 or dice.random() >= loss]
        stream, out = carried(sent)
        length = sum(piece.missing + piece.samples for _, piece in out)
        assert length == (out[-1][1].payload[-1] + 1) * BLOCK
        assert stream.lost > 0
        settled = [(piece.pts - piece.payload[-1] * 0.02) for _, piece in out if piece.payload[-1] > 50]
        assert max(settled) - min(settled) < 0.003
        assert abs(min(settled) - (FLIGHT_S - 0.02)) < 0.005

    def test_a_long_silence_of_the_far_end_is_not_filled(self) -> None:
        """The clock jumps over what would be more than 2 s of silence."""
        _, out = carried([(0, 0), (5.0, 250)])
        assert out[1][1].missing == 0
        assert out[1][1].pts - out[0][1].pts == pytest.approx(5.0, abs=0.01)

    def test_a_clock_that_runs_slow_is_followed(self) -> None:
        """An hour at 100 ppm leaves no growing error."""
        stream, errors = RtpStream(), []
        for second in range(0, 3600, 1):
            now = second * 1.0001
            stream.add(second % 2**16, second * OPUS_RATE % 2**32, PAYLOAD, now)
            errors += [abs(piece.pts - (now - 0.02)) for piece in stream.take(now)]
        assert max(errors) < 0.005


class TestAnything:
    @given(
        st.lists(st.tuples(st.integers(0, 40), st.floats(0, 0.3)), min_size=1, max_size=60),
        st.integers(0, 2**16 - 1),
        st.integers(0, 2**32 - 1),
    )
    def test_order_and_length_hold_whatever_comes_when(self, arrivals: list[tuple[int, float]], base: int, stamp: int) -> None:
        """For any loss, doubling, order and wrap: sound goes forward, gapless with its holes, and nothing waits too long."""
        order = [(number * 0.02 + delay, number) for number, delay in arrivals]
        first = min(order)[1]
        stream, out = carried([(at, n) for at, n in order], base=base, stamp=stamp)
        came = numbers(out)
        assert came == sorted(set(came))
        assert came[0] == first
        assert sum(piece.missing + piece.samples for _, piece in out) == (came[-1] - first + 1) * BLOCK
        assert len(came) + stream.late == len(order)
        arrived = {number: at for at, number in sorted(order, reverse=True)}
        assert all(at - arrived[piece.payload[-1]] <= 0.06 + 1e-9 for at, piece in out)

    @given(st.lists(st.tuples(st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=6)), max_size=50))
    def test_nonsense_is_survived(self, packets: list[tuple[int, int, bytes]]) -> None:
        """No packet raises, and what is held is bounded in time."""
        stream = RtpStream()
        for i, (sequence, timestamp, payload) in enumerate(packets):
            stream.add(sequence, timestamp, payload, i * 0.01)
            for piece in stream.take(i * 0.01):
                assert piece.samples > 0
                assert piece.missing >= 0
        stream.take(100.0)
        assert stream.due is None


@pytest.mark.parametrize(
    ("toc", "more", "samples"),
    [
        (0b00000_000, b"", 480),  # SILK 10 ms
        (0b00011_000, b"", 2880),  # SILK 60 ms
        (0b01100_000, b"", 480),  # hybrid 10 ms
        (0b01101_001, b"", 1920),  # hybrid, two of 20 ms
        (0b10000_000, b"", 120),  # CELT 2.5 ms
        (0b11111_010, b"", 1920),  # CELT, two of 20 ms
        (0b11111_011, b"\x06", 5760),  # six of 20 ms
        (0b11111_011, b"\x07", 0),  # more than 120 ms: malformed
        (0b11111_011, b"", 0),
    ],
)
def test_the_length_of_a_packet_is_read_from_its_head(toc: int, more: bytes, samples: int) -> None:
    """As in RFC 6716, section 3.1."""
    assert opus_samples(bytes([toc]) + more) == samples


def test_a_packet_says_how_long_it_is_as_the_codec_finds() -> None:
    """Against libopus itself."""
    opus = pytest.importorskip("voiceflow.transports.opus", reason="needs PyAV: pip install 'voiceflow-framegraph[webrtc]'")
    encoder, decoder = opus.OpusEncoder(), opus.OpusDecoder()
    for _ in range(3):
        (payload,) = encoder.encode(bytes(1920))
        assert opus_samples(payload) == len(decoder.decode(payload)) // 2 == 960
