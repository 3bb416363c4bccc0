"""The console: pages to see, ask, correct and operate memory in a browser, over the routes of `/api/v1`."""

__all__: list[str] = []
