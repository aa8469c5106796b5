"""Groups of the consumer protocol (KIP-848): the coordinator assigns, members report what they own.

group       one group: its timers and its entry points; every input becomes records and a reply
state       what the log says about a group; changed by replay only
draft       a group as it would be, on which a decision is made record by record
membership  who may speak, joins, is replaced, leaves
rebalance   epochs, the target assignment, and one member's way towards it (reconciliation)
assignors   uniform and range
classic_members, migration   members of the classic protocol in such a group, and the way to and fro
records     the records of `__consumer_offsets`, in Apache Kafka's own bytes
"""
