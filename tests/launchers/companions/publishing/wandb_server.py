"""A stand-in for the service of Weights & Biases: as much of it as their own client needs to log and resume runs."""

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Kept:
    """What the service has of a run. ``history``: rows by their position."""

    project: str
    config: str = "{}"
    summary: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)
    exit_code: int | None = None
    group: str | None = None
    files: set[str] = field(default_factory=set)


class Service:
    """``runs``: by id. ``uri``: for WANDB_BASE_URL."""

    def __init__(self) -> None:
        self.runs: dict[str, Kept] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"service": self}))
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        """The data of a GraphQL operation."""
        name = (re.search(r"(?:query|mutation)\s+(\w+)", query) or [""])[1] if query else ""
        entity = {"id": "e", "name": "me"}
        if "upsertBucket" in query:
            key = given["name"]
            inserted = key not in self.runs
            run = self.runs.setdefault(key, Kept(given.get("project") or "p"))
            run.config = given.get("config") or run.config
            run.group = given.get("groupName") or run.group
            project = {"id": "p", "name": run.project, "entity": entity}
            bucket = {"id": key, "name": key, "displayName": key, "project": project, "config": run.config}
            bucket |= {"sweepName": None, "description": None, "historyLineCount": len(run.history)}
            return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}
        if name == "RunResumeStatus":
            run = self.runs.get(given["name"])
            bucket = None if run is None else self._resumed(given["name"], run)
            return {"model": {"id": "p", "name": given.get("project"), "entity": entity, "bucket": bucket}}
        if "createRunFiles" in query:
            names = given.get("files") or []
            self.runs[given["run"]].files |= {*names}
            files = [{"name": each, "uploadUrl": f"{self.uri}/upload/{each}"} for each in names]
            return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
        viewer = {"id": "v", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}, "email": ""}
        info = {"cliVersionInfo": {"max_cli_version": "9"}, "latestLocalVersionInfo": None, "features": []}
        return {"viewer": viewer, "serverInfo": info}

    @staticmethod
    def _resumed(key: str, run: Kept) -> dict[str, Any]:
        last = [json.dumps(run.history[max(run.history)])] if run.history else []
        bucket: dict[str, Any] = {"id": key, "name": key, "summaryMetrics": json.dumps(run.summary), "displayName": key}
        bucket |= {"config": run.config, "historyLineCount": len(run.history), "historyTail": json.dumps(last)}
        bucket |= {"logLineCount": 0, "eventsLineCount": 0, "eventsTail": "[]", "tags": []}
        bucket |= {"wandbConfig": json.dumps({"t": 1})}  # without which a run counts as one that never began
        return bucket


class _Handler(BaseHTTPRequestHandler):
    service: Service

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path.endswith("/graphql"):
            self._send({"data": self.service.answer(content.get("query", ""), content.get("variables") or {})})
            return
        run = self.service.runs[self.path.split("/")[-2]]
        files = content.get("files") or {}
        for name, part in files.items():
            for line, text in enumerate(part["content"], part["offset"]):
                if name == "wandb-history.jsonl":
                    run.history[line] = json.loads(text)
                elif name == "wandb-summary.json":
                    run.summary = json.loads(text)
        run.exit_code = content.get("exitcode", run.exit_code) if content.get("complete") else run.exit_code
        self._send({"limits": {}})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._send({})

    def do_GET(self) -> None:
        self._send({})

    def _send(self, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None: ...
