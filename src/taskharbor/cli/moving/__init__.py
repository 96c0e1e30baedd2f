"""`taskharbor from celery` and `from rq`: what to write instead, line by line. They change nothing."""
