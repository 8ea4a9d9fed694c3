"""A spoken question answered by models on this machine: WAV in, WAV out. `voiceflow talk examples/local_agent.py` uses the microphone.

Point it at a model of your own: LlamaLLM("path/to/model.gguf").
"""

import asyncio
import sys
from pathlib import Path

from voiceflow import Pipeline, Processor, Session
from voiceflow.processors.context import Context
from voiceflow.processors.llm_xllamacpp import LlamaLLM, LlamaOptions
from voiceflow.processors.smart_turn import SmartTurn
from voiceflow.processors.stt_whisper import WhisperSTT
from voiceflow.processors.text import Sentences
from voiceflow.processors.tts_piper import PiperTTS
from voiceflow.processors.turns import Turns
from voiceflow.processors.vad import SileroVAD
from voiceflow.transports.wav import WavIn, WavOut

SYSTEM = "You are Ava, a friendly voice assistant on the phone. Answer in one or two short sentences."
QUESTION = Path(__file__).parent / "data" / "question.wav"


def agent(source: Processor, sink: Processor) -> Pipeline:
    hearing = source >> SileroVAD() >> [WhisperSTT(), SmartTurn()] >> Turns()
    return hearing >> Context(SYSTEM) >> LlamaLLM(options=LlamaOptions(system=SYSTEM)) >> Sentences() >> PiperTTS() >> sink


async def main(question: Path, answer: Path) -> None:
    pipeline = agent(WavIn(question), WavOut(answer))
    print(pipeline)
    await Session(pipeline).run()  # ends when the file is over and the answer has been heard
    context = next(node for node in pipeline.nodes if isinstance(node, Context))
    for message in context.conversation.messages:
        print(f"{message.role:>9}: {message.text}")
    print(f"the answer is in {answer}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else QUESTION, Path(sys.argv[2] if len(sys.argv) > 2 else "answer.wav")))
