"""The files of benchmarks: checked, and downloaded over real HTTP from a server on this machine."""

import gzip
import hashlib
import http.server
import json
import threading

import pytest

from popu.errors import ArtifactError
from popu.evaluate import data
from popu.evaluate.sources import SOURCES, Source

LINES = [{"task_id": i, "text": "x" * 1000} for i in range(3000)]
CONTENT = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `files` with ranges; `cuts` are the numbers of bytes after which it drops a connection, one a request."""

    files: dict[str, bytes] = {}
    cuts: list[int] = []
    ranges = True
    asked: list[str | None] = []

    def do_GET(self):
        content = self.files.get(self.path)
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        if content is None:
            return self.send_error(404)
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        if first >= len(content):
            return self.send_error(416)
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.wfile.write(content[first : first + self.cuts.pop(0)] if self.cuts else content[first:])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    handler = type("Handler", (Server,), {"files": {"/file": CONTENT}, "cuts": [], "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        handler.url = f"http://127.0.0.1:{running.server_port}"
        yield handler
        running.shutdown()


def source(server, name="/file", content=CONTENT, rows=3000):
    return Source("set/file.jsonl", server.url + name, hashlib.sha256(content).hexdigest(), rows, "none")


def leftovers(directory):
    return sorted(path.name for path in directory.rglob("*.part"))


def test_a_file_is_downloaded_once(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(SOURCES, "set", (source(server),))
    assert data.rows("set") == LINES and data.rows("set") == LINES
    assert len(server.asked) == 1 and "set/file.jsonl: downloading" in capsys.readouterr().err
    assert (tmp_path / "popu/benchmarks/set/file.jsonl").read_bytes() == CONTENT and leftovers(tmp_path) == []


def test_a_cut_connection_is_taken_up_where_it_ended(server, tmp_path):
    server.cuts += [1_000_000, 500_000]
    path = data.download(source(server), tmp_path / "file")
    assert path.read_bytes() == CONTENT and server.asked == [None, "bytes=1000000-", "bytes=1500000-"]


def test_what_was_received_serves_the_next_call(server, tmp_path):
    server.cuts += [700_000] * data.ATTEMPTS
    short = b"".join([CONTENT, CONTENT])
    server.files["/file"] = short
    with pytest.raises(ArtifactError, match="connection ended after"):
        data.download(source(server, content=short), tmp_path / "file")
    assert leftovers(tmp_path) == ["file.part"] and not (tmp_path / "file").exists()
    assert data.download(source(server, content=short), tmp_path / "file").read_bytes() == short
    assert server.asked[-1] == f"bytes={data.ATTEMPTS * 700_000}-" and leftovers(tmp_path) == []


def test_a_part_that_was_whole_is_used(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert data.download(source(server), tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT)}-"]


def test_a_server_without_ranges_sends_all_of_it_again(server, tmp_path):
    server.ranges = False
    server.cuts += [1000]
    assert data.download(source(server), tmp_path / "file").read_bytes() == CONTENT


def test_another_content_is_refused_and_not_kept(server, tmp_path):
    wrong = source(server, content=b"other")
    with pytest.raises(ArtifactError, match=rf"expected sha256 {wrong.sha256[:12]}.*{server.url}/file"):
        data.download(wrong, tmp_path / "file")
    assert leftovers(tmp_path) == [] and not (tmp_path / "file").exists()


def test_a_damaged_archive_is_refused(server, tmp_path):
    server.files["/file"] = gzip.compress(CONTENT)[:-100]
    with pytest.raises(ArtifactError, match="expected a readable file"):
        data.download(source(server), tmp_path / "file")


def test_a_missing_file_is_asked_for_once(server, tmp_path):
    with pytest.raises(ArtifactError, match=r"(?s)404.*evaluation\.data_dir"):
        data.download(source(server, name="/none"), tmp_path / "file")
    assert len(server.asked) == 1


def test_no_server_is_one_message(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "ATTEMPTS", 1)
    nowhere = Source("file", "http://127.0.0.1:9/file", "", 1, "none")
    with pytest.raises(ArtifactError, match=r"could not be downloaded from http://127\.0\.0\.1:9/file"):
        data.download(nowhere, tmp_path / "file")


def test_a_directory_of_the_users_holds_the_same_files_and_nothing_is_downloaded(server, tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES, "set", (source(server),))
    with pytest.raises(ArtifactError, match=rf"set/file\.jsonl: expected a file.*{server.url}"):
        data.rows("set", tmp_path)
    path = tmp_path / "set" / "file.jsonl"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(CONTENT))  # by its lines, however it is packed
    assert data.rows("set", tmp_path) == LINES
    path.write_bytes(CONTENT.replace(b"x", b"y", 1))
    with pytest.raises(ArtifactError, match=r"file\.jsonl: expected sha256 .* delete it and take it from"):
        data.rows("set", tmp_path)
    monkeypatch.setitem(SOURCES, "set", (source(server, rows=2999),))
    path.write_bytes(CONTENT)
    with pytest.raises(ArtifactError, match="expected 2999 rows, found 3000"):
        data.rows("set", tmp_path)
    assert server.asked == []


def test_the_table_names_pinned_revisions():
    sources = [source for files in SOURCES.values() for source in files]
    for entry in sources:
        assert any(len(part) == 40 and set(part) <= set("0123456789abcdef") for part in entry.url.split("/")), entry
        assert len(entry.sha256) == 64 and entry.rows > 0 and entry.licence
    assert len({entry.file for entry in sources}) == len(sources)
    assert sum(entry.rows for entry in SOURCES["livecodebench_v5"]) == 880
