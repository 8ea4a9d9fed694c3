"""Tools for testing processors and pipelines: a virtual clock, scripted services, a sink that remembers, a leak check,
an interrupt at every point, and a conformance kit for processors. voiceflow's own tests use nothing else."""

from __future__ import annotations

from voiceflow.testing.clock import DeadlockError, VirtualClockLoop, run_virtual
from voiceflow.testing.conformance import Collector, Feeder, check_processor
from voiceflow.testing.everywhere import Everywhere, Probe, interrupt_everywhere
from voiceflow.testing.leaks import no_leaks
from voiceflow.testing.scripts import (
    BACKGROUND,
    CALLER_STEP,
    NOISE,
    Latency,
    Said,
    ScriptedCaller,
    ScriptedLLM,
    ScriptedSTT,
    ScriptedTTS,
    ScriptedTurnEnd,
    ScriptedVAD,
    labelled_speech,
    labels,
)
from voiceflow.testing.sink import Played, RecordingSink

__all__ = [
    "BACKGROUND",
    "CALLER_STEP",
    "NOISE",
    "Collector",
    "DeadlockError",
    "Everywhere",
    "Feeder",
    "Latency",
    "Played",
    "Probe",
    "RecordingSink",
    "Said",
    "ScriptedCaller",
    "ScriptedLLM",
    "ScriptedSTT",
    "ScriptedTTS",
    "ScriptedTurnEnd",
    "ScriptedVAD",
    "VirtualClockLoop",
    "check_processor",
    "interrupt_everywhere",
    "labelled_speech",
    "labels",
    "no_leaks",
    "run_virtual",
]
