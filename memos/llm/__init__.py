"""Questions to language models: validated answers, remembered ones, and what they cost. Knows no backend."""
