"""The console in a real browser: what happens to the cluster is seen on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.live.cluster import ChaosCluster
from kraft.cli.cluster import console_writes_of
from kraft.local.local_cluster import LocalCluster
from tests.support.browser import Page, chromium
from tests.support.clients.load import Load
from tests.support.clients.rdkafka import QUIET, send
from tests.support.nodes.cluster import running_cluster
from tests.support.nodes.forks import run_kraft
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.row("U5")]

TOPIC = "seen"
FOCUSED = "document.activeElement.id"
CONTRASTS = (Path(__file__).parents[1] / "support" / "contrasts.js").read_text()


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """Three nodes that soon notice who is behind, and are slow to fence."""
    settings = {"replica.lag.time.max.ms": "2000", "broker.session.timeout.ms": "60000"}
    with running_cluster(tmp_path_factory.mktemp("console"), free_ports(9), settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        config = {"retention.ms": "86400000"}
        admin.create_topics([NewTopic(TOPIC, 2, 3, config=config)])[TOPIC].result()
        send(cluster.bootstrap, TOPIC, [{"value": b'{"n": 1}', "key": b"k", "partition": 0}], acks="all")
        yield cluster


@pytest.fixture
def page(watched: LocalCluster, tmp_path: Path) -> Iterator[Page]:
    with chromium(tmp_path) as page:
        page.look_like(width=1280)
        page.open(f"http://127.0.0.1:{watched.nodes[1].http_port}/")
        wait_until(lambda: text(page, "#link") == "live", "the page is live")
        wait_until(lambda: "of 3" in text(page, "#health"), "the cluster is drawn")
        yield page
        assert page.complaints == []


def text(page: Page, selector: str) -> str:
    return str(page.eval(f"document.querySelector({selector!r})?.innerText ?? ''"))


def texts(page: Page, selector: str) -> list[str]:
    found: list[str] = page.eval(f"[...document.querySelectorAll({selector!r})].map((e) => e.innerText)")
    return found


def test_an_isr_shrink_is_seen_with_its_reason_and_so_is_the_return(
    watched: LocalCluster, page: Page
) -> None:
    assert "3 of 3" in text(page, "#health")
    victim = follower_of_both(watched, page)
    with Load(watched.bootstrap, TOPIC, 2):
        watched.pause(victim)
        try:
            wait_until(lambda: "ISR shrink seen-" in text(page, "#events"), "the shrink is on the time line")
            shrink = next(each for each in texts(page, "#events li") if "ISR shrink seen-" in each)
            assert f"{victim} left" in shrink
            assert "replica.lag.time.max.ms" in shrink
            wait_until(lambda: "under-replicated" in text(page, ".partition.bad"), "a bar says so")
            assert f"✗ {victim}" in text(page, ".partition.bad .replica.out")
            rule = "replica.lag.time.max.ms"
            wait_until(lambda: rule in text(page, ".partition.bad .last"), "and by which rule")
            wait_until(lambda: f"Broker {victim}⚠" in packed(page, ".broker.bad"), "the broker is marked")
        finally:
            watched.resume(victim)
        wait_until(lambda: "ISR expand seen-" in text(page, "#events"), "the return is on the time line")
        wait_until(lambda: texts(page, ".partition.bad") == [], "all bars are whole again")


def packed(page: Page, selector: str) -> str:
    return text(page, selector).replace(" ⚠", "⚠").replace("\n", "")


def follower_of_both(cluster: LocalCluster, page: Page) -> int:
    """A broker that leads neither partition and is not the controller."""
    leaders = {int(each.removeprefix("★ ")) for each in texts(page, ".replica.leads .who")}
    controller = next(n for n, each in enumerate(texts(page, ".broker"), 1) if "controller" in each)
    free = set(cluster.nodes) - leaders - {controller, 1}
    return free.pop() if free else (set(cluster.nodes) - {controller, 1}).pop()


def test_the_bars_move_with_the_log_end(watched: LocalCluster, page: Page) -> None:
    width = "document.querySelector('.replica.leads .log').style.width"
    before, mark = page.eval(width), text(page, ".facts")
    with Load(watched.bootstrap, TOPIC, 2):
        wait_until(lambda: page.eval(width) != before and text(page, ".facts") != mark, "the bar has moved")


def test_messages_are_browsed(page: Page) -> None:
    wait_until(lambda: texts(page, ".partition .name"), "partitions are drawn")
    page.eval("document.getElementById('topics-shown').open = true")
    page.eval("document.getElementById('topics-filter').value = 'see'")
    wait_until(lambda: text(page, "#topics .name") == TOPIC, "the topic is listed")
    page.eval("document.querySelector('#topics .name').click()")
    wait_until(lambda: "retention.ms" in text(page, "#topic-configs"), "the configs are shown")
    page.eval("""document.getElementById('browse-from').value = 'offset';
        document.getElementById('browse-from').dispatchEvent(new Event('change'));
        document.getElementById('browse-value').value = '0';
        document.getElementById('browse-as').value = 'json';
        document.getElementById('browse').click()""")
    wait_until(lambda: '"n": 1' in text(page, "#messages"), "the record is shown")
    page.eval("document.getElementById('browse-key').value = 'nowhere'")
    page.eval("document.getElementById('browse-key').focus()")
    page.press("Enter")
    wait_until(lambda: text(page, "#browse-note").startswith("0 of offsets 0 to"), "all are looked at")
    page.press("Escape")  # the search field's own: it is empty then
    page.press("Escape")
    wait_until(lambda: not page.eval("document.getElementById('topic').open"), "Escape closes it")


def test_it_is_used_by_keyboard(page: Page) -> None:
    page.press("?")
    assert (
        page.eval("getComputedStyle(document.querySelector('#h-quorum + .explanation')).display") == "block"
    )
    assert page.eval("document.getElementById('explain').getAttribute('aria-pressed')") == "true"
    page.press("/")
    assert page.eval(FOCUSED) == "filter"
    for key in "nothing?":
        page.press(key)
    wait_until(lambda: text(page, "#shown") == "0 shown", "the filter holds")
    assert page.eval("document.getElementById('explain').getAttribute('aria-pressed')") == "true"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_it_is_readable_at_every_width_and_in_the_dark(
    watched: LocalCluster, page: Page, width: int, dark: bool
) -> None:
    page.look_like(width=width, dark=dark)
    wait_until(lambda: page.eval("innerWidth") == width, "the window has that width")
    require_readable(page, "the page")
    page.press("?")
    for details in ("rights-shown", "topics-shown", "clients-shown"):
        page.eval(f"document.getElementById('{details}').open = true")
    wait_until(lambda: "No authorizer" in text(page, "#rights-note"), "users, quotas and ACLs are shown")
    wait_until(lambda: "shown" in text(page, "#topics-note"), "topics are shown")
    wait_until(lambda: "None pushes" in text(page, "#clients"), "clients that push metrics would be")
    require_readable(page, "all that is explained, and can be opened")
    page.eval("document.querySelector('.partition .name').click()")
    wait_until(lambda: text(page, "#browse-partition"), "the topic is open")
    page.eval("document.getElementById('browse').click()")
    wait_until(lambda: not page.eval("document.getElementById('messages').hidden"), "messages are shown")
    require_readable(page, "a topic", "document.getElementById('topic')")
    page.open(f"http://127.0.0.1:{watched.nodes[1].http_port}/api")
    wait_until(lambda: "/api/v1/topics/" in text(page, "#paths"), "the API is described")
    require_readable(page, "the API")


def require_readable(page: Page, view: str, root: str = "document.documentElement") -> None:
    """Nobody scrolls sideways, and WCAG 2's ratios hold: 4.5 for text, 3 for what is drawn."""
    assert page.eval(f"{root}.scrollWidth <= {root}.clientWidth"), f"{view} is wider than its window"
    faint = [each for each in page.eval(CONTRASTS) if each["ratio"] < each["wanted"]]
    assert faint == [], view


def test_every_action_is_reached_by_tab_and_done_by_enter(page: Page) -> None:
    actions = "a[href], button, input, select, summary"
    there = page.eval(f"""[...document.querySelectorAll('{actions}')]
        .filter((e) => e.checkVisibility() && !e.disabled).map((e, i) => (e.dataset.place = i))""")
    reached = set()
    for _ in range(2 * len(there) + 10):
        page.press("Tab")
        focused = page.eval("document.activeElement.dataset.place")
        if focused is not None:
            reached.add(int(focused))
            outline = page.eval("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", "the focus is seen"
    assert reached == set(there)
    page.eval("document.querySelector('.partition .name').focus()")
    page.press("Enter")
    wait_until(lambda: text(page, "#browse-partition"), "the topic is open")
    page.press("Escape")
    assert page.eval("document.activeElement.className") == "name", "the focus is where it was"


@pytest.fixture(scope="module")
def broken(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[ChaosCluster]:
    """Three nodes with links between them, whose consoles may write."""
    directory = tmp_path_factory.mktemp("broken")
    settings = {"broker.session.timeout.ms": "60000", **console_writes_of(directory)}
    with ChaosCluster.create(directory, clients=0, settings=settings, take_ports=free_ports) as cluster:
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.local.bootstrap, **QUIET})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result()
        yield cluster


def test_a_message_is_produced_and_faults_are_made_by_the_page(broken: ChaosCluster, tmp_path: Path) -> None:
    with chromium(tmp_path) as page:
        page.look_like(width=1280)
        page.open(f"http://127.0.0.1:{broken.local.nodes[1].http_port}/")
        wait_until(lambda: texts(page, ".partition .name"), "partitions are drawn")
        page.eval("document.querySelector('.partition .name').click()")
        wait_until(lambda: text(page, "#produce") and text(page, "#browse-partition"), "the form is there")
        page.eval("""document.getElementById('produce-value').value = '<b>hello</b>';
            document.getElementById('produce-headers').value = 'from=the page, empty';
            document.getElementById('produce-send').click()""")
        wait_until(lambda: "offset 0" in text(page, "#produce-note"), "it is acknowledged")
        wait_until(lambda: "<b>hello</b>" in text(page, "#messages"), "and shown, as text")
        assert "from: the page" in text(page, "#messages")
        page.press("Escape")

        fault(page, "cut", **{"fault-from": "2", "fault-to": "3"})
        wait_until(lambda: "cut 2>3" in text(page, "#links"), "the cut link is on the map")
        fault(page, "heal", **{"fault-from": "2", "fault-to": "3"})
        wait_until(lambda: text(page, "#links") == "", "it is whole again")
        fault(page, "kill", **{"fault-node": "1"})
        wait_until(lambda: "serves this page" in text(page, "#fault-note"), "its own node it does not break")
        fault(page, "kill", **{"fault-node": "3"})
        wait_until(lambda: "Killed node 3" in text(page, "#fault-note"), "the node is killed")
        wait_until(lambda: "Broker 3" in text(page, ".broker.bad"), "its death is seen")
        fault(page, "start", **{"fault-node": "3"})
        wait_until(lambda: "3 of 3" in text(page, "#health"), "it is back")
        assert [each for each in page.complaints if "409" not in each] == []


def fault(page: Page, action: str, **chosen: str) -> None:
    """Once the one before is done."""
    button = f"document.querySelector('#faults [data-action={action}]')"
    wait_until(lambda: page.eval(f"!{button}.disabled"), "the buttons are free")
    for name, value in chosen.items():
        page.eval(f"document.getElementById('{name}').value = '{value}'")
    page.eval(f"{button}.click()")


def test_users_quotas_and_acls_are_shown_where_they_are_looked_for(watched: LocalCluster, page: Page) -> None:
    for of_writes in ("faults", "produce"):
        assert page.eval(f"document.getElementById('{of_writes}').hidden"), "this console only reads"
    done = run_kraft("quota", "set", "producer_byte_rate=1e9", "--client-id", "seen", "-b", watched.bootstrap)
    assert done.returncode == 0, done.stderr
    page.eval("document.getElementById('rights-shown').open = true")
    wait_until(lambda: "client-id seen" in text(page, "#quotas"), "the quota is shown")
    wait_until(lambda: "No authorizer" in text(page, "#rights-note"), "and that everybody may do everything")


def test_everything_has_a_name_for_those_who_do_not_see_it(page: Page) -> None:
    unnamed = page.eval("""
        [...document.querySelectorAll('button, input, select, a, [role=img], section, dialog')]
        .filter((e) => !(e.innerText?.trim() || e.ariaLabel || e.labels?.length || e.ariaLabelledByElements
                         || e.getAttribute('aria-labelledby')))
        .map((e) => e.outerHTML)""")
    assert unnamed == []
    levels = page.eval("[...document.querySelectorAll('h1, h2, h3')].map((e) => +e.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
