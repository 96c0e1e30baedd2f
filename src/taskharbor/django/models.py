"""No models: jobs are not rows that `save()` could change. Django sends `post_migrate` to apps that have this module."""
