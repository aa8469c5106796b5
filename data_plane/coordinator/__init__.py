"""Coordinators: machines kept over the partitions of internal topics."""
