"""`taskharbor demo`: its tasks, the tour, and the screen that shows the progress."""
