"""Where the key of a service is found. The one rule: it is shown to nobody, in no error either."""

from __future__ import annotations

import os

from voiceflow.processors.services.retry import ServiceError

__all__ = ["find_key"]


def find_key(where: str, given: str | None, variable: str | None) -> str:
    """The key that was given, or else that of the environment variable, blanks around it left out. "" if there need be none.

    ``where``: whose it is, for the error. ``variable``: None where a key may be missing. Raises ServiceError if there has to
    be one and is none, or if it has something in it that no key has.
    """
    key = (given if given is not None else os.environ.get(variable, "") if variable else "").strip()
    if not key and variable:
        raise ServiceError(f"there is no key for {where}: set the environment variable {variable}, or give api_key")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ServiceError(f"the key for {where} has blanks or signs in it that no key has; copy it again")
    return key
