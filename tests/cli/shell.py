"""The tools as a shell runs them, against nodes that are there."""

from __future__ import annotations

import subprocess

from tests.support.nodes.forks import run_kraft


class Shell:
    """`kraft COMMAND --bootstrap-server ...`, with what it prints."""

    def __init__(self, bootstrap: str, *, patient: bool = True) -> None:
        """`patient`: see `run_kraft`."""
        self._bootstrap = bootstrap
        self._patient = patient

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        where = ("--bootstrap-server", self._bootstrap)
        return run_kraft(*arguments, *where, stdin=stdin, patient=self._patient)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it printed; it must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """The sentence it refused with."""
        done = self.run(*arguments)
        assert (done.returncode in (1, 2), done.stdout) == (True, "")
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("kraft: ")
        return done.stderr.removeprefix("kraft: ").rstrip("\n")
