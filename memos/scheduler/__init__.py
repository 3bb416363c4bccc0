"""Background work: tasks, heat, tiers, consolidation and periodic jobs."""

__all__ = [
    "consolidation",
    "heat",
    "index_worker",
    "jobs",
    "learning",
    "presets",
    "rules",
    "runner",
    "scheduler",
    "task",
]
