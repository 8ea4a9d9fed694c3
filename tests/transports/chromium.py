"""A headless Chromium for tests, driven over its DevTools protocol, whose microphone is a WAV file.

Source of the protocol: https://chromedevtools.github.io/devtools-protocol/ (targets in one flat connection).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

DEADLINE_S = 30.0


class BrowserError(AssertionError):
    """The browser refused a command, or the page's script raised."""


@dataclass
class Page:
    """One tab. ``errors``: what its console and its scripts complained of."""

    browser: Browser
    session: str
    context: str
    errors: list[str] = field(default_factory=list)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self.browser.call(method, session=self.session, **parameters)

    async def goto(self, url: str) -> None:
        loaded = self.browser.expect(self.session, "Page.loadEventFired")
        result = await self.call("Page.navigate", url=url)
        if "errorText" in result:
            raise BrowserError(f"{url}: {result['errorText']}")
        await asyncio.wait_for(loaded, DEADLINE_S)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        result = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    async def until(self, condition: str, deadline_s: float = DEADLINE_S) -> Any:
        """Wait until an expression is true in the page, looked at as often as it is drawn."""
        script = f"""new Promise((done, failed) => {{
            const started = performance.now();
            const look = () => {{
                try {{ const value = {condition}; if (value) return done(value); }} catch (error) {{ return failed(error); }}
                if (performance.now() - started < {deadline_s * 1000}) return setTimeout(look, 10);
                failed(new Error("not within the deadline: " + {json.dumps(condition)} + "\\n" + document.body.innerText));
            }};
            look();
        }})"""
        return await self.evaluate(script)

    async def text(self, selector: str) -> str:
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def click(self, selector: str) -> None:
        """With the mouse, in the middle of what is seen of it."""
        box = await self.evaluate(
            f"""(async () => {{
                const element = document.querySelector({json.dumps(selector)});
                element.scrollIntoView({{ block: "center", behavior: "instant" }});
                const drawn = () => new Promise(requestAnimationFrame);
                await drawn(); // a click before the first picture is lost
                await drawn();
                const box = element.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                const hit = document.elementFromPoint(x, y);
                return {{ x, y, hit: element.contains(hit), disabled: Boolean(element.disabled) }};
            }})()"""
        )
        assert box["hit"], f"{selector} is covered or not visible"
        assert not box["disabled"], f"{selector} is disabled"
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=box["x"], y=box["y"], button="left", clickCount=1)

    async def press(self, key: str, text: str = "") -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        same = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes.get(key, 0)}
        typed = text or {"Enter": "\r", " ": " "}.get(key, "")
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=typed, **same)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def resize(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def close(self) -> None:
        """And forget all that its profile had."""
        await self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    async def screenshot(self, path: Path, *, whole: bool = False) -> None:
        picture = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))


class Browser:
    """The connection to a running Chromium."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._expected: list[tuple[str, str, asyncio.Future[None]]] = []
        self._pages: dict[str, Page] = {}

    async def listen(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                answer = self._answers.pop(said["id"])
                if not answer.done():
                    answer.set_result(said)
            else:
                self._event(said.get("sessionId", ""), said["method"], said["params"])
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BrowserError("Chromium went away"))

    def _event(self, session: str, method: str, params: dict[str, Any]) -> None:
        for entry in [e for e in self._expected if e[:2] == (session, method)]:
            self._expected.remove(entry)
            if not entry[2].done():
                entry[2].set_result(None)
        page = self._pages.get(session)
        if page is None:
            return
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            page.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            page.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            page.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(message | ({"sessionId": session} if session else {}))
        said = await asyncio.wait_for(answer, 120)
        if "error" in said:
            raise BrowserError(f"{method}: {said['error']['message']}")
        result: dict[str, Any] = said["result"]
        return result

    def expect(self, session: str, method: str) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected.append((session, method, future))
        return future

    async def page(self, *, before: str = "") -> Page:
        """A new tab, in a profile of its own. ``before``: a script that runs in it before the page's own."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = (await self.call("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = self._pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Log"):
            await page.call(f"{domain}.enable")
        await page.call("Page.bringToFront")
        if before:
            await page.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        return page


@contextlib.asynccontextmanager
async def chromium(
    microphone: Path | None = None, *, switches: Sequence[str] = (), environment: dict[str, str] | None = None
) -> AsyncIterator[Browser]:
    """A Chromium of its own. It hears ``microphone`` once, from the moment a page opens it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="voiceflow-chromium-", ignore_cleanup_errors=True) as folder:
        command = [
            program,
            "--headless=new",
            "--no-sandbox",  # CI runs as root
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--autoplay-policy=no-user-gesture-required",
            f"--user-data-dir={folder}",
            "--remote-debugging-port=0",
            *(("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream") if microphone else ()),
            *((f"--use-file-for-fake-audio-capture={microphone}%noloop",) if microphone else ()),
            *switches,
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, env=environment, limit=2**20
        )
        try:
            assert process.stderr is not None
            url = await asyncio.wait_for(_address(process.stderr), DEADLINE_S)
            drain = asyncio.create_task(_drain(process.stderr))
            async with aiohttp.ClientSession() as client, client.ws_connect(url, max_msg_size=2**26) as socket:
                browser = Browser(socket)
                listening = asyncio.create_task(browser.listen())
                try:
                    yield browser
                finally:
                    with contextlib.suppress(BrowserError, ConnectionError, TimeoutError):
                        await asyncio.wait_for(browser.call("Browser.close"), 5)
                    await asyncio.wait([listening], timeout=5)
                    listening.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await drain


async def _address(stderr: asyncio.StreamReader) -> str:
    log = b""
    async for line in stderr:
        log += line
        if found := re.search(rb"DevTools listening on (ws://\S+)", line):
            return found[1].decode()
    raise BrowserError(f"Chromium did not start:\n{log.decode(errors='replace')}")


async def _drain(stderr: asyncio.StreamReader) -> None:
    async for _ in stderr:
        pass
