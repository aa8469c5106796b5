"""Raft: one voter of the metadata quorum, on PySyncObj's elections, counting and apply order.

`port.py` is what the rest of the house sees; `voter.py` implements it.
"""

import sys
import types

# Importing PySyncObj would replace `socket.inet_pton` and `inet_ntop` of the whole process by versions
# for old Windows that know no IPv6 and fail elsewhere: asyncio and others need the real ones.
sys.modules.setdefault("pysyncobj.win_inet_pton", types.ModuleType("pysyncobj.win_inet_pton"))
