"""Migrations of the permissions. The store has a schema of its own, which `post_migrate` brings up to date."""
