"""A page in headless Chromium, driven through its debugging pipe: no driver, no further package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-extensions", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip


def find_chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. Use it in a ``with`` statement; then no process of it is left."""

    def __init__(self, width: int = 1280, height: int = 1000, patience: float = 120) -> None:
        program = find_chromium()
        assert program is not None
        self.patience, self.number, self.unread = patience, 0, b""
        self.messages: list[str] = []  # what the page wrote to its console, and its errors
        self.folder = tempfile.TemporaryDirectory()
        to_it, self.write_end = os.pipe()
        self.read_end, from_it = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (to_it, from_it)]

        def connect() -> None:  # it reads commands from descriptor 3 and answers on descriptor 4
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        flags = [*FLAGS, f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}"]
        self.process = subprocess.Popen(
            [program, *flags, "about:blank"],
            preexec_fn=connect,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": self.folder.name},
        )
        for end in (to_it, from_it, *ends):
            os.close(end)
        self.session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        tab = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=tab, flatten=True)
        self.session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.resize(width, height)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(timeout=10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        self.folder.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command and wait for its answer; what happens meanwhile is noted."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self.patience
        while True:
            answer = self._next(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self.unread:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise TimeoutError("Chromium did not answer")
            data = os.read(self.read_end, 2**20)
            if not data:
                raise OSError("Chromium ended")
            self.unread += data
        line, _, self.unread = self.unread.partition(b"\0")
        return json.loads(line)

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            self.messages.append(text)
        elif event.get("method") == "Runtime.consoleAPICalled":
            found = [str(a.get("value", a.get("description"))) for a in parameters["args"]]
            self.messages.append(" ".join(found))

    # --- what a reader does

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def resize(self, width: int, height: int, scale: float = 1, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        end = time.monotonic() + self.patience
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"waited for {condition}; the page said {self.messages}")
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float) -> None:
        held = {"button": "left", "buttons": 0 if kind == "mouseReleased" else 1, "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def _middle(self, selector: str) -> list[float]:
        """Where the middle of an element is on the screen, and its size, after scrolling there."""
        rectangle = f"document.querySelector({selector!r}).getBoundingClientRect()"
        found: list[float] = self.evaluate(
            f"(() => {{ document.querySelector({selector!r}).scrollIntoView({{block: 'center'}});"
            f" const r = {rectangle}; return [r.x + r.width / 2, r.y + r.height / 2, r.width,"
            " r.height]; })()"
        )
        return found

    def drag(self, selector: str, by: tuple[float, float], steps: int = 8) -> None:
        """Drag from the middle of an element, by shares of its size; y points down."""
        x, y, width, height = self._middle(selector)
        self.mouse("mousePressed", x, y)
        for step in range(1, steps + 1):
            share = step / steps
            self.mouse("mouseMoved", x + by[0] * width * share, y + by[1] * height * share)
        self.mouse("mouseReleased", x + by[0] * width, y + by[1] * height)

    def touch(self, selector: str, by: tuple[float, float], steps: int = 8) -> None:
        """Drag with a finger, as :meth:`drag` does with a mouse."""
        self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        x, y, width, height = self._middle(selector)
        for step in range(steps + 1):
            at = {"x": x + by[0] * width * step / steps, "y": y + by[1] * height * step / steps}
            kind = "touchMove" if step else "touchStart"
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[at])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.call("Emulation.setTouchEmulationEnabled", enabled=False)

    def key(self, key: str, shift: bool = False) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 * shift)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
