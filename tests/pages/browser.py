"""A real browser for tests of pages: Debian's Chromium, driven by its own protocol over a pipe.

There is nothing to install but Chromium itself (`apt-get install chromium`); without it the tests
skip. A test module asks for the fixture by name, after one line at its top:

    pytest_plugins = ["tests.pages.browser"]

    def test_a_page(page, tmp_path):
        page.open(html_or_path, width=390, height=844, dark=True)
        page.select("#kx-a-shape", "ramp")           # an option by its value or by its text
        page.set("#kx-a-p-width", 0.1)               # a slider, a number box, a text box
        page.click("button.reset")                   # a real click, in the middle of the element
        page.press("Tab")
        assert page.evaluate("document.title") == "..."
        page.wait("document.querySelectorAll('path').length > 3")
        page.screenshot(tmp_path / "page.png")       # the whole page, not just the window
        assert not page.errors and not page.external and not page.overflow()

`page` is one tab. `open` may be called again: it starts from a blank tab with empty lists.

`page.console`     everything written to the console, as "level: text"
`page.errors`      what of it is an error, uncaught exceptions included
`page.requests`    every address asked for, the page's own first
`page.external`    those that are neither files nor inside the page: must be empty
`page.overflow()`  by how many pixels the page is wider than its window: must be 0

There is never a network: no host name resolves, and `offline=True` says so to the page as well.
`width` below 600 is a phone: touch, and the page's own viewport tag is obeyed. One Chromium serves
all tests of a process; its profile is empty and is deleted at the end. PYTEST_DONT_REWRITE
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
PATIENCE = 60.0
"""How many seconds anything may take; machines that test are often busy."""


class BrowserError(Exception):
    """The browser refused, a script in the page threw, or nothing happened for too long."""


def _pipe():
    """Both ends of a pipe, out of the way of 3 and 4, where Chromium wants to find them."""
    low = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in low]
    for fd in low:
        os.close(fd)
    return high


class Chromium:
    """The process and its pipe: commands go in, answers and events come out."""

    def __init__(self, profile):
        (inward, write), (read, outward) = _pipe(), _pipe()
        self.write, self.read, self.rest, self.count = write, read, b"", 0
        self.listeners = {}
        self.log = open(profile / "stderr.txt", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{inward} 4>&{outward}', "bash", CHROMIUM, *FLAGS,
             f"--user-data-dir={profile / 'profile'}"],
            pass_fds=(inward, outward), stdout=subprocess.DEVNULL, stderr=self.log,
            env={**os.environ, "HOME": str(profile)},
        )  # fmt: skip
        os.close(inward)
        os.close(outward)

    def command(self, method, session=None, **params):
        """Send a command and return its answer; events on the way go to their listeners."""
        self.count += 1
        number, end = self.count, time.monotonic() + PATIENCE
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message(end, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def message(self, end, what):
        while b"\0" not in self.rest:
            if not select.select([self.read], [], [], max(end - time.monotonic(), 0))[0]:
                raise BrowserError(f"no answer to {what} within {PATIENCE:g} seconds")
            got = os.read(self.read, 1 << 20)
            if not got:
                raise BrowserError(f"Chromium ended during {what}; see {self.log.name}")
            self.rest += got
        raw, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(raw)
        if "method" in message and message.get("sessionId") in self.listeners:
            self.listeners[message["sessionId"]](message["method"], message["params"])
        return message

    def close(self):
        with contextlib.suppress(BrowserError, OSError):
            self.command("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        os.close(self.write)
        os.close(self.read)
        self.log.close()


class Page:
    """One tab; see the module's docstring."""

    def __init__(self, chromium, folder):
        self.chromium, self.folder, self.target, self.session = chromium, folder, None, None
        self.console, self.errors, self.requests = [], [], []
        self.loaded, self.width, self.height = False, 0, 0

    def open(self, page, width=1280, height=900, dark=False, offline=True, hash=""):
        """Load a file, or HTML given as text, in a window of this size and colour scheme."""
        if not isinstance(page, Path):
            text, page = page, self.folder / "page.html"
            page.write_text(text, encoding="utf-8")
        self.close()
        self.console, self.errors, self.requests = [], [], []
        self.loaded, self.width, self.height = False, width, height
        self.target = self.chromium.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.chromium.command(
            "Target.attachToTarget", targetId=self.target, flatten=True
        )
        self.session = attached["sessionId"]
        self.chromium.listeners[self.session] = self._event
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._do(f"{domain}.enable")
        self._resize(height)
        self._do("Emulation.setTouchEmulationEnabled", enabled=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self._do("Emulation.setEmulatedMedia", features=[scheme, still])
        if offline:
            self._do(
                "Network.emulateNetworkConditions",
                offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1,
            )  # fmt: skip
        self._do("Page.navigate", url=page.resolve().as_uri() + hash)
        self._until(lambda: self.loaded, "the page to load")
        return self

    def evaluate(self, script):
        """The value of an expression in the page, by way of JSON; a promise is awaited."""
        answer = self._do(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, script):
        """Wait until an expression in the page is true."""
        self._until(lambda: self.evaluate(f"!!({script})"), script)

    def settle(self):
        """Wait until what was asked for has been drawn."""
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
        )

    def click(self, selector):
        """A click in the middle of an element, once it has come to rest in view."""
        x, y = self.evaluate(f"""new Promise((found, failed) => {{
            const e = document.querySelector({json.dumps(selector)});
            if (!e) return failed(new Error("nothing matches " + {json.dumps(selector)}));
            const end = performance.now() + {500 * PATIENCE};
            let before = "", calm = 0;
            function look() {{
                e.scrollIntoView({{block: "center", behavior: "instant"}});
                const box = e.getBoundingClientRect();
                const at = [box.x + box.width / 2, box.y + box.height / 2];
                const hit = document.elementFromPoint(...at);
                calm = String(at) === before && hit && e.contains(hit) ? calm + 1 : 0;
                if (calm === 3) return found(at);
                if (performance.now() > end) return failed(new Error("never in view: " + at));
                before = String(at);
                requestAnimationFrame(look);
            }}
            look();
        }})""")
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)
        self.settle()

    def mouse(self, kind, x, y):
        """`mouseMoved`, `mousePressed` or `mouseReleased` at a point of the window."""
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self._do("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def press(self, key, code=0):
        """A key by its name, such as Tab or ArrowRight."""
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        for kind in ("keyDown", "keyUp"):
            self._do(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code or codes.get(key, 0),
            )  # fmt: skip
        self.settle()

    def set(self, selector, value):
        """Give an input a value, as a user would."""
        self._input(selector, f"e.value = {json.dumps(str(value))};")

    def select(self, selector, option):
        """Pick an option by its value, or by a text that starts like this."""
        self._input(
            selector,
            f"""const wanted = {json.dumps(str(option))}, options = [...e.options];
            const found = options.find(o => o.value === wanted)
              || options.find(o => o.text === wanted)
              || options.find(o => o.text.startsWith(wanted));
            if (!found) throw new Error(`no option ${{wanted}}`);
            e.value = found.value;""",
        )

    def _input(self, selector, act):
        self.evaluate(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            if (!e) throw new Error("nothing matches " + {json.dumps(selector)});
            {act}
            for (const kind of ["input", "change"]) e.dispatchEvent(new Event(kind, {{bubbles: true}}));
        }})()""")  # noqa: E501
        self.settle()

    def screenshot(self, path):
        """The whole page as a PNG file."""
        self.settle()
        tall = self.evaluate("document.scrollingElement.scrollHeight")
        self._resize(max(tall, self.height))  # a window of that height, so that nothing sticks
        self.settle()
        shot = self._do("Page.captureScreenshot")
        self._resize(self.height)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def _resize(self, height):
        phone = self.width < 600
        self._do(
            "Emulation.setDeviceMetricsOverride",
            width=self.width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip

    def overflow(self):
        """How many pixels the page is wider than the window that was asked for."""
        return max(self.evaluate("document.scrollingElement.scrollWidth") - self.width, 0)

    @property
    def external(self):
        inside = ("file:", "data:", "blob:", "about:")
        return [url for url in self.requests if not url.startswith(inside)]

    def close(self):
        if self.session:
            self.chromium.listeners.pop(self.session)
            self.chromium.command("Target.closeTarget", targetId=self.target)
            self.session = None

    def _do(self, method, **params):
        return self.chromium.command(method, self.session, **params)

    def _until(self, condition, what):
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise BrowserError(f"waited {PATIENCE:g} seconds for {what}")
            self._do("Runtime.getHeapUsage")  # lets events in
            time.sleep(0.01)

    def _event(self, method, params):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            self._say("error", text)
        elif method == "Runtime.consoleAPICalled":
            words = [str(a.get("value", a.get("description", ""))) for a in params["args"]]
            self._say(params["type"], " ".join(words))
        elif method == "Log.entryAdded":
            self._say(params["entry"]["level"], params["entry"]["text"])

    def _say(self, level, text):
        self.console.append(f"{level}: {text}")
        if level in ("error", "assert"):
            self.errors.append(text)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("there is no Chromium to look at the page with: apt-get install chromium")
    browser = Chromium(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def page(chromium, tmp_path):
    tab = Page(chromium, tmp_path)
    yield tab
    tab.close()
