"""A small web server in a thread that knows Range, and can hang up in the middle."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """Serves `content` at every path but those that end in ``missing``."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.ranges: list[str | None] = []  # the Range of each request
        self.send_at_most: int | None = None  # then the connection ends
        self.knows_range = True
        self.tells_length = True
        self.url = ""


@contextmanager
def serve(content: bytes) -> Iterator[Server]:
    server = Server(content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers["Range"]
            server.ranges.append(asked)
            found = re.fullmatch(r"bytes=(\d+)-", asked or "") if server.knows_range else None
            start = int(found[1]) if found else 0
            if self.path.endswith("missing") or start >= len(server.content):
                self.send_error(404 if self.path.endswith("missing") else 416)
                return
            body = server.content[start:]
            self.send_response(206 if found else 200)
            if server.tells_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: server.send_at_most])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.url = f"http://127.0.0.1:{http.server_port}"
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
