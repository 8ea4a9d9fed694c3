"""The webhook of an incoming call: a request comes, an answer or a refusal goes, nothing else happens. Pure.

The one rule: nothing in a request is believed before its signature was checked, and a refusal tells its sender nothing.

Each carrier's part is an ``Account``; see the ``*_account`` modules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

from voiceflow.transports.telephony.carrier import Carrier

__all__ = ["Account", "Answer", "Incoming", "RefusedError", "Request", "RestRequest", "document", "respond"]

FIELDS = 200
"""A request with more parameters is refused."""

AGE_S = 300
"""How old, or how far in the future, a signature with a time may be."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class RefusedError(Exception):
    """The request is not answered. The text is for the log of this side; it holds nothing secret."""

    def __init__(self, text: str, status: int = 403) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Request:
    """An HTTP request as the carrier sent it. ``url``: as the carrier knows it, with the query; ``now``: Unix time."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    now: float

    def header(self, name: str) -> str:
        """Of this name in any case; "" if there is none."""
        return self._headers.get(name.lower(), "")

    @cached_property
    def _headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    @property
    def content_type(self) -> str:
        """Without its parameters."""
        return self.header("content-type").partition(";")[0].strip().lower()

    @cached_property
    def query(self) -> list[tuple[str, str]]:
        """The parameters in the URL. Raises RefusedError for too many."""
        return _pairs(urlsplit(self.url).query)

    @cached_property
    def form(self) -> list[tuple[str, str]]:
        """The parameters in the body, if it is a form. Raises RefusedError for too many, or what is no form."""
        if self.content_type != "application/x-www-form-urlencoded":
            return []
        try:
            return _pairs(self.body.decode("ascii"))
        except UnicodeDecodeError:
            raise RefusedError("the form in the body is not URL-encoded", 400) from None

    def value(self, *names: str) -> str:
        """The first of these parameters that is in the form or the query, or ""."""
        found = dict(self.query) | dict(self.form)
        return next((found[name] for name in names if name in found), "")


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS)
    except ValueError:
        raise RefusedError(f"more than {FIELDS} parameters", 400) from None


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a webhook says of the call."""

    call: str
    caller: str = ""
    called: str = ""
    by_event: str = ""
    """The event that told of it, which is answered by a command to the REST interface and not in the response."""


@dataclass(frozen=True, slots=True)
class RestRequest:
    """One request to the carrier's REST interface.

    ``over``: (status, text in the body) of refusals that mean that the call has ended already.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    over: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the carrier. ``then``: what is to be asked of its REST interface, where that is how a call is taken."""

    body: str = field(default="", repr=False)
    content_type: str = "text/plain"
    then: RestRequest | None = None


class Account(Protocol):
    """What is known of us at one carrier, and its ways."""

    name: str

    def check(self, request: Request) -> None:
        """Raises RefusedError unless the carrier itself sent this."""

    def incoming(self, request: Request) -> Incoming | None:
        """The call that the request is about, or None if it is about something else. Raises RefusedError."""

    def answer(self, incoming: Incoming, stream_url: str) -> Answer:
        """Connects the call to the websocket at that URL."""

    def decline(self, incoming: Incoming) -> Answer:
        """Tells the caller that all lines are busy. Raises RefusedError where there is no way to say so."""

    def wire(self) -> Carrier:
        """For the socket of one call."""

    def hang_up(self, call: str, now: float) -> RestRequest | None:
        """What ends the call. None: it ends with the socket. ``now``: Unix time."""


def respond(account: Account, request: Request, stream_url: str | None) -> Answer:
    """The answer that connects an incoming call to ``stream_url``; None: to nobody, all lines are busy. Raises RefusedError."""
    account.check(request)
    incoming = account.incoming(request)
    if incoming is None:
        return Answer()
    return account.decline(incoming) if stream_url is None else account.answer(incoming, stream_url)


def document(root: ElementTree.Element) -> str:
    """An XML document, everything in it escaped; characters that XML cannot hold are left out."""
    for element in root.iter():
        element.text = element.text and _NOT_XML.sub("", element.text)
        for name, value in element.attrib.items():
            element.set(name, _NOT_XML.sub("", value))
    return '<?xml version="1.0" encoding="UTF-8"?>' + ElementTree.tostring(root, encoding="unicode")
