"""`MemOS.adapters`: LoRA adapters of a cube."""
