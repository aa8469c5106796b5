"""Mutants of what keeps clients, and whatever else comes from outside, from hurting a node."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import mutant

LOG: Final = "data_plane/log"

HOSTILE: Final = (
    mutant(
        "count-beyond-the-bytes",
        "ours",
        "an array has no more items than bytes are left for",
        "kraft/wire/decoding.py",
        "        elif count * least_bytes > len(buf) - pos:\n",
        "        elif least_bytes < 0:\n",
        ("unit/wire/test_decoding.py",),
    ),
    mutant(
        "records-not-counted",
        "ours",
        "a batch has the records that its header counts, or is refused",
        f"{LOG}/validation.py",
        "        and header.last_offset_delta == count - 1\n",
        "",
        ("unit/log/test_validation.py",),
    ),
    mutant(
        "one-request-ends-the-node",
        "ours",
        "an error ends the request, the cleaning or the turn in which it happens",
        "metadata_quorum/foundation/supervision.py",
        "    return isinstance(error, InvariantViolation | FatalError)\n",
        "    return isinstance(error, Exception)\n",
        ("unit/foundation/test_supervision.py",),
    ),
    mutant(
        "epochs-of-before-a-full-truncation",
        "ours",
        "a log that begins anew knows nothing of what it held",
        f"{LOG}/log.py",
        "        self.epochs.clear()\n        self.aborted.clear()\n        self.log_start_offset = offset\n",
        "        self.log_start_offset = offset\n",
        ("unit/log/test_log.py",),
    ),
    mutant(
        "one-unknown-key-drops-all",
        "ours",
        "an override that a broker does not know is left out, and no other",
        f"{LOG}/config.py",
        '                pass_over(f"Unknown topic config name: {name}")\n',
        '                pass_over(f"Unknown topic config name: {name}")\n                return base\n',
        ("unit/log/test_log_config.py",),
    ),
)
