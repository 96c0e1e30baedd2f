"""The security table of docs/security.md: attacks that no other lane makes, and fuzzers for everything that is parsed."""
