"""As much of the hub's protocol as pushing and pulling a repository of models asks for."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories by name, each a dict of files, and the commits that were made."""

    def __init__(self):
        self.repositories, self.uploads, self.commits = {}, {}, []
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        """Say nothing."""

    def _answer(self, code, content=b"", **headers):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers["Content-Type"] = "application/json"
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    @property
    def _path(self):
        return unquote(urlsplit(self.path).path)

    def do_POST(self):  # the name that the standard library calls
        path, body = self._path, self._body()
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            self.hub.repositories.setdefault(name, {})
            self._answer(200, {"url": f"{self.hub.url}/{name}"})
        elif path == "/api/validate-yaml":
            is_card = json.loads(body)["content"].startswith("---\n")
            errors = [] if is_card else [{"message": "no card"}]
            self._answer(200 if is_card else 400, {"errors": errors, "warnings": []})
        elif found := re.fullmatch(r"/api/models/(.+)/preupload/(.+)", path):
            files = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                     for f in json.loads(body)["files"]]  # fmt: skip
            self._answer(200, {"files": files})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/(.+)", path):
            self._commit(found[1], body)
        else:
            self._answer(404, {"error": path})

    def _commit(self, name, body):
        repository = self.hub.repositories[name]
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        self.hub.commits.append(lines)
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                repository[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del repository[value["path"]]
        self._answer(200, {"success": True, "commitOid": COMMIT, "hookOutput": "",
                           "commitUrl": f"{self.hub.url}/{name}/commit/{COMMIT}"})  # fmt: skip

    def do_GET(self):  # the name that the standard library calls
        path = self._path
        if found := re.fullmatch(r"/api/models/(.+?)/tree/[^/]+(?:/.*)?", path):
            self._answer(200, [
                {"type": "file", "path": p, "size": len(c), "oid": _digest(c)}
                for p, c in sorted(self.hub.repositories.get(found[1], {}).items())
            ])  # fmt: skip
        elif found := re.fullmatch(r"/api/models/(.+?)(?:/revision/.+)?", path):
            files = self.hub.repositories.get(found[1])
            if files is None:
                self._answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
                return
            self._answer(200, {"id": found[1], "modelId": found[1], "sha": COMMIT, "tags": [],
                               "private": False, "downloads": 0, "likes": 0,
                               "siblings": [{"rfilename": p} for p in files]})  # fmt: skip
        elif found := re.fullmatch(r"/(.+?)/resolve/[^/]+/(.+)", path):
            content = self.hub.repositories.get(found[1], {}).get(found[2])
            if content is None:
                self._answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
                return
            self._answer(200, content, ETag=f'"{_digest(content)}"', X_Repo_Commit=COMMIT,
                         Accept_Ranges="bytes")  # fmt: skip
        else:
            self._answer(404, {"error": path})

    def do_HEAD(self):  # the name that the standard library calls
        self.do_GET()


def _digest(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
