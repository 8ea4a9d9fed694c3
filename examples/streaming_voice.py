"""Anthropic's tokens go into an open ElevenLabs socket: a reply is spoken while it is being written. WAV in, WAV out; `voiceflow talk` with
this file uses the microphone, `voiceflow serve` the browser, docs/telephony.md the phone. Without ANTHROPIC_API_KEY and ELEVENLABS_API_KEY
it speaks with stand-ins on this machine: canned words, and a tone for each."""

import asyncio
import os
from pathlib import Path

from voiceflow import Pipeline, Processor, Session
from voiceflow.processors.context import Context
from voiceflow.processors.services.anthropic_llm import AnthropicLLM, AnthropicOptions, MessagesOptions
from voiceflow.processors.services.elevenlabs_tts import ElevenLabsOptions, ElevenLabsTTS
from voiceflow.processors.stt_whisper import WhisperSTT
from voiceflow.processors.turns import Turns
from voiceflow.processors.vad import SileroVAD
from voiceflow.testing.stand_ins import StandIns
from voiceflow.transports.wav import WavIn, WavOut


def agent(source: Processor, sink: Processor, llm: str = "https://api.anthropic.com", tts: str = "https://api.elevenlabs.io") -> Pipeline:
    model = AnthropicLLM(AnthropicOptions(MessagesOptions("claude-haiku-4-5"), base_url=llm))
    voice = ElevenLabsTTS(ElevenLabsOptions("21m00Tcm4TlvDq8ikWAM", base_url=tts))
    return source >> SileroVAD() >> WhisperSTT() >> Turns() >> Context("Be brief.") >> model >> voice.pieces() >> voice >> sink


async def main(source: Processor, sink: Processor) -> None:
    async with StandIns(lambda asked: f"You asked me: {asked} I am only a stand-in. Give me two keys, and I shall know.") as there:
        urls = [] if {"ANTHROPIC_API_KEY", "ELEVENLABS_API_KEY"} <= os.environ.keys() else [there.url, there.url]
        print(f"no keys: the model and the voice are stand-ins at {there.url}" if urls else "with Anthropic and ElevenLabs")
        session, seen = Session(agent(source, sink, *urls)), dict[str, float]()
        session.tap(lambda frame, *_: seen.setdefault(type(frame).__name__, session.time()) and None)
        await session.run()
        assert "OutputAudioFrame" in seen, "nothing was said: the log tells why"
        sound, end = (1000 * (seen[name] - seen["LLMTextFrame"]) for name in ("OutputAudioFrame", "LLMEnded"))
        print(f"from the first token: the first sound after {sound:.0f} ms, the last token after {end:.0f} ms; all of it is in answer.wav")


if __name__ == "__main__":
    asyncio.run(main(WavIn(Path(__file__).parent / "data" / "question.wav", tail_s=1.0), WavOut("answer.wav")))
