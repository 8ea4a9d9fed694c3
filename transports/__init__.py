"""The nodes that do input and output. Import each from its own module: its library is loaded only then.

==================  ==========================================================  ==================================
what                where                                                       stands on (pure unless named)
==================  ==========================================================  ==================================
files               ``wav.WavIn``, ``wav.WavOut``                               ``riff``
recording a call    ``recording.Recorder``                                      ``tracks``, ``sound_files`` (soundfile)
sound device        ``device.DeviceIn``, ``device.DeviceOut``                   ``portaudio`` (pyaudio)
in one program      ``memory.MemoryIn``, ``MemoryOut``, ``pair``
programs, pages     ``websocket.WebsocketServer`` (websockets);                 ``wire_frames``, ``wire_messages``
                    ``websocket_client.call`` calls one;                        ``wire_frames_client``
                    ``web`` serves the page (aiohttp)
Pipecat's clients   ``rtvi.RTVIWire``                                           ``protobuf_frames``
WebRTC              ``webrtc.WebRTC``, ``webrtc_options``,                      ``webrtc_wire``, ``rtp``, ``contact``,
                    ``webrtc_peer`` (aiortc)                                    ``opus`` (av)
telephone           ``telephony``: carriers by ``routes`` (aiohttp), Asterisk
                    by ``audiosocket``
==================  ==========================================================  ==================================

What they share: ``speaker`` is the paced playout that every speaking end stands on. A far end on a network is a ``wire`` (its
protocol, pure) and a ``connection``; ``line`` joins them to the two nodes in ``line_ends``, and ``calls`` answers each with an agent.
``access`` says who may call.
"""

from __future__ import annotations

__all__: list[str] = []
