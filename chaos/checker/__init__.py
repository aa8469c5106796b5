"""The judge of a run: a history in, a verdict with evidence out.

It knows nothing of the cluster but what clients were told. `observations` gathers that, `version_orders`
pieces the logs together, and each other module looks for one family of anomalies; `anomalies` is the table of
all. The time is linear in the history's length (sorting aside), the memory in the number of operations and of
distinct messages.
"""

from chaos.checker.check import check
from chaos.checker.verdict import Anomaly, Count, Verdict

__all__ = ["Anomaly", "Count", "Verdict", "check"]
