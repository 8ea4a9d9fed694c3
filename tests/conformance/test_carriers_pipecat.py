"""Pipecat's serialisers and our wires beside each other, on the same carrier: both hear the same, and both send the same."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.environments import BUILD_S, python_of
from tests.transports.telephony.carriers import DIALECTS, Dialect, chunks
from voiceflow import InputAudioFrame
from voiceflow.phone import DigitReceived
from voiceflow.transports.telephony.carrier import Carrier
from voiceflow.transports.telephony.exotel import ExotelWire
from voiceflow.transports.telephony.plivo import PlivoWire
from voiceflow.transports.telephony.telnyx import TelnyxSound, TelnyxWire
from voiceflow.transports.telephony.twilio import TwilioWire
from voiceflow.transports.telephony.vonage import VonageWire

pytestmark = pytest.mark.timeout(BUILD_S + 60)

LINES: list[tuple[str, Carrier, dict[str, Any]]] = [
    ("twilio", TwilioWire(), {}),
    ("telnyx", TelnyxWire(), {}),
    ("telnyx", TelnyxWire(TelnyxSound("PCMA")), {"encoding": "alaw"}),
    ("plivo", PlivoWire(), {}),
    ("vonage", VonageWire(), {"rate": 16000}),
    ("exotel", ExotelWire(), {}),
]


@pytest.fixture(scope="module")
def pipecat() -> Path:
    return python_of("pipecat", ["pipecat-ai==1.14.0"])


def ask(python: Path, dialect: Dialect, from_carrier: list[str | bytes], sounds: list[bytes]) -> dict[str, Any]:
    """What Pipecat makes of it."""
    asked = {
        "carrier": dialect.name,
        "rate": dialect.rate,
        "codec": "PCMA" if dialect.encoding == "alaw" else "PCMU",
        "from_carrier": [{"b64": base64.b64encode(m).decode()} if isinstance(m, bytes) else m for m in from_carrier],
        "sounds": [base64.b64encode(pcm).decode() for pcm in sounds],
    }
    peer = Path(__file__).with_name("pipecat_peer.py")
    done = subprocess.run([python, peer], input=json.dumps(asked), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def speech(rate: int, seconds: float = 1.0) -> bytes:
    """A tone that swells and fades, as loud as speech."""
    t = np.arange(round(rate * seconds)) / rate
    return (9000 * np.sin(2 * np.pi * 220 * t) * np.sin(np.pi * t / seconds)).astype("<i2").tobytes()


@pytest.mark.parametrize(("name", "wire", "form"), LINES, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(LINES)])
def test_pipecat_and_we_understand_each_other(name: str, wire: Carrier, form: dict[str, Any], pipecat: Path) -> None:
    """The carrier's sound and keys come to the same; what we send reads as Pipecat's; each hears the other to a step of the law."""
    dialect = DIALECTS[name](**form)
    block_s = wire.block_ms / 1000
    pieces = chunks(speech(dialect.rate), dialect.rate, block_s)
    incoming = [dialect.media(n, piece) for n, piece in enumerate(pieces, 1)]
    keys = [dialect.key("7"), dialect.key("#")]
    for message in dialect.begin():
        wire.receive(message)
    ours_out = [message for piece in pieces for message in wire.audio(piece)]
    # Where a carrier gives sound back under the name under which it takes it, one peer's messages are the other's.
    loop = ours_out if name != "plivo" else [_as_heard(m) for m in ours_out]
    answer = ask(pipecat, dialect, [*dialect.begin(), *incoming, *keys, *loop], pieces)

    ours_in = [item for message in [*incoming, *keys] for item in wire.receive(message)]
    heard = b"".join(item.pcm for item in ours_in if isinstance(item, InputAudioFrame))
    theirs = [base64.b64decode(item["pcm"]) for item in answer["understood"] if "pcm" in item]
    assert b"".join(theirs[: len(incoming)]) == heard
    assert [item["key"] for item in answer["understood"] if "key" in item] == ["7", "#"]
    assert [item for item in ours_in if isinstance(item, DigitReceived)] == [DigitReceived("7"), DigitReceived("#")]
    assert b"".join(theirs[len(incoming) :]) == dialect.decode(dialect.encode(b"".join(pieces)))

    theirs_out = [base64.b64decode(m["b64"]) if isinstance(m, dict) else m for m in answer["sent"][:-1]]
    assert [_without_sound(m) for m in theirs_out] == [_without_sound(m) for m in ours_out]
    told = [item for m in theirs_out for item in _hear(wire, m if name != "plivo" else _as_heard(m))]
    close(b"".join(item.pcm for item in told), b"".join(pieces))
    close(b"".join(theirs[len(incoming) :]), b"".join(pieces))
    [ours_clear] = wire.clear()
    assert json.loads(answer["sent"][-1]) == json.loads(ours_clear)


def _hear(wire: Carrier, message: str | bytes) -> list[InputAudioFrame]:
    return [item for item in wire.receive(message) if isinstance(item, InputAudioFrame)]


def _as_heard(message: str | bytes) -> str:
    """Plivo's ``playAudio`` as it would come back in ``media``."""
    told = json.loads(message)
    return json.dumps({"event": "media", "media": {"track": "inbound", "payload": told["media"]["payload"]}})


def _without_sound(message: str | bytes) -> Any:
    if isinstance(message, bytes):
        return len(message)
    told = json.loads(message)
    told["media"]["payload"] = len(told["media"]["payload"])
    return told


def close(one: bytes, other: bytes) -> None:
    """Equal but for what companding to 8 bits takes."""
    a, b = (np.frombuffer(pcm, "<i2").astype(int) for pcm in (one, other))
    assert len(a) == len(b)
    assert np.all(np.abs(a - b) <= np.maximum(16, np.abs(b) / 16))
