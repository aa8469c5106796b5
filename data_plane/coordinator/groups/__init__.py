"""The coordinator of consumer groups, of both protocols."""
