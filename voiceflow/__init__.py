"""voiceflow: a real-time voice agent is a graph of processors that take typed frames and yield them."""

from __future__ import annotations

from voiceflow import frames
from voiceflow.errors import ContractError, ModelError, NodeError, PipelineError, SessionError, VoiceflowError
from voiceflow.frames import *  # noqa: F403 - the frames are the vocabulary; their own __all__ says which
from voiceflow.interruption import Interruption
from voiceflow.messages import AudioClip, Image, Message, ToolCall, ToolSpec
from voiceflow.pipeline import Pipeline
from voiceflow.processor import Processor, processor
from voiceflow.session import NodeState, Session, SessionOptions

__version__ = "0.1.0"

__all__ = [
    "AudioClip",
    "ContractError",
    "Image",
    "Interruption",
    "Message",
    "ModelError",
    "NodeError",
    "NodeState",
    "Pipeline",
    "PipelineError",
    "Processor",
    "Session",
    "SessionError",
    "SessionOptions",
    "ToolCall",
    "ToolSpec",
    "VoiceflowError",
    "processor",
]
__all__ += frames.__all__
