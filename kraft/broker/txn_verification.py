"""Whether a batch belongs to an open transaction: a leader queries the coordinator before the first one.

    api/produce, api/group_offsets -> TransactionVerifier.ask
        |--> TransactionCoordinator, where it is led here
        `--> AddPartitionsToTxn -> the coordinator's broker

Without this a batch that comes late, or from a producer that does not know that its transaction has ended,
would open one that no coordinator ends, and read_committed consumers would make no progress there (KIP-890).
A producer of transaction.version 2 names no partitions beforehand: for it the leader adds them with the same
request, and retries for `RetryPolicy.for_s` while the coordinator is still ending the transaction before.
Clients begin the next one as soon as EndTxn is answered, and some wait for seconds after an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.topics import TRANSACTIONS_TOPIC, partition_for_key
from data_plane.coordinator.transactions.service import TransactionCoordinator
from data_plane.coordinator.transactions.transaction_state_manager import EPOCH_PER_TRANSACTION
from data_plane.coordinator.transactions.verification_guard import VerificationGuard, VerificationGuards
from kraft.peers.broker_channels import BrokerChannels
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_LEADER, TopicPartition, by_topic
from metadata_quorum.metadata.metadata_cache import MetadataCache

ADD_PARTITIONS_VERSION: Final = 5

RETRIABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The coordinator could not be queried now; a retry may succeed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and for how long, to repeat the request while the response is CONCURRENT_TRANSACTIONS."""

    every_s: float  # add.partitions.to.txn.retry.backoff.ms
    for_s: float  # add.partitions.to.txn.retry.backoff.max.ms


class TransactionVerifier:
    """One per broker."""

    def __init__(
        self,
        node_id: int,
        metadata_cache: MetadataCache,
        local: TransactionCoordinator,
        broker_channels: BrokerChannels,
        guards: VerificationGuards,
        *,
        verifies: bool,
        timeout_s: float,
        retry: RetryPolicy,
    ) -> None:
        """`verifies`: transaction.partition.verification.enable, for producers that name their partitions."""
        self._node_id = node_id
        self._metadata_cache = metadata_cache
        self._local = local
        self._broker_channels = broker_channels
        self._timeout_s = timeout_s
        self._retry = retry
        self.guards = guards
        self.verifies = verifies

    async def ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        guarded: Mapping[TopicPartition, VerificationGuard],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """For each partition, whether the producer's open transaction has it now."""
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + self._retry.for_s
        while True:
            for tp, guard in guarded.items():
                self.guards.renew(tp, producer.producer_id, guard)
            outcomes = await self._ask_once(transactional_id, producer, guarded, add)
            is_ending = add and ErrorCode.CONCURRENT_TRANSACTIONS in outcomes.values()
            if not is_ending or now_s() >= deadline_s:
                return outcomes
            await asyncio.sleep(self._retry.every_s)

    async def _ask_once(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        try:
            coordinator = self._coordinator(transactional_id)
            if coordinator == self._node_id:
                return await self._ask_local(transactional_id, producer, partitions, add)
            return await self._ask_remote(coordinator, transactional_id, producer, partitions, add)
        except BrokerError as error:
            return dict.fromkeys(partitions, error.code)
        except OSError:
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)

    def _coordinator(self, transactional_id: str) -> int:
        topic = self._metadata_cache.image.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = topic.partitions.get(partition_for_key(transactional_id, len(topic.partitions)))
        if partition is None or partition.leader == NO_LEADER:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return partition.leader

    async def _ask_local(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        if add:
            await self._local.add_partitions(transactional_id, producer, partitions, EPOCH_PER_TRANSACTION)
            return dict.fromkeys(partitions, ErrorCode.NONE)
        missing = frozenset(await self._local.verify(transactional_id, producer, partitions))
        return {tp: ErrorCode.TRANSACTION_ABORTABLE if tp in missing else ErrorCode.NONE for tp in partitions}

    async def _ask_remote(
        self,
        coordinator: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        transaction: dict[str, Any] = {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "verify_only": not add,
            "topics": [
                {"name": name, "partitions": numbers} for name, numbers in by_topic(partitions).items()
            ],
        }
        answer = await self._broker_channels.ask(
            coordinator,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ADD_PARTITIONS_VERSION,
            {"transactions": [transaction]},
            self._timeout_s,
        )
        outcomes = dict.fromkeys(partitions, ErrorCode(answer.error_code))
        for result in answer.results_by_transaction:
            for topic in result.topic_results:
                for each in topic.results_by_partition:
                    tp = TopicPartition(topic.name, each.partition_index)
                    outcomes[tp] = ErrorCode(each.partition_error_code)
        return outcomes
