"""What is tested beside which vendor's own package, and ``docs/services.md``, which says so.

The one rule: a vendor's section is written when all of its tests have passed, by that run, with the versions that were there.
What is covered is what the tests say of themselves. ``VOICEFLOW_WRITE_SERVICES=1 pytest tests/conformance`` writes the file.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGE", "VENDORS", "Vendor", "claims_of", "has_passed", "recorded", "render", "versions_here"]

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "services.md"


@dataclass(frozen=True, slots=True)
class Vendor:
    """``modules``: test modules of this folder. ``clients``: packages, pinned if they live in an environment of their own."""

    name: str
    protocol: str
    ours: str
    clients: tuple[str, ...]
    modules: tuple[str, ...]
    note: str = ""


VENDORS = (
    Vendor(
        "ElevenLabs",
        "text to speech: WebSocket with contexts, WebSocket, streamed requests",
        "`processors.services.elevenlabs_tts`",
        ("elevenlabs",),
        ("test_elevenlabs",),
    ),
    Vendor(
        "Deepgram",
        "listen v1, Flux (listen v2), Aura (speak v1), each a WebSocket",
        "`processors.services.deepgram_stt`, `deepgram_flux`, `deepgram_tts`",
        ("deepgram-sdk",),
        ("test_deepgram",),
    ),
    Vendor(
        "PlayHT",
        "text to speech: `api/v4/websocket-auth`, then a WebSocket",
        "`processors.services.playht_tts`",
        ("pyht==0.1.14",),
        ("test_playht",),
        "The service is closed. This is for servers that still speak its protocol.",
    ),
    Vendor(
        "Anthropic",
        "Messages API, streamed",
        "`processors.services.anthropic_llm`",
        ("anthropic", "anthropic==0.125.0"),
        ("test_anthropic",),
    ),
    Vendor("OpenAI", "chat completions, streamed", "`processors.services.openai_llm`", ("openai",), ("test_openai",)),
    Vendor(
        "llama.cpp",
        "its server's chat completions and Messages API",
        "`processors.services.openai_llm`, `anthropic_llm`",
        ("xllamacpp",),
        ("test_openai_llamacpp",),
        "The package is the server itself, with a real model.",
    ),
    Vendor(
        "Twilio, Telnyx, Plivo, Vonage",
        "media streams, webhooks and their signatures, requests that hang up",
        "`transports.telephony`",
        ("twilio", "telnyx", "plivo", "plivo-stream-sdk", "vonage"),
        ("test_carriers",),
    ),
    Vendor(
        "Pipecat",
        "RTVI and protobuf frames over WebSocket; its serialisers for carriers",
        "`transports.rtvi`, `transports.wire_frames`, `transports.telephony`",
        ("pipecat-ai==1.14.0",),
        ("test_rtvi_pipecat", "test_carriers_pipecat"),
    ),
)

HEAD = """# Services, and what is known to work

Written by the tests, not by hand: `VOICEFLOW_WRITE_SERVICES=1 pytest tests/conformance`. For each service that is called there is a server
on this machine that speaks its protocol as the vendor describes it and refuses what the vendor would refuse. The vendor's own package talks
to that server, which shows that the server is right; then our node talks to the same one. Where others call us, their packages stand at the
other end. No vendor was called: there are no keys here.

"""


def has_passed(vendor: Vendor, outcomes: Mapping[tuple[str, str], Set[str]]) -> bool | None:
    """Whether all tests of a vendor have; None: none of them has run. ``outcomes``: by module and name."""
    results = [outcomes.get((module, name), frozenset[str]()) for module, name, _ in claims_of(vendor)]
    return all(result == {"passed"} for result in results) if any(results) else None


def versions_here(vendor: Vendor) -> str:
    """The packages of a vendor, as they are installed."""
    clients = [client if "==" in client else f"{client}=={importlib.metadata.version(client)}" for client in vendor.clients]
    return ", ".join(client.replace("==", " ") for client in clients)


def claims_of(vendor: Vendor) -> Iterator[tuple[str, str, str]]:
    """Module, name and description of each test."""
    for module in vendor.modules:
        for node in ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield module, node.name, " ".join((ast.get_docstring(node) or "").split())


def render(versions: Mapping[str, str]) -> str:
    """The page. ``versions``: of the vendors whose tests have passed, by name."""
    passed = [vendor for vendor in VENDORS if vendor.name in versions]
    rows = ["| vendor | protocol | ours | passed with |", "|---|---|---|---|"]
    rows += [f"| {vendor.name} | {vendor.protocol} | {vendor.ours} | {versions[vendor.name]} |" for vendor in passed]
    return HEAD + "\n".join(rows) + "\n" + "".join(_section(vendor) for vendor in passed)


def _section(vendor: Vendor) -> str:
    lines = [f"\n## {vendor.name}\n", *([f"{vendor.note}\n"] if vendor.note else [])]
    for _, name, said in claims_of(vendor):
        title, claim = name.removeprefix("test_").replace("_", " "), re.sub(r"^B[0-9]+: ", "", said)
        lines.append(f"- {title[:1].upper()}{title[1:]}. {claim[:1].upper()}{claim[1:]}".rstrip())
    return "\n".join(lines) + "\n"


def recorded(page: str) -> dict[str, str]:
    """The versions that a page names."""
    rows: Sequence[Sequence[str]] = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")
    ]
    return {row[0]: row[3] for row in rows[1:]}
