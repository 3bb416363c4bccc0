"""`/api/v1`: the native routes, a module for each resource; each translates between HTTP and one call of `MemOS`."""
