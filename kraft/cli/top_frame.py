"""One frame of `kraft top`: a snapshot of the cluster and what the reader asks for in, lines out.

The parts from the top down, each as high as it needs to be; partitions take the lines that are left:

    cluster, totals · nodes · partitions with a bar per replica · groups with lag · time line · keys

Nothing is told by colour alone. What clients name themselves is shown without what a terminal obeys.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kraft.cli.printable import printable
from kraft.cli.told import Event, ShownBroker, ShownGroup, ShownPartition, ShownReplica, Snapshot

BAR: Final = 6
"""Columns of a replica's log."""
REPLICA: Final = 4 + BAR + 1
"""Columns of a replica: a mark, its broker, the bar, a space."""
BESIDE_REPLICAS: Final = 47
"""Columns that the name of a partition and its figures need."""
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
MOST_GROUPS: Final = 5
MOST_EVENTS: Final = 6
KEYS: Final = "q quit  / filter  s sort  i internal topics  ↑↓ scroll"
BAD_EVENTS: Final = ("fenced", "unclean", "no leader", "ISR shrink", "shutting down")


class Sort(StrEnum):
    """What comes first among the partitions."""

    STATE = "state"
    NAME = "name"
    LAG = "lag"
    SIZE = "size"

    @property
    def next(self) -> Sort:
        members = list(Sort)
        return members[(members.index(self) + 1) % len(members)]


@dataclass(slots=True)
class Choice:
    """What the reader asks for."""

    sort: Sort = Sort.STATE
    filter: str = ""
    typing: bool = False
    internal: bool = False
    scrolled: int = 0


@dataclass(slots=True)
class Known:
    """What the nodes have told."""

    snapshot: Snapshot | None = None
    events: tuple[Event, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the terminal."""

    columns: int
    lines: int


def frame(known: Known, choice: Choice, size: Size) -> Group:
    """Never more lines than the terminal has, where it has ten or more."""
    snapshot = known.snapshot
    if snapshot is None:
        return Group(Text(known.trouble or "asking ..."))
    groups = _chosen_groups(snapshot, choice)[:MOST_GROUPS]
    nodes = _nodes(snapshot)
    left = max(size.lines - 5 - nodes.row_count - 1, 0)  # head, totals, keys, two table heads, a spare
    shown_groups = groups[: max(min(len(groups), left // 3 - 1), 0)]
    left -= len(shown_groups) + 1 if shown_groups else 0
    events = known.events[-max(min(MOST_EVENTS, left // 2 - 1), 0) :] if left >= 4 else ()
    left -= len(events) + 1 if events else 0
    return Group(
        _head(snapshot, known.trouble),
        _totals(snapshot),
        nodes,
        _partitions(snapshot, choice, size.columns, left),
        *([_groups(shown_groups)] if shown_groups else []),
        *([_time_line(events)] if events else []),
        _keys(choice),
    )


def _head(snapshot: Snapshot, trouble: str) -> Text:
    at = _clock(snapshot["time_ms"])
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("kraft ", "bold")
    head.append(f"{at}  as node {snapshot['told_by']} sees it  cluster {printable(snapshot['cluster_id'])}")
    if trouble:
        head.append(f"  ! {trouble}", "bold red")
    return head


def _totals(snapshot: Snapshot) -> Text:
    brokers, totals, quorum = snapshot["brokers"], snapshot["totals"], snapshot["quorum"]
    well = sum(each["answers"] and not each["fenced"] for each in brokers)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{well}/{len(brokers)} brokers", "" if well == len(brokers) else "bold red")
    line.append(f"  {totals['partitions']} partitions:")
    for number, label in (
        (totals["no_leader"], "no leader"),
        (totals["under_min_isr"], "min isr"),
        (totals["under_replicated"], "isr short"),
    ):
        line.append(f"  {number} {label}", "bold red" if number else "")
    problem = quorum.get("problem")
    if problem:
        line.append(f"  ! {printable(problem)}", "bold red")
    else:
        line.append(f"  term {quorum.get('term', '?')}")
    return line


def _clock(time_ms: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_ms / 1000))


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="reverse", expand=True)
    for column in columns:
        table.add_column(
            column, no_wrap=True, overflow="ellipsis", justify="right" if column in right else "left"
        )
    return table


def _add_row(table: Table, *cells: str | Text, style: str = "") -> None:
    """What others have named is no markup: a group may be called [/x]."""
    table.add_row(*(Text(printable(each)) if isinstance(each, str) else each for each in cells), style=style)


def _nodes(snapshot: Snapshot) -> Table:
    table = _table(
        "NODE", "STATE", "RACK", "ADDRESS", "LEADS", "REPLICAS", "DISK", "BEHIND",
        right=("LEADS", "REPLICAS", "DISK", "BEHIND"),
    )  # fmt: skip
    for each in snapshot["brokers"]:
        state = _state_of(each)
        name = f"{each['id']} controller" if each["id"] == snapshot["quorum"]["leader"] else str(each["id"])
        _add_row(
            table, name, state, shown(each["rack"]), shown(each["address"]), str(each["leads"]),
            shown(each["replicas"]), in_bytes(each["size"]), shown(each["metadata_lag"]),
            style="" if state == "running" else "bold red",
        )  # fmt: skip
    return table


def _state_of(broker: ShownBroker) -> str:
    if broker["fenced"]:
        return "! fenced"
    if broker["shutting_down"]:
        return "! shutting down"
    if not broker["answers"]:
        return "! does not answer"
    if any(not each["online"] for each in broker["log_dirs"] or ()):
        return "! disk failed"
    return str(broker["state"])


# ---- partitions --------------------------------------------------------------------------------------


def _partitions(snapshot: Snapshot, choice: Choice, columns: int, lines: int) -> Table:
    chosen = _chosen_partitions(snapshot, choice)
    most = max(lines - 1, 1)
    choice.scrolled = min(choice.scrolled, max(len(chosen) - most, 0))
    seen = chosen[choice.scrolled : choice.scrolled + most]
    widest = max((len(each["replicas"]) for each in seen), default=1)
    fitting = max((columns - BESIDE_REPLICAS) // REPLICA, 1)
    hidden = len(chosen) - len(seen) + snapshot["more_partitions"]
    title = f"TOPIC by {choice.sort}" + (f", {hidden} more" if hidden else "")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="reverse", expand=True)
    table.add_column(title, no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("#", no_wrap=True, justify="right", min_width=2)
    table.add_column("STATE", no_wrap=True, min_width=9)
    table.add_column("REPLICAS: ★ leads ✗ out", no_wrap=True, width=min(widest, fitting) * REPLICA + 1)
    for name in ("HIGH WM", "LAG"):
        table.add_column(name, no_wrap=True, justify="right", min_width=7 if name == "HIGH WM" else 5)
    for each in seen:
        bad = each["state"] != IN_SYNC
        bars = Text()
        scale = max(_scale(each), 1)
        for replica in each["replicas"][:fitting]:
            bars.append_text(_replica(each, replica, scale))
        if len(each["replicas"]) > fitting:
            bars.append("…")
        _add_row(
            table,
            Text(printable(each["topic"]), "bold red" if bad else ""),
            str(each["partition"]),
            Text(_SHORT.get(each["state"]) or printable(each["state"]), "bold red" if bad else ""),
            bars,
            in_short(each["high_watermark"]),
            in_short(lag_of(each)),
        )
    return table


IN_SYNC: Final = "in sync"
_SHORT: Final = {"under-replicated": "isr short", "under min ISR": "min isr"}


def _scale(partition: ShownPartition) -> int:
    ends = [each["end"] for each in partition["replicas"] if each["end"] is not None]
    return max(ends, default=0) - (partition["start"] or 0)


def _replica(partition: ShownPartition, replica: ShownReplica, scale: int) -> Text:
    """`★1 █████│  `: the log up to its end, and the high watermark through it."""
    leads = replica["id"] == partition["leader"]
    mark = "★" if leads else " " if replica["in_sync"] else "✗"
    colour = "red" if not replica["in_sync"] else "blue" if leads else "cyan"
    text = Text(f"{mark}{replica['id']!s:<2.2} ", "bold" if leads else colour if mark == "✗" else "")
    start, end, mark_at = partition["start"], replica["end"], partition["high_watermark"]
    if replica["offline"]:
        return text.append("failed".ljust(BAR + 1), "bold red")
    if start is None or end is None:
        return text.append("?".ljust(BAR + 1), "dim")
    bar = list(_filled((end - start) / scale))
    if end > start and mark_at is not None and mark_at < start + scale:
        bar[min(int((mark_at - start) / scale * BAR), BAR - 1)] = "│"
    return text.append("".join(bar), colour).append(" ")


def _filled(share: float) -> str:
    """A bar of BAR columns, filled to that share."""
    eighths = round(min(max(share, 0.0), 1.0) * BAR * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(BAR)


def lag_of(partition: ShownPartition) -> int | None:
    """How far the slowest replica is behind the leader's log end."""
    if partition["end"] is None:
        return None
    ends = [each["end"] for each in partition["replicas"] if each["end"] is not None]
    end = int(partition["end"])
    return max(end - min(map(int, ends), default=end), 0)


def _chosen_partitions(snapshot: Snapshot, choice: Choice) -> list[ShownPartition]:
    """Kafka's own topics are shown where they are asked for, or where they cannot be used."""
    wanted = choice.filter.lower()
    chosen = [
        each
        for each in snapshot["partitions"]
        if (choice.internal or not each["topic"].startswith("__") or each["state"] in _UNUSABLE)
        and wanted in f"{each['topic']}-{each['partition']} {each['state']}".lower()
    ]
    match choice.sort:
        case Sort.STATE:
            chosen.sort(key=lambda each: (each["state"] == IN_SYNC, each["topic"], each["partition"]))
        case Sort.NAME:
            chosen.sort(key=lambda each: (each["topic"], each["partition"]))
        case Sort.LAG:
            chosen.sort(key=lambda each: -(lag_of(each) or 0))
        case Sort.SIZE:
            chosen.sort(key=lambda each: -(each["size"] or 0))
    return chosen


_UNUSABLE: Final = ("no leader", "under min ISR")


# ---- groups, events, keys ----------------------------------------------------------------------------


def _chosen_groups(snapshot: Snapshot, choice: Choice) -> list[ShownGroup]:
    """Who lags most comes first, and before all whose lag is not known."""
    wanted = choice.filter.lower()
    named = [each for each in snapshot["groups"] if wanted in each["id"].lower()]
    chosen = named or list(snapshot["groups"])  # the filter is one for partitions then
    return sorted(chosen, key=lambda each: (each["lag"] is not None, -(each["lag"] or 0), each["id"]))


def _groups(groups: Sequence[ShownGroup]) -> Table:
    table = _table("GROUP", "PROTOCOL", "STATE", "MEMBERS", "LAG", right=("MEMBERS", "LAG"))
    for each in groups:
        lag = _group_lag(each) if each["offsets"] else "-"
        _add_row(table, each["id"], each["type"], each["state"], str(len(each["members"])), lag)
    return table


def _group_lag(group: ShownGroup) -> str:
    """Records that a reader of committed records still gets."""
    return f"{'≤' if group['lag'] and not group['lag_exact'] else ''}{in_short(group['lag'])}"


def _time_line(events: Sequence[Event]) -> Table:
    """The newest first."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="reverse", expand=True)
    table.add_column("TIME", no_wrap=True, width=8)
    table.add_column("EVENT", no_wrap=True, overflow="ellipsis", ratio=1)
    for event in reversed(events):
        bad = any(word in event["kind"] for word in BAD_EVENTS)
        text = printable(f"{'! ' if bad else ''}{event['kind']} {event['subject']}: {event['text']}")
        _add_row(table, _clock(event["time_ms"]), Text(text, "red" if bad else ""))
    return table


def _keys(choice: Choice) -> Text:
    if choice.typing:
        return Text(
            f"filter: {printable(choice.filter)}▏ Enter keeps it, Esc clears it", "reverse", no_wrap=True
        )
    kept = f"  filter: {printable(choice.filter)}" if choice.filter else ""
    return Text(KEYS + kept, "dim", no_wrap=True, overflow="ellipsis")


def shown(value: object) -> str:
    return "-" if value is None else str(value)


def in_short(value: int | None) -> str:
    """A number in seven columns."""
    if value is None:
        return "?"
    for unit in ("", "K", "M", "G", "T"):
        if value < 100_000:
            return f"{value}{unit}"
        value //= 1000
    return f"{value}P"


def in_bytes(value: int | None) -> str:
    if value is None:
        return "-"
    size = float(value)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
