"""Mutants of the controller: ISRs, elections, the metadata log."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, mutant

CONTROLLER: Final = (
    mutant(
        "broker-epoch-ignored",
        "KIP-903",
        "an ISR takes a broker only in the incarnation that the leader saw",
        "metadata_quorum/decisions/isr.py",
        "    return member.broker_epoch in (-1, image.brokers[member.broker_id].broker_epoch)",
        "    return True",
        ("golden/test_metadata.py",),
    ),
    mutant(
        "fenced-replica-in-the-isr",
        "KAFKA-13916",
        "a fenced broker joins no ISR",
        "metadata_quorum/decisions/isr.py",
        "    if not image.can_serve(member.broker_id, partition):\n",
        "    if member.broker_id not in image.brokers:\n",
        ("golden/test_metadata.py",),
    ),
    mutant(
        "partition-epoch-not-compared",
        "KIP-497",
        "a change of the ISR is compared and set by the partition's epoch",
        "metadata_quorum/decisions/isr.py",
        "        (change.partition_epoch < partition.partition_epoch, ErrorCode.INVALID_UPDATE_VERSION),\n",
        "",
        ("golden/test_metadata.py",),
    ),
    mutant(
        "last-replica-standing",
        "KIP-966",
        "who leaves an ISR below min.insync.replicas stays eligible",
        "metadata_quorum/decisions/elections.py",
        "        elr = tuple(r for r in placed.replicas if r in eligible and r not in isr)\n",
        "        elr = ()\n",
        ("golden/test_metadata.py",),
    ),
    mutant(
        "eligible-after-an-unclean-restart",
        "KIP-966",
        "a replica that may have lost records is not eligible",
        "metadata_quorum/decisions/elections.py",
        "    eligible = known.intersection(placed.replicas) - unclean_restarts\n",
        "    eligible = known.intersection(placed.replicas)\n",
        ("golden/test_metadata.py",),
    ),
    mutant(
        "log-deleted-past-the-snapshot",
        "KAFKA-14238",
        "the metadata log keeps what the oldest kept snapshot does not cover",
        "metadata_quorum/metadata/metadata_log.py",
        "            self._delete_segments_below(self._checkpoints[0].end_offset)",
        "            self._delete_segments_below(self.end_offset)",
        (
            "unit/metadata/test_metadata_log.py",
            "unit/metadata/test_metadata_log_crash_points.py",
        ),
    ),
    mutant(
        "claim-that-times-out",
        "ours",
        "a leader is active once its claim is applied, however late",
        "metadata_quorum/controller/controller.py",
        "        if leader_id == self.node_id and self._raft.is_leader and self._raft.term == term:\n",
        "        if leader_id == self.node_id and self._raft.is_leader and self._raft.term == term:\n"
        "            if self._loop.time() - self._claimed_at > 10.0:\n"
        "                return\n",
        ("unit/metadata/test_controller.py",),
        Edit(
            "metadata_quorum/controller/controller.py",
            "        self._proposer.claim(term, claim)\n",
            "        self._claimed_at = self._loop.time()\n        self._proposer.claim(term, claim)\n",
        ),
    ),
    mutant(
        "elr-lost-in-a-downgrade",
        "ours",
        "who was eligible stays so where the feature is lowered",
        "metadata_quorum/decisions/elections.py",
        "if rules.elr_enabled else before.elr)\n",
        "if rules.elr_enabled else ())\n",
        ("golden/test_metadata.py",),
    ),
    mutant(
        "acls-in-the-order-of-a-set",
        "ours",
        "every controller deletes the same entries in the same order",
        "metadata_quorum/decisions/acls.py",
        "tuple(sorted((acl for acl in among if matches(acl_filter, acl)), key=lambda acl: acl.id.bytes))\n",
        "tuple(acl for acl in among if matches(acl_filter, acl))\n",
        ("unit/metadata/test_state_machine.py",),
    ),
    mutant(
        "broker-without-directories-unfenced",
        "ours",
        "who has lost its last directory stays fenced",
        "metadata_quorum/decisions/brokers.py",
        "    if not broker.fenced or not broker.has_any_dir:\n",
        "    if not broker.fenced:\n",
        ("unit/metadata/test_directories.py",),
    ),
    mutant(
        "connection-of-an-earlier-incarnation",
        "ours",
        "a connection of an earlier process is no sign that the present one lives",
        "metadata_quorum/controller/broker_sessions.py",
        "        return broker if broker_epoch == broker.epoch else None\n",
        "        return broker\n",
        ("unit/metadata/test_sessions_of_a_controller.py",),
    ),
)
