"""What users download: built, checked, and installed into an environment of its own."""
