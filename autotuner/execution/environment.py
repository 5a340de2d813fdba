"""Which of the service's environment variables a run may see: an allow-list, so that no secret can slip through.

The service's own settings (database address, tokens) are not on it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_NAMES: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        # Where libraries lie and which devices may be used: the machine's set-up, without which ranks cannot start.
        *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "ZE_AFFINITY_MASK"),
    }
)
_PREFIXES: Final = ("LC_",)


def inherited() -> dict[str, str]:
    """What this process may pass on to a run."""
    return allowed(os.environ)


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that are on the list."""
    return {name: value for name, value in environment.items() if name in _NAMES or name.startswith(_PREFIXES)}
