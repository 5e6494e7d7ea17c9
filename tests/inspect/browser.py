"""A headless Chromium, spoken to over a pipe in the DevTools protocol: enough to click, read and take pictures."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The path of a Chromium on this machine."""
    return os.environ.get("NGMP_CHROMIUM") or next((p for p in map(shutil.which, NAMES) if p), None)


class Browser:
    """One page; a context manager. The network is cut off, so that a page that needs one fails."""

    def __init__(self, url: str, width: int = 1280, height: int = 900, dark: bool = False):
        self.url, self.size, self.dark = url, (width, height), dark
        self._count = 0

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp()
        ends = [*os.pipe(), *os.pipe()]
        theirs_in, self._out, self._in, theirs_out = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in ends)
        for fd in ends:
            os.close(fd)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        flags += [f"--user-data-dir={self._folder}", "--disable-dev-shm-usage", "--disable-background-networking"]
        command = [str(find()), *flags, "--host-resolver-rules=MAP * 0.0.0.0", "about:blank"]
        wire = "import os, sys; a, b, *c = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execv(c[0], c)"
        wired = [sys.executable, "-Sc", wire, str(theirs_in), str(theirs_out), *command]  # the protocol is on 3 and 4
        fds = (theirs_in, theirs_out)
        self._process = subprocess.Popen(wired, pass_fds=fds, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self._left, self._session = b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        width, height = self.size
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **shape)
        self.errors: list[str] = []
        self.call("Page.navigate", url=self.url)
        self.wait("document.readyState === 'complete'")
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.terminate()
        self._process.wait(30)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            found = os.read(self._in, 1 << 16)
            if not found:
                raise RuntimeError("the browser went away")
            self._left += found
        head, _, self._left = self._left.partition(b"\0")
        return json.loads(head)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("method") == "Runtime.exceptionThrown":
                self.errors.append(found["params"]["exceptionDetails"].get("exception", {}).get("description", "error"))
            if found.get("id") == self._count:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return found["result"]

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        poll = f"new Promise((yes) => {{ const f = () => ({script}) ? yes(true) : setTimeout(f, 30); f() }})"
        self.run(poll)

    def _at(self, script: str) -> dict[str, float]:
        box = f"const e = {script}; e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
        return self.run(f"(() => {{ {box} return {{x: r.x + r.width / 2, y: r.y + r.height / 2}} }})()")

    def move(self, script: str) -> None:
        """Point at an element."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self._at(script))

    def click(self, script: str) -> None:
        """A real click in the middle of an element."""
        at = self._at(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def picture(self, path: Path, whole: bool = False) -> bytes:
        """A screenshot, of what is seen or of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        data = base64.b64decode(found["data"])
        path.write_bytes(data)
        return data
