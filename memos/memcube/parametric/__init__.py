"""The parametric form of memory: what lasts, distilled into LoRA adapters that are measured before they answer."""

__all__ = ["forgetting", "quiz", "selection", "training"]
