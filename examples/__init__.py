"""Programs that use a kraft cluster as any user would: through stock clients."""
