"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members report what they own.

group       one group: its timers and its entry points; every input becomes records and a reply
state       a group as its records describe it; changed by replay only
draft       a group as it would be, on which a decision is made record by record
membership  fencing, joining, replacing, leaving
rebalance   epochs, the target assignment, and one member's steps towards it (reconciliation)
assignors   uniform and range
classic_members, migration   members of the classic protocol in such a group; upgrade and downgrade
records     the records of `__consumer_offsets`, in Apache Kafka's own bytes
"""
