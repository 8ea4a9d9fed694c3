"""``voiceflow score``: scripted callers hold calls with an agent, and what reached either ear is measured.

``scenes`` says what the callers do, ``caller`` does it, ``call`` runs one scene, ``trace`` finds the sound that was heard in
the sound that was made, ``measures`` judges a scene, ``card`` adds the scenes up. ``recording`` and ``words`` serve the
demo too.
"""

from __future__ import annotations

__all__: list[str] = []
