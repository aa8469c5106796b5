"""What the command line loads before it knows what is asked."""

from __future__ import annotations

import subprocess
import sys


def test_no_command_waits_for_the_codec_or_a_client_that_it_may_not_use():
    program = "import sys, kraft.cli.main; print(*({'kio', 'confluent_kafka', 'aiohttp'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.split() == []
