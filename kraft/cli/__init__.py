"""The command line: one module per group of commands, gathered in `main.py`.

Every command is thin: it queries the cluster (or a file), prints, and turns expected errors
into one sentence on standard error (`errors.py`). Heavy imports (librdkafka, rich)
happen inside the commands, so that `kraft --help` answers at once.
"""
