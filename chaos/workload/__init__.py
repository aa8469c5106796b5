"""Jepsen's Kafka workload on stock confluent-kafka: many clients that write, read and crash, all recorded.

generator      what each client does next, from a seed
worker         one thread per client: does it, times it, records it
copier         the same for clients that consume, transform and produce in transactions
producer       }
transactional  } librdkafka as a client uses it, and how it is dropped
consumer       }
transactor     one transactional id, its producers and its zombies
journal        a client's process numbers, and its lines of the history
outcome        what a delivery report proves: ok, fail or info
statistics     live: gaps between acks, outcomes, latencies
settle         at the end no transaction is open any more
final          and everything is read once more from the beginning
client_spec    what each client does
workload       all of them together, against any Kafka cluster
"""

from chaos.workload.generator import Endings, Mix
from chaos.workload.statistics import Statistics
from chaos.workload.topics import TopicSpec, create_topics
from chaos.workload.workload import FinalReadResult, Pace, Workload

__all__ = [
    "Endings",
    "FinalReadResult",
    "Mix",
    "Pace",
    "Statistics",
    "TopicSpec",
    "Workload",
    "create_topics",
]
