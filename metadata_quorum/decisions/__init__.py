"""Pure decisions: a committed image and a command give records and a reply.

One module per subject. Nothing here reads a clock, a random source or anything but its arguments,
and equal arguments give equal results, in the same order, on every node: whatever is iterated is
sorted. A refusal of the whole command is a `BrokerError`; refusals of parts are in the reply.
"""
