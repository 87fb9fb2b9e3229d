"""Drives a headless Chromium through its DevTools pipe: nothing but the standard library and the browser itself."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
TO_BROWSER, FROM_BROWSER = 3, 4  # file descriptors that --remote-debugging-pipe reads and writes


class Browser:
    """One page of a running browser."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self.process, self._write, self._read = process, write, read
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one DevTools command; events that come in between are kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + bytes(1))
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while bytes(1) not in self._buffer:
            part = os.read(self._read, 1 << 20)
            assert part, "the browser ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(bytes(1))
        return json.loads(line)

    def open(self, page: Path, *, width: int, height: int, dark: bool = False) -> None:
        """Show a local file in a window of this size and wait until it has loaded."""
        self.events.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        """`kind`: move, or click."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for action in ("mousePressed", "mouseReleased") if kind == "click" else ():
            self.call("Input.dispatchMouseEvent", type=action, x=x, y=y, button="left", clickCount=1)

    def key(self, name: str) -> None:
        """Press a named key."""
        text = {"Enter": "\r", " ": " "}.get(name, "")
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key=name,
            code=name,
            text=text,
            windowsVirtualKeyCode={"Enter": 13, " ": 32, "ArrowRight": 39, "Escape": 27}[name],
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)

    def screenshot(self, path: Path) -> None:
        """A PNG of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Console errors and warnings, uncaught exceptions, and anything that was fetched besides the page."""
        complaints = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                complaints.append(str(parameters["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
                complaints.append(str(parameters["args"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                complaints.append(parameters["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                complaints += [] if url.startswith(("file:", "data:")) else [url]
        return complaints


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium with a profile of its own, closed at the end."""
    assert CHROMIUM is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def place() -> None:  # in the child: the pipe's ends become descriptors 3 and 4
        ends = os.dup(to_read), os.dup(from_write)
        os.dup2(ends[0], TO_BROWSER)
        os.dup2(ends[1], FROM_BROWSER)

    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(from_write)
        try:
            opened = Browser(process, to_write, from_read)
            yield opened
            opened._session = ""
            opened.call("Browser.close")
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()
            os.close(to_write)
            os.close(from_read)
