"""Raft: one voter of the metadata quorum, on PySyncObj's elections, counting and apply order.

`port.py` is what the rest of the house sees; `voter.py` implements it. What PySyncObj 0.3.17 does wrong, each
with the module that mends it and its test in tests/unit/raft/:

* Term and vote are not fsynced, the journal is never flushed.
    journal.py, outbox.py; test_durability.py
* The journal is an mmap without checksums, a full disk a SIGBUS.
    journal.py; test_durability.py, test_every_disk_operation.py
* A saved commit index ahead of the journal commits entries that nobody has.
    journal.py; test_durability.py
* A late copy of an append truncates acknowledged entries.
    log_matching.py; test_receive.py
* A follower commits beyond what the message verified.
    log_matching.py; test_receive.py
* An acknowledgement from an earlier term counts as one of this term.
    messages.py, leading.py; test_acks.py
* A vote that arrives twice counts twice, so one term has two leaders.
    election.py; test_acks.py
* Messages, journal and snapshots are pickles of anybody's making.
    messages.py, journal.py; test_messages.py
* A deaf leader stays for 30 s, then terms grow without end (pre-vote, check quorum).
    election.py; test_elections.py
* A snapshot on its way raises the commit index over an unverified tail.
    following.py; test_snapshots.py
* A kill between writing a snapshot and trimming wipes the journal.
    snapshots.py, journal.py; test_snapshots.py
* A forked writer of snapshots may rename its file later, over a newer one.
    applier.py; test_snapshots_beside_the_loop.py
* A snapshot that cannot be read counts as an empty state, which may lead.
    snapshots.py; test_snapshots.py
* A failed install is acknowledged, and a late one takes the state back.
    following.py; test_snapshots.py
* Adding voters at run time can end in a quorum that commits nothing: none are added.
    syncobj.py; test_proposals.py
* A voter that lost its disk votes, and helps to lose what it acknowledged.
    identity.py, admission.py; test_rejoin.py
* A conflicting tail with a long backlog never converges.
    replication.py, log_matching.py; test_receive.py
* A callback that raises has its entry applied again, on that voter only.
    voter.py; test_proposals.py
* A callback may never be called: every proposal has a deadline.
    proposals.py; test_proposals.py
* A deposed leader's queue is forwarded, and committed by the next leader.
    proposals.py; test_proposals.py
* A command beyond the size of a batch is framed wrongly.
    leading.py, messages.py; test_proposals.py

Its commit rule (a majority, and an entry of the leader's own term) is right, and stays.
"""

import sys
import types

# Importing PySyncObj would replace `socket.inet_pton` and `inet_ntop` of the whole process by versions
# for old Windows that know no IPv6 and fail elsewhere: asyncio and others need the real ones.
sys.modules.setdefault("pysyncobj.win_inet_pton", types.ModuleType("pysyncobj.win_inet_pton"))
