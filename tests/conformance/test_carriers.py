"""The carriers' own packages beside ours: signatures, answers, requests that hang up, and the messages of a stream."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("jwt", reason="pip install 'PyJWT[crypto]'")
pytest.importorskip("twilio", reason="pip install twilio")
pytest.importorskip("telnyx", reason="pip install telnyx")
pytest.importorskip("nacl", reason="pip install pynacl")
pytest.importorskip("plivo", reason="pip install plivo")
pytest.importorskip("plivo_stream", reason="pip install plivo-stream-sdk")
pytest.importorskip("vonage", reason="pip install vonage")

import jwt
import plivo
import plivo.rest.client as plivo_client
import plivo.utils.signature_v3 as plivo_signature
import plivo_stream.types as plivo_stream
import requests
import telnyx
import telnyx.lib.webhook_verification as telnyx_webhooks
import vonage
import vonage_jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from nacl.signing import SigningKey
from plivo import plivoxml as plivo_xml
from twilio.request_validator import RequestValidator
from twilio.rest import Client as TwilioClient
from twilio.twiml.voice_response import Connect as TwilioConnect
from twilio.twiml.voice_response import VoiceResponse
from vonage_voice.models import Connect as VonageConnect
from vonage_voice.models import WebsocketEndpoint

from tests.transports.telephony import requests_of_carriers as carriers
from tests.transports.telephony.carriers import Plivo, ramp
from tests.transports.telephony.requests_of_carriers import ACCOUNTS, FORM, NOW, PUBLIC_KEY, SECRET, SIGNING_KEY, TOKEN
from tests.transports.telephony.rest_server import Asked, RestServer
from voiceflow.transports.telephony.plivo import PlivoWire
from voiceflow.transports.telephony.plivo_account import PlivoAccount
from voiceflow.transports.telephony.rest import Rest
from voiceflow.transports.telephony.telnyx import TelnyxSound
from voiceflow.transports.telephony.telnyx_account import TelnyxAccount
from voiceflow.transports.telephony.twilio_account import TwilioAccount
from voiceflow.transports.telephony.vonage_account import VonageAccount
from voiceflow.transports.telephony.webhook import Account, Incoming, RefusedError, Request

STREAM = "wss://agent.example/telephony/x/stream/ticket"
CALL = Incoming("CA1", "+15551234567", 'a "strange" <caller> & co')
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)
HOSTS = st.sampled_from(["https://agent.example", "https://agent.example:443", "http://agent.example:8080", "https://10.0.0.1"])


def accepts(account: Account, request: Request) -> bool:
    try:
        account.check(request)
    except RefusedError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------- signatures


@settings(max_examples=200, deadline=None)
@given(
    host=HOSTS, query=st.lists(st.tuples(NAMES, VALUES), max_size=3), form=st.lists(st.tuples(NAMES, VALUES), max_size=5),
    algorithm=st.sampled_from(["HMAC_SHA1", "HMAC_SHA256"]), tamper=st.booleans(),
)  # fmt: skip
def test_twilios_validator_and_ours_agree(host, query, form, algorithm, tamper) -> None:
    """What its package signs is taken, in both algorithms and with any port; a changed parameter by neither."""
    url = f"{host}/x" + (f"?{urlencode(query)}" if query else "")
    values: dict[str, list[str]] = {}
    for name, value in form:
        values.setdefault(name, []).append(value)

    class MultiDict(dict):  # type: ignore[type-arg]
        def getlist(self, name: str) -> list[str]:
            return values[name]

    validator = RequestValidator(TOKEN)
    signed = validator.compute_signature(url, MultiDict(values), algorithm)
    if tamper:
        form = [*form, ("more", "1")]
        values.setdefault("more", []).append("1")
    headers = {"Content-Type": FORM, "X-Twilio-Signature": signed, "X-Twilio-Webhooks-Signature-Settings": f"key=k1,algorithm={algorithm}"}
    account = TwilioAccount("another", shared_keys={"k1": TOKEN})
    ours = accepts(account, Request("POST", url, headers, urlencode(form).encode(), NOW))
    assert ours == validator.validate(url, MultiDict(values), signed, algorithm) == (not tamper or ("more", "1") in form[:-1])


@pytest.mark.parametrize("body", [b'{"CallSid": "CA1"}', "é".encode()])
def test_twilios_validator_and_ours_agree_on_json(body) -> None:
    """A body that is no form is covered by its hash in the URL."""
    validator = RequestValidator(TOKEN)
    url = f"https://agent.example/x?bodySHA256={validator.compute_hash(body.decode())}"
    signature = validator.compute_signature(url, {})
    for tried, right in ((body, True), (body + b" ", False)):
        request = Request("POST", url, {"Content-Type": "application/json", "X-Twilio-Signature": signature}, tried, NOW)
        assert accepts(ACCOUNTS["twilio"], request) == right == validator.validate(url, tried.decode(), signature)


@settings(max_examples=200, deadline=None)
@given(
    method=st.sampled_from(["GET", "POST"]), host=st.sampled_from(["https://agent.example", "https://agent.example:8443"]),
    query=st.lists(st.tuples(NAMES, NAMES), max_size=3),  # its package reads no other letters in a URL
    form=st.lists(st.tuples(NAMES, VALUES), max_size=4), tamper=st.booleans(),
)  # fmt: skip
def test_plivos_package_and_ours_agree(method, host, query, form, tamper) -> None:
    """What its V3 code signs is taken, for GET and POST; with another nonce it is not."""
    url = f"{host}/x" + (f"?{urlencode(query)}" if query else "")
    form = form if method == "POST" else []
    values: dict[str, Any] = {}
    for name, value in form:
        values.setdefault(name, []).append(value)
    if method == "GET":
        text = plivo_signature.construct_get_url(url, dict(values)).decode()
    else:
        text = plivo_signature.construct_post_url(url, dict(values)).decode()
    signature = plivo_signature.get_signature_v3(TOKEN.encode(), text, b"n1").decode()
    nonce = "n2" if tamper else "n1"
    headers = {"Content-Type": FORM, "X-Plivo-Signature-V3": f"first,{signature}", "X-Plivo-Signature-V3-Nonce": nonce}
    ours = accepts(ACCOUNTS["plivo"], Request(method, url, headers, urlencode(form).encode(), NOW))
    assert ours == plivo_signature.validate_v3_signature(method, url, nonce, TOKEN, f"first,{signature}", values) == (not tamper)


def test_telnyxs_package_and_ours_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ed25519 over time and body: taken by both; changed or old, by neither."""
    monkeypatch.setattr(telnyx_webhooks.time, "time", lambda: NOW)
    body = b'{"data":{"event_type":"call.hangup"}}'
    key = SigningKey(SIGNING_KEY.private_bytes_raw())
    for stamp, sent, right in ((NOW, body, True), (NOW, body + b" ", False), (NOW - 301, body, False), (NOW + 302, body, False)):
        signature = b64encode(key.sign(f"{int(stamp)}|".encode() + body).signature).decode()
        headers = {"Telnyx-Signature-Ed25519": signature, "Telnyx-Timestamp": str(int(stamp))}
        ours = accepts(ACCOUNTS["telnyx"], Request("POST", "https://a/x", headers, sent, NOW))
        try:
            telnyx_webhooks.verify_webhook_signature(sent, headers, PUBLIC_KEY)
            theirs = True
        except telnyx_webhooks.WebhookVerificationError:
            theirs = False
        assert (ours, theirs) == (right, right)


def test_vonages_package_and_ours_agree() -> None:
    """HS256 with the signature secret: taken by both; with another secret by neither."""
    for secret, right in ((SECRET, True), ("another-secret-that-is-long-enough-for-it", False)):
        request = carriers.vonage("https://a/x", {"uuid": "1"}, secret=secret)
        token = request.header("authorization").removeprefix("Bearer ")
        assert accepts(ACCOUNTS["vonage"], request) == right
        assert vonage_jwt.verify_signature(token, SECRET) == right


# ---------------------------------------------------------------------------------------------------------- answers


def tree(text: str) -> Any:
    def plain(element: ElementTree.Element) -> Any:
        return element.tag, dict(element.attrib), (element.text or "").strip(), [plain(child) for child in element]

    return plain(ElementTree.fromstring(text))


def test_our_twiml_is_what_twilios_package_writes() -> None:
    """Element by element, attributes and strange texts included."""
    response = VoiceResponse()
    connect = TwilioConnect()
    stream = connect.stream(url=STREAM)
    for name, value in (("plan", "<gold>"), ("caller", CALL.caller), ("called", CALL.called)):
        stream.parameter(name=name, value=value)
    response.append(connect)
    assert tree(TwilioAccount(TOKEN, parameters={"plan": "<gold>"}).answer(CALL, STREAM).body) == tree(str(response))


def test_our_plivo_xml_is_what_plivos_package_writes() -> None:
    """The same stream, with its headers."""
    response = plivo_xml.ResponseElement().add(
        plivo_xml.StreamElement(
            STREAM, bidirectional=True, keepCallAlive=True, contentType="audio/x-l16;rate=16000",
            extraHeaders="plan=gold,caller=15551234567,called=astrangecallerco",
        )
    )  # fmt: skip
    account = PlivoAccount(TOKEN, content_type="audio/x-l16;rate=16000", parameters={"plan": "gold"})
    assert tree(account.answer(CALL, STREAM).body) == tree(response.to_string())


def test_our_ncco_is_what_vonages_package_writes() -> None:
    """The action passes its models, and comes to the same."""
    call = Incoming("CA1", "15551234567", "15557654321")
    own = {"plan": "gold", "call": call.call, "caller": call.caller, "called": call.called}
    endpoint = WebsocketEndpoint(uri=STREAM, contentType="audio/l16;rate=16000", headers=own)
    action = VonageConnect(endpoint=[endpoint], from_=call.called)
    [ours] = json.loads(VonageAccount(SECRET, parameters={"plan": "gold"}).answer(call, STREAM).body)
    assert ours == action.model_dump(by_alias=True, exclude_none=True, mode="json")


# ----------------------------------------------------------------------------------------------------- hanging up


def asked_by_us(account: Account, server: RestServer, call: str) -> Asked:
    async def hang_up() -> bool:
        async with Rest() as rest:
            request = account.hang_up(call, NOW)
            assert request is not None
            return await rest.send(request, "test")

    assert asyncio.run(hang_up())
    return server.asked[-1]


def same_request(one: Asked, other: Asked) -> None:
    assert (one.method, one.path.rstrip("?")) == (other.method, other.path.rstrip("?"))
    assert one.headers["authorization"] == other.headers["authorization"]


def test_twilios_client_and_ours_ask_the_same() -> None:
    """``calls(sid).update(status="completed")``, byte for byte where it matters."""
    with RestServer([(200, {"sid": "CA1", "status": "completed"})]) as server:
        client = TwilioClient("AC1", TOKEN)
        client.api.base_url = server.url
        client.calls("CA1").update(status="completed")
        theirs = server.asked[-1]
        ours = asked_by_us(TwilioAccount(TOKEN, "AC1", api_url=server.url), server, "CA1")
    same_request(ours, theirs)
    assert parse_qsl(ours.body.decode()) == parse_qsl(theirs.body.decode()) == [("Status", "completed")]
    assert ours.headers["content-type"] == theirs.headers["content-type"]


@pytest.mark.parametrize(("sound", "event"), [(TelnyxSound(), "call.initiated"), (TelnyxSound("L16", 16000), "call.answered")])
def test_telnyxs_client_and_ours_ask_the_same(sound: TelnyxSound, event: str) -> None:
    """``calls.actions.hangup``, ``answer`` and ``start_streaming``: the same paths, key and bodies."""
    told = json.dumps({"data": {"event_type": event, "payload": {"call_control_id": "v3:abc", "direction": "incoming"}}})
    with RestServer([(200, {"data": {"result": "ok"}})]) as server:
        account = TelnyxAccount(PUBLIC_KEY, "KEY1", sound, client_state="vip", api_url=server.url)
        with telnyx.Telnyx(api_key="KEY1", base_url=f"{server.url}/v2") as client:
            client.calls.actions.hangup(call_control_id="v3:abc")
            theirs = server.asked[-1]
            ours = asked_by_us(account, server, "v3:abc")
            assert unquote(ours.path) == unquote(theirs.path) == "/v2/calls/v3:abc/actions/hangup"
            assert (ours.method, ours.headers["authorization"]) == (theirs.method, theirs.headers["authorization"])
            incoming = account.incoming(carriers.telnyx("https://a/x", told.encode(), "application/json"))
            assert incoming is not None
            command = account.answer(incoming, STREAM).then
            assert command is not None
            ask = client.calls.actions.answer if event == "call.initiated" else client.calls.actions.start_streaming
            ask("v3:abc", **json.loads(command.body))
            theirs = server.asked[-1]
    assert (theirs.method, unquote(theirs.path)) == (command.method, unquote(urlsplit(command.url).path))
    assert json.loads(theirs.body) == json.loads(command.body)


def test_plivos_client_and_ours_ask_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """``calls.hangup``: DELETE, answered with 204."""
    auth_id, call = "MAXXXXXXXXXXXXXXXXXX", "11111111-2222-3333-4444-555555555555"
    with RestServer([(204, None)]) as server:
        for constant in ("PLIVO_API_BASE_URI", "API_VOICE_BASE_URI", "API_VOICE_BASE_URI_FALLBACK_1", "API_VOICE_BASE_URI_FALLBACK_2"):
            monkeypatch.setattr(plivo_client, constant, f"{server.url}/v1/Account")
        plivo.RestClient(auth_id, TOKEN).calls.hangup(call)
        theirs = server.asked[-1]
        ours = asked_by_us(PlivoAccount(TOKEN, auth_id, api_url=server.url), server, call)
    same_request(ours, theirs)


def test_vonages_client_and_ours_ask_the_same() -> None:
    """PUT with ``hangup`` and a token of the application, which holds the same claims."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    sent: list[Any] = []

    class Recorder(requests.adapters.BaseAdapter):  # type: ignore[misc, name-defined]
        def send(self, request: Any, **options: Any) -> Any:
            sent.append(request)
            response = requests.Response()
            response.status_code, response.request, response._content = 204, request, b""
            return response

        def close(self) -> None:
            pass

    client = vonage.Vonage(vonage.Auth(application_id="app-1", private_key=pem))
    client.http_client._session.mount("https://", Recorder())
    client.voice.hangup("uuid-1")
    client.http_client._session.close()
    [theirs] = sent
    with RestServer([(204, None)]) as server:
        ours = asked_by_us(VonageAccount(SECRET, "app-1", pem, api_url=server.url), server, "uuid-1")
    assert (ours.method, ours.path) == (theirs.method, urlsplit(theirs.url).path)
    assert json.loads(ours.body) == json.loads(theirs.body) == {"action": "hangup"}
    tokens = [ours.headers["authorization"], theirs.headers["Authorization"]]
    tokens = [token if isinstance(token, str) else token.decode() for token in tokens]
    claims = [
        jwt.decode(text.removeprefix("Bearer "), key.public_key(), algorithms=["RS256"], options={"verify_iat": False, "verify_exp": False})
        for text in tokens
    ]
    assert claims[0].keys() == claims[1].keys()
    assert claims[0]["application_id"] == claims[1]["application_id"] == "app-1"
    assert [jwt.get_unverified_header(text.removeprefix("Bearer "))["alg"] for text in tokens] == ["RS256", "RS256"]


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda url: TwilioAccount(TOKEN, "AC1", api_url=url), (404, {"code": 20404, "message": "not found"})),
        (lambda url: TwilioAccount(TOKEN, "AC1", api_url=url), (400, {"code": 21220, "message": "not in-progress"})),
        (lambda url: TelnyxAccount(PUBLIC_KEY, "KEY1", api_url=url), (422, {"errors": [{"code": "90018", "title": "ended"}]})),
        (lambda url: PlivoAccount(TOKEN, "MA1", api_url=url), (404, {"error": "call not found"})),
    ],
)
def test_a_call_that_has_ended_is_hung_up_with_success(make, answer, caplog: pytest.LogCaptureFixture) -> None:
    """Both sides hang up at once: the carrier's refusal is what was wanted, and nothing is logged as an error."""
    with RestServer([answer]) as server:
        asked_by_us(make(server.url), server, "CA1")
        assert len(server.asked) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# -------------------------------------------------------------------------------------------------- Plivo's stream


def test_plivos_stream_sdk_reads_our_fake_carrier_and_what_we_send() -> None:
    """The package's models take the fake carrier's messages, and ours to the carrier."""
    dialect = Plivo(caller="1555", called="1666", parameters={"plan": "gold"})
    [start] = dialect.begin()
    assert plivo_stream.StartEvent(**json.loads(start)).start.call_id == dialect.call
    plivo_stream.MediaEvent(**json.loads(dialect.media(1, ramp(160))))
    plivo_stream.DtmfEvent(**json.loads(dialect.key("5")))
    plivo_stream.PlayedStreamEvent(**json.loads(dialect.mark("1")))
    plivo_stream.ClearedAudioEvent(**json.loads(dialect.cleared()[0]))
    wire = PlivoWire()
    wire.receive(start)
    [media], [mark], [clear] = wire.audio(ramp(160)), wire.mark("17"), wire.clear()
    played = plivo_stream.PlayAudioEvent(**json.loads(media))
    assert (played.media.content_type, played.media.sample_rate) == ("audio/x-mulaw", 8000)
    assert plivo_stream.CheckpointEvent(**json.loads(mark)).name == "17"
    assert plivo_stream.ClearAudioEvent(**json.loads(clear)).stream_id == dialect.stream
