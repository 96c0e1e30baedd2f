"""Programs of Celery and RQ: what to write instead, line by line. It changes nothing, and knows no store."""
