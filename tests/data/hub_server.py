"""A Hugging Face hub on this machine: its addresses and answers, for data sets in folders."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Hub(ThreadingHTTPServer):
    """Serves `commits`: (repo, commit) -> {path: bytes}; the last commit of a set is its branch `main`.

    Files are small, so LFS ones are those that end in `.parquet`, `.tar` or `.arrow`. As the real hub, it sends the
    latter from another address; it needs `token` where one is set.
    """

    daemon_threads = True
    commits: dict[tuple[str, str], dict[str, bytes]]
    cards: dict[str, dict]
    token: str | None = None
    stop_after: int | None = None
    lies: dict[str, bytes]  # path -> what is sent instead
    sent: list[tuple[str, str | None]]
    private: set[str]  # data sets that were made for their owners alone

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def main(self, repo: str) -> str | None:
        return next((commit for name, commit in reversed(self.commits) if name == repo), None)


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        hub.sent.append((path, self.headers.get("Authorization")))
        if hub.token and not path.startswith("/cdn/") and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.answer(401, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
        parts = path.strip("/").split("/")
        if parts == ["api", "whoami-v2"]:
            return self.answer(200, b'{"type": "user", "name": "somebody"}')
        if parts[:2] == ["api", "datasets"]:
            return self.api("/".join(parts[2:4]), parts[4:])
        if len(parts) < 6:  # what the client asks besides
            return self.answer(404, b"{}")
        repo, commit, name = "/".join(parts[1:3]), parts[4], "/".join(parts[5:])
        body = hub.commits.get((repo, commit), {}).get(name)
        if body is None:
            return self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        facts = {"X-Repo-Commit": commit, "ETag": f'"{git_sha1(body)}"'}
        if parts[0] == "datasets" and is_large(name):
            facts |= {"X-Linked-ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Linked-Size": str(len(body))}
            return self.answer(302, b"", {**facts, "Location": f"{hub.url}/cdn/{'/'.join(parts[1:])}"})
        body = hub.lies.get(name, body)
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if start else 200)
        for key, value in {**facts, "Content-Length": str(len(body) - start)}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[start : hub.stop_after])

    def do_POST(self) -> None:
        """What pushing a folder asks: a data set, how files are sent, and a commit of small files."""
        hub, path = self.server, unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        hub.sent.append((path, self.headers.get("Authorization")))
        if not hub.token or self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.answer(401, b'{"error": "Invalid username or password."}')
        parts = path.strip("/").split("/")
        if parts == ["api", "repos", "create"]:
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            if hub.main(repo) is not None:
                return self.answer(409, b'{"url": "' + f"{hub.url}/datasets/{repo}".encode() + b'"}')
            if asked.get("private") or asked.get("visibility") == "private":  # as versions of the client say it
                hub.private.add(repo)
            hub.commits[repo, "0" * 40] = {".gitattributes": b""}
            return self.answer(200, json.dumps({"url": f"{hub.url}/datasets/{repo}"}).encode())
        if parts[1:2] == ["validate-yaml"]:
            return self.answer(200, b'{"errors": [], "warnings": []}')
        repo = "/".join(parts[2:4])
        if parts[4] == "preupload":
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            return self.answer(200, json.dumps({"files": files}).encode())
        before = hub.main(repo)
        there = dict(hub.commits[repo, str(before)])
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "deletedFile":
                there.pop(line["value"]["path"])
            elif line["key"] == "file":
                there[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        commit = hashlib.sha1(body).hexdigest()
        hub.commits[repo, commit] = there
        made = {"commitUrl": f"{hub.url}/datasets/{repo}/commit/{commit}", "commitOid": commit, "success": True}
        self.answer(200, json.dumps(made).encode())

    def api(self, repo: str, rest: list[str]) -> None:
        hub, main = self.server, self.server.main(repo)
        if main is None:
            return self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        if rest[:1] == ["commits"]:
            commits = [commit for name, commit in reversed(hub.commits) if name == repo]
            stamp = "2023-01-20T00:00:00.000Z"
            return self.answer(
                200,
                json.dumps(
                    [{"id": one, "authors": [], "date": stamp, "title": "", "message": ""} for one in commits]
                ).encode(),
            )
        if rest[:1] == ["tree"]:
            files = hub.commits[repo, main if rest[1] == "main" else rest[1]]
            tree = [{"type": "file", "path": n, "size": len(b), "oid": git_sha1(b)} for n, b in files.items()]
            return self.answer(200, json.dumps(tree).encode())
        asked = rest[1] if rest[:1] == ["revision"] else "main"
        commit = main if asked == "main" else asked
        if (repo, commit) not in hub.commits:
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        siblings = []
        for name, body in hub.commits[repo, commit].items():
            one = {"rfilename": name, "size": len(body), "blobId": git_sha1(body)}
            if is_large(name):
                one["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
            siblings.append(one)
        about = {"id": repo, "sha": commit, "siblings": siblings, "cardData": hub.cards.get(repo, {"license": "mit"})}
        self.answer(200, json.dumps(about).encode())

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def git_sha1(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def is_large(name: str) -> bool:
    return name.endswith((".parquet", ".tar", ".arrow", ".zip"))


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub(("127.0.0.1", 0), Handler)
    hub.commits, hub.cards, hub.sent, hub.lies, hub.private = {}, {}, [], {}, set()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


def files_in(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, as a commit."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
