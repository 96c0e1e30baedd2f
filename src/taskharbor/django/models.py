"""No models: jobs are not rows that `save()` could change. Django sends `post_migrate` to apps with this module."""
