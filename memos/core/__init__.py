"""Values, ports, settings and text functions that every other package may use."""
