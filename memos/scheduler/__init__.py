"""Background work: tasks, heat, tiers, consolidation and periodic jobs."""
