"""A verdict as lines of text, for the command line."""

from __future__ import annotations

from typing import Final

from chaos.checker.anomalies import KINDS
from chaos.checker.verdict import Anomaly, Verdict

NOT_ALL_JUDGED: Final = "no forbidden anomaly was found, but not everything could be judged"


def lines(verdict: Verdict) -> list[str]:
    """What was checked, then what was found: forbidden anomalies with their evidence, tolerated ones after
    them."""
    stats = verdict.stats
    forbidden = [anomaly for anomaly in verdict.anomalies if not anomaly.allowed]
    allowed = [anomaly for anomaly in verdict.anomalies if anomaly.allowed]
    return [
        f"{stats['operations']} operations on {stats['partitions']} partitions: "
        f"{stats['ok']} ok, {stats['fail']} failed, {stats['info']} unknown",
        f"{stats['sent']} values sent, {stats['acknowledged']} acknowledged, {stats['read']} read",
        *not_judged(verdict),
        *_section("forbidden", forbidden, {kind: n.forbidden for kind, n in verdict.counts.items()}),
        *_section("tolerated", allowed, {kind: n.allowed for kind, n in verdict.counts.items()}),
        conclusion(verdict),
    ]


def conclusion(verdict: Verdict) -> str:
    if verdict.ok:
        return "no forbidden anomaly"
    return f"FORBIDDEN: {_tally(verdict)}" if _tally(verdict) else NOT_ALL_JUDGED


def not_judged(verdict: Verdict) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for kind, why in verdict.not_judged.items():
        reasons.setdefault(why, []).append(kind)
    return [f"not judged: {', '.join(kinds)}: {why}" for why, kinds in reasons.items()]


def _section(title: str, anomalies: list[Anomaly], counts: dict[str, int]) -> list[str]:
    lines = []
    for kind in KINDS:
        if not counts.get(kind.name):
            continue
        shown = [anomaly for anomaly in anomalies if anomaly.kind == kind.name]
        lines.append(f"{title}: {kind.name} ({counts[kind.name]}): {kind.definition}")
        lines += [f"  {anomaly.summary}" for anomaly in shown]
        if counts[kind.name] > len(shown):
            lines.append(f"  and {counts[kind.name] - len(shown)} more")
    return lines


def _tally(verdict: Verdict) -> str:
    return ", ".join(f"{n.forbidden} {kind}" for kind, n in verdict.counts.items() if n.forbidden)
