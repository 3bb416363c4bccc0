"""A store, dumps and a backup as version 0.1 wrote them; `make.py` shows how they were made."""
