"""A headless Chromium (Debian's package, or any on PATH), driven by the DevTools protocol.

`with chromium(directory) as page:` then `page.open(url)`, `page.eval("document.title")`, `page.press("/")`.
What the page logs as an error or what its policy refuses is kept in `page.complaints`.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.support.waiting import wait_until

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # as root in a container it has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
_KEY_CODES: Final = {"Escape": 27, "Enter": 13, "Tab": 9}
_TEXTS: Final = {"Enter": "\r"}
PORT_FILE: Final = "DevToolsActivePort"


class Page:
    """One tab."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._loop = loop
        self._socket = socket
        self._numbers = count(1)
        self.complaints: list[str] = []

    def open(self, url: str) -> None:
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Page.navigate", url=url)
        wait_until(lambda: self.eval("document.readyState") == "complete", f"{url} is loaded")

    def eval(self, expression: str) -> Any:
        """Its value, as JSON has it. A promise is awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        code = _KEY_CODES.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            text = {"text": _TEXTS.get(key, key)} if kind == "keyDown" and key in {key[:1], *_TEXTS} else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def look_like(self, *, width: int, height: int = 900, dark: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._loop.run_until_complete(self._send(method, parameters))

    async def _send(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=60)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self._note(answer)

    def _note(self, answer: dict[str, Any]) -> None:
        if answer.get("method") == "Runtime.exceptionThrown":
            details = answer["params"]["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["level"] == "error":
            self.complaints.append(answer["params"]["entry"]["text"])


@contextmanager
def chromium(directory: Path) -> Iterator[Page]:
    """One tab of a browser with an empty profile in `directory`. Skips where there is none."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no chromium on PATH (Debian's package chromium)")
    with (directory / "chromium.log").open("wb") as output:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={directory / 'profile'}", "about:blank"],
            stdout=output,
            stderr=output,
        )
        try:
            port_file = directory / "profile" / PORT_FILE
            wait_until(lambda: port_file.exists() and port_file.read_text().count("\n"), "Chromium listens")
            port = int(port_file.read_text().splitlines()[0])
            with asyncio.Runner() as runner:
                loop = runner.get_loop()
                session, socket = runner.run(_connect(port))
                try:
                    yield Page(loop, socket)
                finally:
                    runner.run(session.close())
        finally:
            process.terminate()
            process.wait(30)


async def _connect(port: int) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    session = aiohttp.ClientSession()
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        (tab,) = [each for each in await answer.json() if each["type"] == "page"]
    return session, await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=64 * 1024 * 1024)
