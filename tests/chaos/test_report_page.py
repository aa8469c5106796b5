"""The report in a real browser: it draws without an error, shows its anomalies, zooms, can be read out."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from chaos.report.page import write_report
from tests.support.chaos import synthetic_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Played after the page has drawn itself: what a user does, and what the page then says.
USER = """
<script type="module">
const byId = (id) => document.getElementById(id);
const add = (words) => document.body.insertAdjacentHTML("beforeend", words);
const say = (name, text) => add(`<p data-said="${name}">${text}</p>`);
const texts = (selector) => [...document.querySelectorAll(selector)].map((found) => found.textContent);
const range = () => texts("#toolbar output")[0];
const host = byId("timeline");
const plot = document.querySelector("svg.axis").getBoundingClientRect();
const at = (share) => ({ clientX: plot.left + share * plot.width, bubbles: true });
const fire = (type, share) => host.dispatchEvent(new PointerEvent(type, at(share)));
host.setPointerCapture = () => {}; // made-up pointers cannot be captured

fire("pointermove", 0.5);
say("hover", texts("#timeline output").join(" | "));
fire("pointerdown", 0.25);
fire("pointermove", 0.5);
fire("pointerup", 0.5);
say("zoomed", range());
host.dispatchEvent(new MouseEvent("dblclick", at(0.5)));
say("whole", range());
byId("anomaly-0").querySelector(".when").click();
say("evidence", texts("#timeline .section")[0]);
say("around", range());
host.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
host.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
say("spoken", byId("spoken").textContent);
</script>
"""


# In a frame as wide as a telephone: a browser's own window cannot be that narrow.
NARROW = """
<!doctype html><body><iframe id="frame" src="{page}" width="400" height="900"></iframe>
<script>
document.getElementById("frame").onload = (loaded) => {{
  const axis = loaded.target.contentDocument.querySelector("svg.axis");
  const width = axis.getBoundingClientRect().width;
  const page = loaded.target.contentDocument.documentElement.scrollWidth;
  document.body.insertAdjacentHTML("beforeend", `<p data-said="${{"width"}}">${{Math.round(width)}}</p>`);
  document.body.insertAdjacentHTML("beforeend", `<p data-said="${{"page"}}">${{page}}</p>`);
}};
</script>
"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser on PATH ({', '.join(BROWSERS)})")
    return found


def shown(browser: str, page: Path, profile: Path) -> str:
    """The page as it is after its scripts ran."""
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1400,900",
        "--virtual-time-budget=2000",
        "--allow-file-access-from-files",
    ]
    command = [browser, *flags, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout


def said(page: str, name: str) -> str:
    found = re.search(f'data-said="{name}">(.*?)</p>', page, re.DOTALL)
    assert found, f"the user's script did not come to {name}"
    return html.unescape(found[1])


@pytest.mark.row("C2")
def test_the_report_draws_everything_in_a_browser(browser: str, tmp_path: Path) -> None:
    synthetic_run.write(tmp_path)
    page = shown(browser, write_report(tmp_path), tmp_path / "profile")
    assert 'data-drawn="yes"' in page
    assert "data-error" not in page.partition(">")[2].partition(">")[0]
    assert "✗ broken" in page
    assert "2 of 3 expectations met" in page
    for heading in ("Faults", "Nodes", "Acknowledged writes", "Latency", "Outcomes", "Partitions"):
        assert f"<h3>{heading}" in page
    assert "no ack for 8.0" in page  # the longest gap, with acks=all, while node 3 is paused
    assert page.count('class="watermark"') == 4
    assert 'class="fall"' in page  # of the high watermark of one-0
    assert "◆ forbidden" in page
    assert "duplicate" in page
    assert page.count("◇ allowed") > 50
    assert "broker 1 is fenced or shutting down, 2 was in the ISR" in page  # who led, and why
    assert re.search(r'<tr class="done">.*?kill 1 begins', page)
    assert "Expected: one-0: node 2 was elected" in page
    assert "What the words mean" in page
    # Its evidence is unfolded, and the place that it is about is marked.
    assert re.search(r'<span class="marked"><i>201:</i>\d+</span>', page)
    drawn = re.sub("<(script|style).*?</(script|style)>", "", page, flags=re.DOTALL)
    assert not re.search("NaN|undefined|Infinity", drawn)


def test_the_report_answers_mouse_and_keyboard(browser: str, tmp_path: Path) -> None:
    synthetic_run.write(tmp_path)
    report = write_report(tmp_path)
    report.write_text(
        report.read_text(encoding="utf-8").replace("</body>", USER + "</body>"), encoding="utf-8"
    )
    page = shown(browser, report, tmp_path / "profile")
    hover = said(page, "hover")
    assert "cut 2>1" not in hover  # at 30 s
    for reading in ("kill 1", "down", "3 · term 2", "p50", "leader 2, epoch 3\nISR 2 3", "HW"):
        assert reading in hover
    begin, end = (float(second) for second in re.findall(r"([\d.]+) s", said(page, "zoomed")))
    whole = [float(second) for second in re.findall(r"([\d.]+) s", said(page, "whole"))]
    assert whole[0] == 0.0
    assert begin == pytest.approx(whole[1] / 4, rel=0.01)
    assert end == pytest.approx(whole[1] / 2, rel=0.01)
    assert "process 0" in said(page, "evidence")
    assert said(page, "around") != said(page, "whole")
    assert "controller 3 · term 2" in said(page, "spoken")


def test_the_report_has_room_for_its_plot_on_a_telephone(browser: str, tmp_path: Path) -> None:
    synthetic_run.write(tmp_path)
    report = write_report(tmp_path)
    narrow = tmp_path / "narrow.html"
    narrow.write_text(NARROW.format(page=report.name))
    page = shown(browser, narrow, tmp_path / "profile")
    assert int(said(page, "width")) > 250
    assert int(said(page, "page")) <= 400, "nobody has to scroll sideways"
