"""The demonstration: a bundled conversation is read, searched, corrected, updated and erased before your eyes."""
