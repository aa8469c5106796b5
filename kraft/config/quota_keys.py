"""Over how long the rates are taken that quotas bound."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.config.key import key


@dataclass(frozen=True, kw_only=True)
class QuotaKeys:
    """Kafka's QuotaConfig."""

    quota_window_num: int = key(11, "samples that a client's rate is the mean of", minimum=1)
    quota_window_size_seconds: int = key(1, "length of one sample", minimum=1)
    controller_quota_window_num: int = key(11, "the same for created and deleted partitions", minimum=1)
    controller_quota_window_size_seconds: int = key(1, "length of one sample", minimum=1)

    replication_quota_window_num: int = key(
        11, "samples that a throttled replica's rate is taken over", minimum=1
    )
    replication_quota_window_size_seconds: int = key(1, "length of one sample", minimum=1)
    alter_log_dirs_replication_quota_window_num: int = key(
        11, "the same for moves between log dirs", minimum=1
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = key(1, "length of one sample", minimum=1)
