"""`voiceflow inspect`: what a processor is, read from its class and from its package."""

from __future__ import annotations

import json

import pytest

from tests.voiceflow.test_plugins import Install, install  # noqa: F401 - the fixture
from voiceflow import Processor, SayFrame
from voiceflow.inspection import kind_of, main, options_of, report
from voiceflow.plugins import Plugin, load, plugins

SERVICE = '''
from __future__ import annotations
from dataclasses import dataclass, field
from collections.abc import AsyncIterator
from voiceflow import OutputAudioFrame, Processor, SentenceFrame

@dataclass(frozen=True)
class Tuning:
    speed: float = 1.0

@dataclass(frozen=True)
class AcmeOptions:
    voice: str
    api_key: str | None = field(default="a-secret-of-acme", repr=False)
    tuning: Tuning = field(default_factory=Tuning)

class AcmeTTS(Processor):
    """Speaks.

    More.
    """

    key_variable = "ACME_API_KEY"

    def __init__(self, options: AcmeOptions | str, *, loud: bool = False) -> None: ...

    async def process(self, frame: SentenceFrame) -> AsyncIterator[OutputAudioFrame]:
        yield OutputAudioFrame(pcm=b"", sample_rate=8000)
'''


@pytest.fixture
def acme(install: Install) -> None:  # noqa: F811
    """A stranger's service."""
    install(
        "acme_voice",
        {"acme-tts": "acme_voice:AcmeTTS [grpc]"},
        SERVICE,
        requires=["no-such-grpc>=2; extra == 'grpc'", "numpy; extra == 'other'"],
    )


@pytest.mark.usefixtures("acme")
def test_a_strangers_service_is_described(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind, frames, options with defaults, the package it needs and its key's variable; what is secret is not shown."""
    monkeypatch.delenv("ACME_API_KEY", raising=False)
    assert main(["acme-tts"]) == 0
    out = capsys.readouterr().out
    for part in (
        "acme-tts: text to speech",
        "Speaks.",
        "takes    SentenceFrame",
        "yields   OutputAudioFrame",
        "no-such-grpc>=2 (extra grpc, not installed)",
        "ACME_API_KEY (not set)",
        "options.voice    str (must be given)",
        "options.api_key  str | None = ...",
        "options.tuning   Tuning = Tuning(speed=1.0)",
        "loud             bool = False",
    ):
        assert part in out
    assert "a-secret-of-acme" not in out
    assert "numpy" not in out
    monkeypatch.setenv("ACME_API_KEY", "the-key-of-the-caller")
    assert main(["acme-tts", "--json"]) == 0
    said = capsys.readouterr().out
    (entry,) = json.loads(said)
    assert (entry["kind"], entry["key"], entry["takes"]) == ("text to speech", "ACME_API_KEY (set)", "SentenceFrame")
    assert "the-key-of-the-caller" not in said


def test_what_cannot_be_imported_is_listed_with_what_to_install(
    install: Install,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The list goes on past it; asked for by name it is a failure."""
    install("acme_needy", {"acme-needy": "acme_needy:Shout [grpc]"}, "import no_such_vendor")
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(plugins())
    (line,) = [line for line in lines if line.startswith("acme-needy")]
    assert "'no_such_vendor', which is not installed: pip install 'acme_needy[grpc]'" in line
    assert main(["acme-needy"]) == 1
    assert "no_such_vendor" in capsys.readouterr().err


def test_an_unknown_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """One line on standard error, exit code 1."""
    assert main(["acme-none"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("voiceflow inspect: there is no processor 'acme-none'")


def test_each_of_voiceflows_own_is_told_apart() -> None:
    """Each part of an agent has the kind that one would call it."""
    kinds = {
        "silero-vad": "voice activity",
        "whisper": "speech to text",
        "pocketsphinx": "speech to text",
        "smart-turn": "end of turn",
        "turns": "turn taking",
        "llama": "language model",
        "openai": "language model",
        "piper": "text to speech",
        "wav-in": "source",
        "wav-out": "sink",
        "memory-in": "source",
        "memory-out": "sink",
        "sentences": "node",
        "tools": "node",
        "speculation": "node",
    }
    for name, kind in kinds.items():
        node = load(name)
        assert kind_of(node) == kind, name
        assert isinstance(options_of(node), list)


def test_each_of_voiceflows_own_can_be_described() -> None:
    """Nothing in their annotations stops the description, and each begins with a sentence about itself."""
    for plugin in plugins():
        if plugin.package == "voiceflow-framegraph":
            told = report(plugin)
            assert told.problem or (told.about.endswith(".") and told.takes), plugin.name
            assert "installed)" not in " ".join(told.needs) or told.problem


def test_a_class_without_options_has_none() -> None:
    """And is a node like any other."""

    class Plain(Processor):
        def process(self, frame: SayFrame) -> None: ...

    assert options_of(Plain) == []
    assert kind_of(Plain) == "node"
    assert report(Plugin("x", "no_such_module:X", "no-such-package", "1")).problem
