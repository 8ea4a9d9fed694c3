"""What a conversation is made of, whichever model reads it: messages, their images and sounds, and the calls of tools.

The one rule: values only, of no provider's shape; a node that talks to a provider translates them.
"""

from __future__ import annotations

import msgspec

__all__ = ["AudioClip", "Image", "Message", "ToolCall"]


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture. ``url``: ``https:`` or ``data:image/...;base64,...``; ``alt``: what it shows, for a model that cannot see."""

    url: str
    alt: str = ""


class AudioClip(msgspec.Struct, frozen=True, tag="audio"):
    """A reference to sound, not the sound. ``url``: where it is kept; ``seconds``: its length."""

    url: str
    seconds: float = 0.0


class ToolCall(msgspec.Struct, frozen=True):
    """The model wants a tool to run. ``arguments``: the text of a JSON object, as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a conversation. ``role``: ``system``, ``user``, ``assistant`` or ``tool``.

    ``interrupted``: the text ends where the caller stopped hearing it. ``calls``: of an assistant; each is answered by
    one ``tool`` message with its ``call_id`` and the result as ``text``, right after it.
    """

    role: str
    text: str = ""
    interrupted: bool = False
    media: tuple[Image | AudioClip, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
