"""The page: self-contained, well-formed, and no text of a model becomes markup."""

import base64
import hashlib
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from popu.config import Base, Engine, Run, Training
from popu.report import page as module
from popu.report.evidence import Arm
from popu.report.page import page
from popu.report.tables import Table
from popu.rundir import RunDirectory

HOSTILE = "def f(x):\n    return '</pre><script>document.title = 1</script><img src=x onerror=alert(1)>'"
VOID = {"meta", "img", "br"}


class Checked(HTMLParser):
    """Every tag is closed in order; collects tags and the text of `pre`."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.pre = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "pre" in self.open:
            self.pre += data


@pytest.fixture()
def text(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "seed1")
    run.create(Run(arm="a", seed=1, training=Training(), base=Base(path="b"), base_sha256="0" * 64, engine=Engine()))
    problem = {"program": HOSTILE, "inputs": ["1"], "outputs": ["'&lt;'"]}
    monkeypatch.setattr(module, "_commonest", lambda run, step: (problem, 3, 9, 0.25))
    monkeypatch.setattr(module, "_lineage", lambda arm: "")
    table = Table("t", "A <table>", "a & b", ["name", "n"], [["<b>", 12.0], ["x", 3.0]])
    picture = tmp_path / "p.png"
    picture.write_bytes(b"\x89PNG")
    return page("<experiment>", {"a": Arm("a", {1: run}, {1: []}, {})}, [table], [(picture, "P", "caption")])


def test_text_of_a_model_stays_text(text):
    checked = Checked(text)
    assert HOSTILE in checked.pre and "'&lt;'" in checked.pre
    assert [tag for tag, _ in checked.tags].count("script") == 1
    assert all(attrs["src"].startswith("data:image/png;base64,") for tag, attrs in checked.tags if tag == "img")


def test_nothing_is_fetched(text):
    assert not re.search(r"(src|href)=[\"'](?!data:|#)", text)
    policies = [attrs["content"] for _, attrs in Checked(text).tags if "http-equiv" in attrs]
    assert len(policies) == 1 and policies[0].startswith("default-src 'none'")


def test_the_policy_allows_the_page_s_own_script_alone(text):
    script = re.search(r"<script>(.*)</script></body>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_headers_sort_from_the_keyboard(text):
    heads = [tag for tag, _ in Checked(text).tags if tag in ("th", "button")]
    assert heads and heads.count("th") == heads.count("button")


@pytest.mark.slow
def test_in_a_browser(text, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium (apt-get install chromium)")
    # The page sorts its second column when it is opened here; its own policy has to allow that one script.
    click = "document.querySelectorAll('th button')[8].click();"
    digest = base64.b64encode(hashlib.sha256(click.encode()).digest()).decode()
    opened = text.replace("script-src ", f"script-src 'sha256-{digest}' ").replace(
        "</body>", f"<script>{click}</script></body>"
    )
    (tmp_path / "page.html").write_text(opened)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    result = subprocess.run(
        [*command, "--dump-dom", f"file://{tmp_path / 'page.html'}"], capture_output=True, text=True, timeout=120
    )
    assert "<title>PopuLoRA: &lt;experiment&gt;</title>" in result.stdout, "a hostile program set the title"
    assert result.stdout.index("<td>3.0</td>") < result.stdout.index("<td>12.0</td>"), "sorted by the second column"
