"""What a conversation is made of, whichever model reads it: messages, their images and sounds, and the calls of tools.

The one rule: values only, of no provider's shape; a node that talks to a provider translates them.
"""

from __future__ import annotations

import msgspec

__all__ = ["AudioClip", "Image", "Message", "ToolCall", "ToolSpec"]


class Image(msgspec.Struct, frozen=True, tag="image", forbid_unknown_fields=True):
    """A picture. ``url``: ``https:`` or ``data:image/...;base64,...``; ``alt``: what it shows, for a model that cannot see."""

    url: str
    alt: str = ""


class AudioClip(msgspec.Struct, frozen=True, tag="audio", forbid_unknown_fields=True):
    """A reference to sound, not the sound. ``url``: where it is kept; ``seconds``: its length."""

    url: str
    seconds: float = 0.0


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model wants a tool to run. ``arguments``: the text of a JSON object, as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class Message(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One entry of a conversation. ``role``: ``system``, ``user``, ``assistant`` or ``tool``.

    ``interrupted``: the text ends where the caller stopped hearing it. ``calls``: of an assistant; each is answered by
    one ``tool`` message with its ``call_id`` and the result as ``text``, right after it. ``pending``: of a tool; its
    result is still to come, and ``text`` says so to the model until it does.
    """

    role: str
    text: str = ""
    interrupted: bool = False
    media: tuple[Image | AudioClip, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    pending: bool = False


class ToolSpec(msgspec.Struct, frozen=True):
    """What a model is told of a tool. ``parameters``: the JSON schema of its arguments, an object, as text."""

    name: str
    description: str = ""
    parameters: str = '{"type":"object","properties":{}}'
