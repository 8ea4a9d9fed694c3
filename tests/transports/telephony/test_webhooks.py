"""Webhooks: what a carrier signed is answered, everything else is refused; answers are escaped; secrets stay hidden."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json
import re
from urllib.parse import parse_qs, urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("jwt", reason="pip install 'PyJWT[crypto]'")

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from voiceflow.transports.telephony.exotel_account import ExotelAccount
from voiceflow.transports.telephony.plivo_account import PlivoAccount
from voiceflow.transports.telephony.telnyx import TelnyxSound
from voiceflow.transports.telephony.telnyx_account import TelnyxAccount
from voiceflow.transports.telephony.twilio_account import TwilioAccount
from voiceflow.transports.telephony.vonage_account import VonageAccount
from voiceflow.transports.telephony.webhook import Answer, Incoming, RefusedError, Request, document, respond

from . import requests_of_carriers as carriers
from .requests_of_carriers import ACCOUNTS, FORM, NOW, PUBLIC_KEY, SECRET, TOKEN

URL = "https://agent.example/telephony/x"
STREAM = "wss://agent.example/telephony/x/stream/ticket-_1"
PEM = (
    rsa.generate_private_key(65537, 2048)
    .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    .decode()
)
each = pytest.mark.parametrize("name", ACCOUNTS)


def changed(request: Request, **changes) -> Request:
    return dataclasses.replace(request, **changes)


@each
def test_a_signed_webhook_is_answered_with_the_stream(name) -> None:
    """The answer names the socket's URL, and is in the carrier's language."""
    answer = respond(ACCOUNTS[name], carriers.incoming(name, URL), STREAM)
    if name in ("vonage", "exotel"):
        assert answer.content_type == "application/json"
        told = json.loads(answer.body)
        uri = told[0]["endpoint"][0]["uri"] if name == "vonage" else told["url"]
    else:
        assert answer.content_type == "text/xml"
        stream = next(ElementTree.fromstring(answer.body).iter("Stream"))
        uri = stream.get("url") or stream.text or ""
    assert uri.partition("?")[0] == STREAM


@each
def test_the_call_is_read_from_the_webhook(name) -> None:
    """Its number, who calls and who is called."""
    assert ACCOUNTS[name].incoming(carriers.incoming(name, URL)) == Incoming("CA1", "15551234567", "15557654321")


@each
def test_anything_changed_after_signing_is_refused(name) -> None:
    """The URL, a parameter, the body, the signature itself; or none of them there at all. The reason shows no secret."""
    good = carriers.incoming(name, URL)
    bad = [
        changed(good, headers={}),
        *(changed(good, headers={**good.headers, n: ""}) for n in good.headers if n.lower() != "content-type"),
    ]
    bad += [changed(good, headers={**good.headers, n: v[:-2] + ("AA" if v[-2:] != "AA" else "BB")}) for n, v in good.headers.items()
            if ("signature" in n.lower() and "nonce" not in n.lower()) or n == "Authorization"]  # fmt: skip
    if name != "exotel":
        bad += [changed(good, body=good.body + b"&x=1"), changed(good, body=b"{}"), changed(good, body=good.body.replace(b"CA1", b"CA2"))]
    if name in ("twilio", "plivo"):
        bad.append(changed(good, url=URL + "?x=1"))
        bad.append(changed(good, url=URL.replace("agent", "other")))
    for request in bad:
        with pytest.raises(RefusedError) as refused:
            respond(ACCOUNTS[name], request, STREAM)
        assert refused.value.status == 403
        assert TOKEN not in str(refused.value)
        assert SECRET not in str(refused.value)


@each
def test_a_header_that_is_no_text_is_refused(name) -> None:
    """Its bytes come as lone surrogates."""
    good = carriers.incoming(name, URL)
    for header in good.headers.keys() - {"Content-Type", "content-type"}:
        for odd in ("\udcff", f"{good.headers[header]}\udcff"):
            with pytest.raises(RefusedError) as refused:
                respond(ACCOUNTS[name], changed(good, headers={**good.headers, header: odd}), STREAM)
            assert refused.value.status == 403


@each
def test_a_signature_of_another_key_is_refused(name) -> None:
    """However well formed."""
    other = {
        "twilio": TwilioAccount("x" * 32),
        "telnyx": TelnyxAccount("A" * 42 + "A="),
        "plivo": PlivoAccount("x" * 32),
        "vonage": VonageAccount("x" * 40),
        "exotel": ExotelAccount("me", "x"),
    }[name]
    with pytest.raises(RefusedError):
        respond(other, carriers.incoming(name, URL), STREAM)


@pytest.mark.parametrize("name", ["telnyx", "vonage"])
@pytest.mark.parametrize("off_s", [-301, 302])
def test_an_old_signature_is_refused(name, off_s) -> None:
    """More than five minutes off, either way."""
    with pytest.raises(RefusedError, match="too old"):
        respond(ACCOUNTS[name], carriers.incoming(name, URL, now=NOW + off_s), STREAM)
    respond(ACCOUNTS[name], carriers.incoming(name, URL, now=NOW + off_s / 2), STREAM)


def test_twilios_published_vector() -> None:
    """Its documentation's example, with SHA-1; and the same with SHA-256 and a shared key."""
    values = {"CallSid": "CA1234567890ABCDE", "Caller": "+14158675309", "Digits": "1234", "From": "+14158675309", "To": "+18005551212"}
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    headers = {"Content-Type": FORM, "x-twilio-signature": "RSOYDt4T1cUTdK1PDd93/VVr8B8="}
    request = Request("POST", url, headers, urlencode(values).encode(), NOW)
    TwilioAccount("12345").check(request)
    settings_header = "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256"
    newer = headers | {
        "x-twilio-signature": "033hgUJA9M/hXIZsYjwkerEP/DBm35nEri5FhCYjA5s=",
        "x-twilio-webhooks-signature-settings": settings_header,
    }
    account = TwilioAccount("not this one", shared_keys={"webhooks_sharedkey_1": "12345"})
    account.check(changed(request, headers=newer))
    for unknown, why in (("key=other,algorithm=HMAC_SHA256", "not among"), ("key=webhooks_sharedkey_1,algorithm=MD5", "not known")):
        with pytest.raises(RefusedError, match=why):
            account.check(changed(request, headers=newer | {"x-twilio-webhooks-signature-settings": unknown}))


@pytest.mark.parametrize("signed", ["https://agent.example/x?a=1", "https://agent.example:443/x?a=1"])
@pytest.mark.parametrize("seen", ["https://agent.example/x?a=1", "https://agent.example:443/x?a=1"])
def test_twilio_signs_with_or_without_the_default_port(signed, seen) -> None:
    """Both are taken for either; another host is not."""
    request = carriers.twilio(signed, {"CallSid": "CA1"})
    ACCOUNTS["twilio"].check(changed(request, url=seen))
    with pytest.raises(RefusedError):
        ACCOUNTS["twilio"].check(changed(request, url=seen.replace("agent", "other")))


def test_a_json_body_of_twilio_is_covered_by_its_hash() -> None:
    """``bodySHA256`` stands in the signed URL; a body without one, or another body, is refused."""
    body = b'{"CallSid": "CA1"}'
    url = f"{URL}?bodySHA256={hashlib.sha256(body).hexdigest()}"
    signed = changed(carriers.twilio(url, {}), body=body)
    headers = {**signed.headers, "Content-Type": "application/json"}
    ACCOUNTS["twilio"].check(changed(signed, headers=headers))
    uncovered = carriers.twilio(URL, {})
    uncovered = changed(uncovered, headers={**uncovered.headers, "Content-Type": "application/json"}, body=body)
    for request in (changed(signed, headers=headers, body=body + b" "), uncovered):
        with pytest.raises(RefusedError, match="bodySHA256"):
            ACCOUNTS["twilio"].check(request)


def test_twilio_signs_each_value_of_a_parameter_once() -> None:
    """Repeated names in order, the same value only once."""
    signature = base64.b64encode(hmac.new(TOKEN.encode(), f"{URL}CallSidCA1a1a2b".encode(), hashlib.sha1).digest()).decode()
    headers = {"content-type": FORM, "x-twilio-signature": signature}
    ACCOUNTS["twilio"].check(Request("POST", URL, headers, b"a=2&CallSid=CA1&a=1&b=&a=2", NOW))


def test_vonage_refuses_tokens_that_are_not_its_own() -> None:
    """Unsigned ones, ones without a time or a hash of the body, and those of another application."""
    good = carriers.incoming("vonage", URL)
    for claims in ({"iat": None}, {"payload_hash": None}, {"payload_hash": 7}, {"iat": "x"}):
        with pytest.raises(RefusedError):
            ACCOUNTS["vonage"].check(carriers.vonage(URL, {"uuid": "1"}, **claims))
    for token in ("eyJhbGciOiJub25lIn0.eyJpYXQiOjE3OTAwMDAwMDB9.", "", "a.b.c"):
        with pytest.raises(RefusedError):
            ACCOUNTS["vonage"].check(changed(good, headers={**good.headers, "Authorization": f"Bearer {token}"}))
    longer = jwt.encode({"iat": int(NOW), "payload_hash": hashlib.sha256(good.body).hexdigest()}, SECRET * 2, algorithm="HS512")
    with pytest.raises(RefusedError):
        VonageAccount(SECRET * 2).check(changed(good, headers={**good.headers, "Authorization": f"Bearer {longer}"}))
    ours = VonageAccount(SECRET, "app-1", PEM)
    ours.check(carriers.vonage(URL, {"uuid": "1"}, application_id="app-1"))
    with pytest.raises(RefusedError, match="another application"):
        ours.check(carriers.vonage(URL, {"uuid": "1"}, application_id="app-2"))


def event(kind: str, **payload: str) -> Request:
    """An event of Call Control."""
    told = {"call_control_id": "v3:a/b", "from": "+15551234567", "to": "+15557654321", "direction": "incoming"} | payload
    return carriers.telnyx(URL, json.dumps({"data": {"event_type": kind, "payload": told}}).encode(), "application/json")


def test_call_control_is_answered_by_a_command() -> None:
    """An incoming call's event: nothing in the response, and an ``answer`` with the stream for the REST interface. Others: nothing."""
    account = TelnyxAccount(PUBLIC_KEY, "KEYsecret", client_state="vip")
    answer = respond(account, event("call.initiated"), STREAM)
    assert answer.body == ""
    assert answer.then is not None
    assert (answer.then.method, answer.then.url) == ("POST", "https://api.telnyx.com/v2/calls/v3%3Aa%2Fb/actions/answer")
    assert json.loads(answer.then.body) == {
        "stream_url": STREAM, "stream_track": "inbound_track", "stream_codec": "PCMU", "stream_bidirectional_mode": "rtp",
        "stream_bidirectional_codec": "PCMU", "client_state": "dmlw",
    }  # fmt: skip
    for other in (event("call.hangup"), event("call.answered"), event("call.initiated", direction="outgoing")):
        assert respond(account, other, STREAM) == Answer()
    for broken in (b"[]", b"{", b"[" * 100_000, b'{"data":{"event_type":"call.initiated","payload":{"direction":"incoming"}}}'):
        with pytest.raises(RefusedError) as refused:
            respond(account, carriers.telnyx(URL, broken, "application/json"), STREAM)
        assert refused.value.status == 400
    with pytest.raises(RefusedError, match="api_key"):
        respond(TelnyxAccount(PUBLIC_KEY), event("call.initiated"), STREAM)


def test_call_control_streams_another_rate_once_the_call_is_on() -> None:
    """``answer`` takes no rate: the call is answered first, and the stream started by the event of that."""
    account = TelnyxAccount(PUBLIC_KEY, "KEYsecret", TelnyxSound("L16", 16000))
    first, then = (respond(account, event(kind), STREAM).then for kind in ("call.initiated", "call.answered"))
    assert first is not None
    assert then is not None
    assert (first.url.rpartition("/")[2], first.body) == ("answer", b"{}")
    assert then.url.rpartition("/")[2] == "streaming_start"
    told = json.loads(then.body)
    assert (told["stream_url"], told["stream_bidirectional_codec"], told["stream_bidirectional_sampling_rate"]) == (STREAM, "L16", 16000)
    assert told["stream_codec"] == "L16"


@each
def test_a_webhook_without_a_call_is_refused(name) -> None:
    """Signed, but of no call."""
    if name == "exotel":
        return  # its socket says whose call it is
    empty = {
        "twilio": lambda: carriers.twilio(URL, {"a": "1"}),
        "telnyx": lambda: carriers.telnyx(URL, b"a=1"),
        "plivo": lambda: carriers.plivo(URL, {"a": "1"}),
        "vonage": lambda: carriers.vonage(URL, {"a": "1"}),
    }[name]()
    with pytest.raises(RefusedError) as refused:
        respond(ACCOUNTS[name], empty, STREAM)
    assert refused.value.status == 400


@pytest.mark.parametrize("name", ["twilio", "plivo"])
def test_a_request_with_too_many_parameters_is_refused(name) -> None:
    """Before anything is computed over them."""
    with pytest.raises(RefusedError, match="200 parameters") as refused:
        respond(ACCOUNTS[name], Request("POST", URL, {"content-type": FORM}, b"a=1&" * 300, NOW), STREAM)
    assert refused.value.status == 400


def test_a_document_escapes_texts_and_attributes_and_leaves_out_what_xml_cannot_hold() -> None:
    """A null, a lone surrogate, a control character: gone; markup: text."""
    root = ElementTree.Element("A", b="<\0&\x1b\ud800")
    root.text = "</A>\uffff\x08"
    read = ElementTree.fromstring(document(root))
    assert (read.get("b"), read.text, len(read)) == ("<&", "</A>", 0)


TEXT = st.text(st.characters(codec="utf-8"), max_size=30)


@settings(max_examples=100, deadline=None)
@given(caller=TEXT, called=TEXT, value=TEXT)
def test_whatever_a_caller_is_called_the_answer_says_nothing_else(caller, called, value) -> None:
    """Quotes, brackets, control characters: every answer parses, and holds one stream with the right URL."""
    call = Incoming("CA1", caller, called)
    for account in (TwilioAccount(TOKEN, parameters={"x": value}), ACCOUNTS["telnyx"], ACCOUNTS["plivo"]):
        root = ElementTree.fromstring(account.answer(call, STREAM).body)
        assert [e.tag for e in root.iter()].count("Stream") == 1
        assert len(list(root)) == 1
    twilio = ElementTree.fromstring(TwilioAccount(TOKEN, parameters={"x": value}).answer(call, STREAM).body)
    told = {e.get("name"): e.get("value") for e in twilio.iter("Parameter")}
    assert told.keys() == {"x", "caller", "called"}
    kept = re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", value)
    assert told["x"] == kept
    [action] = json.loads(ACCOUNTS["vonage"].answer(call, STREAM).body)
    assert action["endpoint"][0]["headers"]["caller"] == caller[:40]
    assert re.fullmatch(r"[A-Za-z0-9=,]*", _plivo_headers(call))


def _plivo_headers(call: Incoming) -> str:
    return next(ElementTree.fromstring(ACCOUNTS["plivo"].answer(call, STREAM).body).iter("Stream")).get("extraHeaders") or ""


def test_parameters_and_sounds_are_asked_for() -> None:
    """What an account was given stands in its answers."""
    call = Incoming("CA1", "+15551234567", "sip:bob@example.com")
    plivo = next(ElementTree.fromstring(
        PlivoAccount(TOKEN, content_type="audio/x-l16;rate=16000", parameters={"plan": "gold"}).answer(call, STREAM).body).iter("Stream"))  # fmt: skip
    assert (plivo.get("contentType"), plivo.get("bidirectional"), plivo.get("keepCallAlive")) == ("audio/x-l16;rate=16000", "true", "true")
    assert plivo.get("extraHeaders") == "plan=gold,caller=15551234567,called=sipbobexamplecom"
    telnyx = next(ElementTree.fromstring(TelnyxAccount(PUBLIC_KEY, sound=TelnyxSound("PCMA")).answer(call, STREAM).body).iter("Stream"))
    assert (telnyx.get("bidirectionalMode"), telnyx.get("bidirectionalCodec"), telnyx.get("codec")) == ("rtp", "PCMA", "PCMU")
    exotel = json.loads(ExotelAccount("me", "p", 16000, {"plan": "a&b"}).answer(call, STREAM).body)["url"]
    assert parse_qs(urlsplit(exotel).query) == {"sample-rate": ["16000"], "plan": ["a&b"]}
    vonage = json.loads(VonageAccount(SECRET, sample_rate=24000, parameters={"plan": "gold"}).answer(call, STREAM).body)
    assert vonage[0]["endpoint"][0]["content-type"] == "audio/l16;rate=24000"
    assert vonage[0]["endpoint"][0]["headers"] == {"plan": "gold", "call": "CA1", "caller": "+15551234567", "called": "sip:bob@example.com"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: TwilioAccount(""),
        lambda: PlivoAccount(""),
        lambda: PlivoAccount(TOKEN, content_type="audio/x-l16;rate=48000"),
        lambda: PlivoAccount(TOKEN, parameters={"a": "b c"}),
        lambda: PlivoAccount(TOKEN, parameters={"a": "b" * 500}),
        lambda: TelnyxAccount("not a key"),
        lambda: TelnyxAccount("AAAA"),
        lambda: VonageAccount(""),
        lambda: VonageAccount(SECRET, sample_rate=44100),
        lambda: VonageAccount(SECRET, application="only one of the two"),
        lambda: VonageAccount(SECRET, "app-1", "a key"),
        lambda: VonageAccount(SECRET, "app-1", PEM[:400]),
        lambda: VonageAccount(SECRET, parameters={"a": "b" * 500}),
        lambda: ExotelAccount("", "p"),
        lambda: ExotelAccount("me", ""),
        lambda: ExotelAccount("me", "p", sample_rate=44100),
        lambda: ExotelAccount("me", "p", parameters={"a": "b" * 256}),
    ],
)
def test_an_account_that_cannot_work_is_refused_when_it_is_made(make) -> None:
    """The text names the account and what is wrong."""
    with pytest.raises(ValueError, match=r"^(Twilio|Telnyx|Plivo|Vonage|Exotel)Account: "):
        make()


@each
def test_nothing_shown_holds_a_secret(name) -> None:
    """Accounts, requests, answers and REST requests hide keys, tokens and bodies in their repr."""
    accounts = {
        **ACCOUNTS,
        "twilio": TwilioAccount(TOKEN, "AC1", shared_keys={"k": "the shared secret"}),
        "plivo": PlivoAccount(TOKEN, "MA1"),
    }
    account = accounts[name]
    request = carriers.incoming(name, URL)
    shown = f"{account!r} {request!r} {account.answer(Incoming('CA1'), STREAM)!r} {account.hang_up('CA1', NOW)!r}"
    for secret in (TOKEN, SECRET, "KEYsecret", "a password", "the shared secret", "Basic ", "Bearer ", "ticket-_1"):
        assert secret not in shown
