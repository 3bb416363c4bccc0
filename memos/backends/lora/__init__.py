"""Training of LoRA adapters in a child process."""
