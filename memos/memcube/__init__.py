"""What a cube is and how it is stored: ledger, changes, erasure, indexing, dump and backup."""
