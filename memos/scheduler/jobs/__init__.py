"""What each kind of background task does, one module a kind."""
