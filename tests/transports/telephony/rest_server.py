"""A carrier's REST interface on a loopback port, in a thread: it keeps what it is asked and answers what it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    """By their names in lower case."""
    body: bytes


class RestServer:
    """``answers``: status and JSON body of each request in turn, the last again and again; None: the connection is cut."""

    def __init__(self, answers: Sequence[tuple[int, Any] | None] = ((200, {}),)) -> None:
        self.answers = list(answers)
        self.asked: list[Asked] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = server.answers[min(len(server.asked), len(server.answers) - 1)]
                server.asked.append(Asked(self.command, self.path, headers, body))
                if answer is None:
                    self.close_connection = True
                    return
                status, content = answer
                data = b"" if status == 204 else json.dumps(content).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = _serve

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
