"""Bulk operations: requeue, cancel or delete all jobs that fit a filter, in small jobs that survive crashes."""
