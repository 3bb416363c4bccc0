"""Classes and files of other memory programs, on this project's storage."""
