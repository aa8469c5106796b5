"""Over how long the rates are taken that quotas bound."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.config.key import key


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class QuotaKeys:
    """Kafka's QuotaConfig."""

    quota_window_num: int = key(11, "samples over which a client's rate is measured", minimum=1)
    quota_window_size_seconds: int = key(1, "length of a sample of a client's rate", minimum=1)
    controller_quota_window_num: int = key(
        11, "samples over which the rate of created and deleted partitions is measured", minimum=1
    )
    controller_quota_window_size_seconds: int = key(1, "length of a sample of it", minimum=1)

    replication_quota_window_num: int = key(
        11, "samples over which the rate of throttled replicas is measured", minimum=1
    )
    replication_quota_window_size_seconds: int = key(1, "length of a sample of it", minimum=1)
    alter_log_dirs_replication_quota_window_num: int = key(
        11, "samples over which the rate of moves between log dirs is measured", minimum=1
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = key(1, "length of a sample of it", minimum=1)
