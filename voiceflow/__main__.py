"""``python -m voiceflow`` is the command ``voiceflow``."""

from __future__ import annotations

import sys

from voiceflow.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
