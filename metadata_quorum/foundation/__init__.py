"""What every floor is built on: errors, model, invariants, disk, batches, codec."""
