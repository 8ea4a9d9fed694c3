"""The policies of turn taking, all in one place, and their way from JSON.

Each is data: a frozen struct with its name in the field ``policy``, so that it goes to JSON and back, is compared and
printed. The one rule: what cannot be read is refused by the name of its field.

A **start policy** judges whether speech is meant; it is used over the agent (may it be interrupted?) and when the agent
is silent (does a turn begin at all?). ``AnyOf``, ``AllOf`` and ``FirstDecides`` make one of several. An **end policy**
says when a silence ends the turn; ``Earliest`` and ``Latest`` combine them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from voiceflow.errors import what_and_where
from voiceflow.processors.end_policies import AdaptiveSilence, Earliest, Endpoint, EndPolicy, Latest, Score, Silence
from voiceflow.processors.start_policies import (
    BACKCHANNELS,
    AllOf,
    AnyOf,
    Confidence,
    Echo,
    External,
    FirstDecides,
    Level,
    Never,
    Phrases,
    StartPolicy,
    Voice,
    WakePhrase,
    Words,
)

__all__ = [
    "BACKCHANNELS",
    "AdaptiveSilence",
    "AllOf",
    "AnyOf",
    "Confidence",
    "Earliest",
    "Echo",
    "EndPolicy",
    "Endpoint",
    "External",
    "FirstDecides",
    "Latest",
    "Level",
    "Never",
    "Phrases",
    "Score",
    "Silence",
    "StartPolicy",
    "Voice",
    "WakePhrase",
    "Words",
    "end_policy_from_json",
    "policy_to_json",
    "read_json",
    "start_policy_from_json",
]

_START_NAMES = sorted(str(policy.__struct_config__.tag) for policy in StartPolicy.__args__)
_END_NAMES = sorted(str(policy.__struct_config__.tag) for policy in EndPolicy.__args__)


def start_policy_from_json(text: str | bytes) -> StartPolicy:
    """A start policy; raises ValueError that names the wrong field."""
    policy: StartPolicy = read_json(text, StartPolicy, "start policy")
    return policy


def end_policy_from_json(text: str | bytes) -> EndPolicy:
    """An end policy; raises ValueError that names the wrong field."""
    policy: EndPolicy = read_json(text, EndPolicy, "end policy")
    return policy


def policy_to_json(policy: StartPolicy | EndPolicy) -> str:
    """What the two functions above read. Fields at their defaults are left out."""
    return msgspec.json.encode(policy).decode()


def read_json(text: str | bytes, wanted: Any, what: str) -> Any:
    """A policy, or something with policies in its fields. Raises ValueError: what is wrong, in which field, and what may stand there."""
    try:
        return msgspec.json.decode(text, type=wanted)
    except msgspec.DecodeError as error:  # also its ValidationError
        message, place = what_and_where(error)
        place = place or "$"
        names = _END_NAMES if wanted is EndPolicy or place.startswith("$.end") else _START_NAMES
        known = f"; known: {', '.join(names)}"
        if place.endswith(".policy") and message.startswith("Invalid value"):
            message = f"unknown policy {message.removeprefix('Invalid value ')}{known}"
        elif "required field `policy`" in message or "Expected `object`, got `str`" in message:
            message = f'{message}; a policy is an object like {{"policy": {names[0]!r}}}{known}'.replace("'", '"')
        raise ValueError(f"not a valid {what}: {place}: {message}") from error
