"""`kraft top` on a terminal, until the reader quits.

    NodeHttp.live ─> Known ─┐
    keys ──────────> Choice ┼─> top_frame.frame -> rich -> the terminal's other screen

One loop reads both; it draws when either has something new. What the terminal was is restored at the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live

from kraft.cli.node_http import NodeHttp
from kraft.cli.top_frame import Choice, Known, Size, frame
from kraft.peers.held_signals import signals_wait
from kraft.peers.interruptible import run

KEPT_EVENTS: Final = 50
ESCAPE: Final = "\x1b"
UP: Final = f"{ESCAPE}[A"
DOWN: Final = f"{ESCAPE}[B"


def watch(nodes: NodeHttp) -> None:
    """Raises `CliError`."""
    try:
        run(_Screen(nodes).run())
    except Quit:
        return


class Quit(Exception):
    """The reader has seen enough."""


class _Screen:
    """A terminal, while it shows the cluster."""

    def __init__(self, nodes: NodeHttp) -> None:
        self._nodes = nodes
        self._known = Known()
        self._choice = Choice()
        self._news = asyncio.Event()
        self._quit = False

    async def run(self) -> None:
        """Raises `Quit` in the end, or what is wrong."""
        loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
        with _keys_at_once(fd), _other_screen() as live:
            loop.add_reader(fd, self._read_keys, fd)
            loop.add_signal_handler(signal.SIGWINCH, self._news.set)
            await asyncio.gather(self._follow(), self._draw(live))

    async def _follow(self) -> None:
        async for kind, news in self._nodes.live():
            known = self._known
            match kind:
                case "cluster":
                    known.snapshot, known.trouble = news, ""
                case "events":
                    known.events = (*known.events, *news)[-KEPT_EVENTS:]
                case "trouble":
                    known.trouble, known.events = news, ()  # another node counts its own
            self._news.set()

    async def _draw(self, live: Live) -> None:
        while True:
            self._news.clear()
            size = live.console.size
            live.update(frame(self._known, self._choice, Size(size.width, size.height)), refresh=True)
            await self._news.wait()
            if self._quit:
                raise Quit

    def _read_keys(self, fd: int) -> None:
        typed = os.read(fd, 1024).decode(errors="ignore")
        if not typed:
            self._quit = True  # the terminal is gone
        for key in _keys(typed):
            self._quit = take_key(self._choice, key) or self._quit
        self._news.set()


def _keys(typed: str) -> Iterator[str]:
    """An arrow comes as three characters."""
    while typed:
        length = 3 if typed.startswith((UP, DOWN)) else 1
        yield typed[:length]
        typed = typed[length:]


def take_key(choice: Choice, key: str) -> bool:
    """Whether it asks to end."""
    if choice.typing:
        match key:
            case "\r" | "\n":
                choice.typing = False
            case _ if key == ESCAPE:
                choice.typing, choice.filter = False, ""
            case "\x7f" | "\b":
                choice.filter = choice.filter[:-1]
            case _ if key.isprintable():
                choice.filter += key
        return False
    match key:
        case "q" | "\x04":
            return True
        case "/":
            choice.typing = True
        case _ if key == ESCAPE:
            choice.filter = ""
        case "s":
            choice.sort = choice.sort.next
        case "i":
            choice.internal = not choice.internal
        case _ if key in ("k", UP):
            choice.scrolled = max(choice.scrolled - 1, 0)
        case _ if key in ("j", DOWN):
            choice.scrolled += 1  # frame() knows how far it goes
    return False


@contextmanager
def _other_screen() -> Iterator[Live]:
    """Taken and left as a whole: a signal in the midst would leave the reader there."""
    live = Live(console=Console(highlight=False), screen=True, auto_refresh=False)
    try:
        with signals_wait():
            live.start()
        yield live
    finally:
        with signals_wait():
            live.stop()


@contextmanager
def _keys_at_once(fd: int) -> Iterator[None]:
    """Let keys be read without Enter, and without an echo."""
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)
