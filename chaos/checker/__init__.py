"""The checker of a run: a history in, a verdict with evidence out.

It uses nothing of the cluster but the responses that clients got. `observations` gathers them,
`version_orders` reconstructs the logs, and each other module finds one family of anomalies; `anomalies` is
the table of all. The time is linear in the history's length (sorting aside), the memory in the number of
operations and of distinct messages.
"""

from chaos.checker.check import check
from chaos.checker.verdict import Anomaly, Count, Verdict

__all__ = ["Anomaly", "Count", "Verdict", "check"]
