"""`/api/v1`: our own routes, one resource a module; each only translates between HTTP and one call of `MemOS`."""
