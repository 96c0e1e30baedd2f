"""The security table of docs/security.md: attacks that no other lane makes, and fuzzers for what is parsed."""
