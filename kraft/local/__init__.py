"""Clusters on this machine, in processes of their own; a user's test process imports this package."""

from kraft import own_packages

own_packages.require("metadata_quorum")
