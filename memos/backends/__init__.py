"""One file per technology, each an implementation of a port; only `memos.engines` chooses among them."""
