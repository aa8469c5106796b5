"""Histories, runs and scenarios for tests of chaos, and a checker to check the checker by."""
