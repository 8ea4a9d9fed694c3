"""Sound as numbers: PCM, chunks, sample rates and telephone companding, for every node that touches samples.

Its one rule: nothing here waits, knows a clock or knows a frame. Bytes in, bytes out, no sample lost or split.

PCM is signed 16-bit little-endian, channels interleaved: ``bytes`` as it travels in frames, or an int16 array of
shape ``(samples, channels)`` (``(samples,)`` is mono), which is what ``AudioFrame.samples`` gives.
"""

from __future__ import annotations

from voiceflow.audio.g711 import alaw_decode, alaw_encode, mulaw_decode, mulaw_encode
from voiceflow.audio.pcm import Chunker, fade_in, fade_out, level_dbfs, mix, to_float, to_pcm
from voiceflow.audio.resampling import Quality, StreamResampler, holds_ms, resample

__all__ = [
    "Chunker",
    "Quality",
    "StreamResampler",
    "alaw_decode",
    "alaw_encode",
    "fade_in",
    "fade_out",
    "holds_ms",
    "level_dbfs",
    "mix",
    "mulaw_decode",
    "mulaw_encode",
    "resample",
    "to_float",
    "to_pcm",
]
