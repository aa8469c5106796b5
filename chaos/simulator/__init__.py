"""The whole cluster from one seed: unmodified nodes on virtual time, simulated streams and disks.

    seed -> Profile, faults (a list) -> run.py: nodes and clients on scheduler.py, oracles watch -> Outcome

What a node takes from outside (kraft/node/environment.py) is made here: its event loop (process_loop.py),
over streams that delay, cut and refuse (network.py), a disk that loses power (machine.py), chance, clocks.
Product code does not know of it.
"""
