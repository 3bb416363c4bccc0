"""What reader and search share about text: checks, statements, entities, rendering. Pure functions."""
