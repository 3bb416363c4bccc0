"""The surfaces' shared half: how results look as JSON. The HTTP application is built on it."""
