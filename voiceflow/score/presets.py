"""Settings of turn taking, put into an agent in place of its own: to see what each costs.

The one rule: a preset is data, the JSON of ``TurnOptions``, so that anybody's own is as good as one that comes along.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from voiceflow.errors import VoiceflowError
from voiceflow.pipeline import Pipeline
from voiceflow.processors.turn_options import TurnOptions
from voiceflow.processors.turns import Turns

__all__ = ["TurnsError", "preset_names", "read_turns", "with_turns"]


class TurnsError(VoiceflowError):
    """Settings of turn taking that cannot be used."""


def preset_names() -> list[str]:
    """The presets that come with voiceflow."""
    return sorted(entry.name.removesuffix(".json") for entry in _folder().iterdir() if entry.name.endswith(".json"))


def _folder() -> Path:
    with resources.as_file(resources.files("voiceflow.score") / "turns") as path:
        return path


def read_turns(name_or_path: str) -> TurnOptions:
    """The options of a preset or of a JSON file. Raises TurnsError that names the file and the field."""
    is_preset = name_or_path in preset_names()
    path = _folder() / f"{name_or_path}.json" if is_preset else Path(name_or_path)
    try:
        return TurnOptions.from_json(path.read_bytes())
    except OSError as error:
        known = ", ".join(preset_names())
        raise TurnsError(
            f"{name_or_path!r} is neither a preset ({known}) nor a file that can be read: {error.strerror or error}"
        ) from error
    except ValueError as error:
        raise TurnsError(f"{path}: {error}") from error


def with_turns(pipeline: Pipeline, options: TurnOptions) -> Pipeline:
    """The same pipeline with another ``Turns`` in place of its own. Raises TurnsError if it has none, or several."""
    nodes = [node for node in pipeline.nodes if isinstance(node, Turns)]
    if len(nodes) != 1:
        raise TurnsError(f"the agent has {len(nodes)} Turns nodes; settings of turn taking go into an agent that has one")
    return pipeline.substitute(nodes[0], Turns(options))
