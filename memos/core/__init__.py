"""Values, identities, ports, filters, settings and pure functions on text."""
