"""What a model's process says with its exit status, where it has said nothing else."""

from __future__ import annotations

FAILED = 3
"""The model could not load; the reason was told."""

STARVED = 71
"""It had not even the memory to say so. EX_OSERR of sysexits.h."""

GAVE_UP = 70
"""It could serve no more; the reason is the last line in the log. EX_SOFTWARE of sysexits.h."""
