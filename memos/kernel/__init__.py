"""`MemOS`, its services, and the wiring of an installation."""
