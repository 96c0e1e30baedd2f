"""An app whose tasks need what a worker process opens. It is installed where $SITE_LIFESPAN is set."""
