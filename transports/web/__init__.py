"""Calls from a browser: the socket that carries them, the server around it, and the page."""

from __future__ import annotations

__all__: list[str] = []
