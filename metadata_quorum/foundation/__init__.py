"""What every floor stands on: errors, model, invariants, disk, batches, codec."""
