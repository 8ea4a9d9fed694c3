"""The nodes that do input and output. Import each from its own module: its library is loaded only then.

``wav`` (files), ``device`` (microphone and loudspeaker, on ``portaudio``), ``memory`` (two sessions in one program), and
``speaker``, the paced playout that every speaking end stands on.
"""

from __future__ import annotations

__all__: list[str] = []
