"""One cube as a `.memcube` file: written, checked and loaded."""
